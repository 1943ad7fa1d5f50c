"""One-sided exchange is proven by the checker, and the lowering makes of it what it must, or refuses by name."""

from __future__ import annotations

from typing import Any

import pytest

from syntony import _core
from syntony.synth.checker import check_program

_cuda = pytest.importorskip("syntony._cuda", reason="the CUDA executor was not built here: there is no nvcc")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", *ROOTED)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_pull_is_proven(collective: str, ranks: int) -> None:
    for root in {0, ranks - 1} if collective in ROOTED else {0}:
        verdict = check_program(_cuda.pull(collective, ranks, root))
        assert verdict.valid, verdict.fault


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 16])
def test_pull_two_shot_is_proven(ranks: int) -> None:
    program = _cuda.pull_two_shot(ranks)
    assert program.in_place
    verdict = check_program(program)
    assert verdict.valid, verdict.fault


def lowered(
    program: Any, elements: list[int], *, dtype: str = "float32", op: str = "sum", shape: Any = None, **options: Any
) -> Any:
    arena = _cuda.ArenaShape(program.ranks, **(shape or {}))
    return _cuda.lowered(program, 0, dtype, op, elements, arena, **options)


def test_reads_sum_and_writes_become_one_movement_without_scratch() -> None:
    facts = lowered(_cuda.pull_two_shot(4), [1 << 20])
    handshake = 4 * 3  # begun and finished, to and from each of three peers
    assert facts["instructions"] == 1 + handshake
    assert facts["scratch_bytes"] == 0
    assert len(facts["bases"]) == 8  # every rank's input and output


def test_large_buffers_fill_the_blocks_there_are_and_small_ones_do_not() -> None:
    assert lowered(_cuda.pull_two_shot(4), [1 << 26], blocks=33)["instances"] == 32
    assert lowered(_cuda.pull_two_shot(4), [1000], blocks=33)["instances"] == 1
    ring = _core.build("ring", "all_reduce", 4)
    large = lowered(ring, [1 << 26], blocks=33)
    assert 1 < large["instances"] <= 16 // ring.channels, "two-sided instances need channels of their own"
    assert large["blocks"] <= 33


def test_more_lanes_than_blocks_share_blocks() -> None:
    facts = lowered(_core.build("direct", "all_to_all", 8), [1000] * 64, blocks=2)
    assert facts["lanes"] > 2
    assert facts["blocks"] == 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"dtype": "complex64", "op": "product"}, "product of complex64 is not among its operators"),
        ({"dtype": "float32", "op": "bxor"}, "bxor of float32 is not among its operators"),
        ({"instances": 99}, "and 16 are free"),
        ({"elements": [1, 1]}, "has 1 blocks, and sizes came for 2"),
        ({"shape": {"slot_bytes": 0}}, "does not fit one of 0 bytes"),
        ({"blocks": 0}, "no thread block of this rank"),
        ({"bulk": True, "protocol": "ll"}, "only messages of the simple protocol are bytes"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(options: dict[str, Any], why: str) -> None:
    options = dict(options)
    elements = options.pop("elements", [1000])
    with pytest.raises(ValueError, match=f"the program ring.* cannot run on a GPU here: .*{why}"):
        lowered(_core.build("ring", "all_reduce", 4), elements, **options)


def test_a_machine_without_a_gpu_says_zero() -> None:
    assert _cuda.device_count() >= 0
    if _cuda.device_count() == 0:
        with pytest.raises(RuntimeError, match="failed: "):
            _cuda.Memory(0, 16)
