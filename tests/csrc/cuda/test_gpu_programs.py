"""Programs on a GPU: 2, 4 and 8 virtual ranks, all collectives, algorithms, elements and protocols, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syntony import _core
from tests.csrc.cuda.gpu import Arrays, VirtualRanks, _cuda, even_sizes, needs_gpu
from tests.csrc.program_interpreter import ends, starts
from tests.csrc.runtime import elements
from tests.csrc.runtime.cases import generator
from tests.csrc.runtime.programs.test_programs import fused_ring, random_program

pytestmark = needs_gpu
COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
)  # fmt: skip
# A GPU sums complex numbers, and multiplies none.
PAIRS = tuple((d, op) for d, op in elements.PAIRS if not d.startswith("complex") or op == "sum")


def programs(collective: str, ranks: int) -> list[Any]:
    built = [_core.build(a.name, collective, ranks) for a in _core.algorithms() if collective in a.collectives]
    built.append(_cuda.pull(collective, ranks))
    if collective == "all_reduce":
        built.append(_cuda.pull_two_shot(ranks))
    return built


def exact(
    rng: np.random.Generator, program: Any, dtype: str, op: str, sizes: list[int]
) -> tuple[Arrays, list[dict[int, bytes]]]:
    """What ranks start with, encoded, and the bytes that they must end with."""
    where = (program.collective, program.ranks, program.root)
    values = [
        {b: elements.values(rng, dtype, op, rank, n) for b, n in enumerate(sizes) if starts(*where, rank, b)}
        for rank in range(program.ranks)
    ]
    whole = {
        b: elements.encode(dtype, elements.combine(dtype, op, [held[b] for held in values if b in held])).tobytes()
        for b in range(len(sizes))
    }
    inputs = [{b: elements.encode(dtype, v) for b, v in held.items()} for held in values]
    return inputs, [{b: whole[b] for b in whole if ends(*where, rank, b)} for rank in range(program.ranks)]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_algorithm(collective: str, ranks: int) -> None:
    rng = generator("gpu programs", collective, ranks)
    group = VirtualRanks(ranks, slot_bytes=16384, line_bytes=4096)
    for program in programs(collective, ranks):
        for protocol in _cuda.PROTOCOLS:
            for count in (0, 1, 1003, 300_000):
                sizes = even_sizes(collective, ranks, count)
                inputs, wanted = exact(rng, program, "float32", "sum", sizes)
                call = group.prepare(program, "float32", "sum", sizes, inputs, protocol=protocol)
                call.launch()
                group.finish()
                for rank in range(ranks):
                    assert call.outputs(rank) == wanted[rank], (program.name, protocol, count, rank)


@pytest.mark.parametrize(("dtype", "op"), PAIRS)
def test_every_element_and_operator(dtype: str, op: str) -> None:
    rng = generator("gpu elements", dtype, op)
    group = VirtualRanks(4, slot_bytes=16384, line_bytes=4096)
    for program in (_core.build("ring", "all_reduce", 4), _cuda.pull_two_shot(4)):
        for protocol in _cuda.PROTOCOLS:
            sizes = [4099]
            inputs, wanted = exact(rng, program, dtype, op, sizes)
            call = group.prepare(program, dtype, op, sizes, inputs, protocol=protocol)
            call.launch()
            group.finish()
            for rank in range(4):
                assert call.outputs(rank) == wanted[rank], (program.name, protocol, rank)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_random_and_fused_programs_share_few_blocks(ranks: int) -> None:
    """Inexact sums: the bits are those of the CPU's kernels in the same order, at every rank and every time."""
    rng = generator("gpu random", ranks)
    group = VirtualRanks(ranks, slot_bytes=4096, line_bytes=2048)
    for turn in range(12):
        columns = fused_ring(rng, ranks) if turn % 2 else random_program(rng, ranks)
        program = _core.Program(**columns)
        count = int(rng.choice([1, 29, 1000, 5003]))
        inputs = [{0: rng.standard_normal(count).astype(np.float32)} for _ in range(ranks)]
        results = []
        for blocks, protocol in ((1, "simple"), (2, "ll"), (0, "ll128")):
            call = group.prepare(program, "float32", "sum", [count], inputs, blocks=blocks, protocol=protocol)
            call.launch()
            group.finish()
            results.append([call.outputs(rank)[0] for rank in range(ranks)])
        assert results[0] == results[1] == results[2], columns["name"]
        if turn % 2:
            assert len(set(results[0])) == 1, "all_reduce gives every rank the same bits"


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_copy_engine_moves_the_same_bytes(ranks: int) -> None:
    if float(_cuda.describe(0)["architecture"]) < 9.0:
        pytest.skip("bulk copies need Hopper or later (sm_90)")
    rng = generator("gpu bulk", ranks)
    group = VirtualRanks(ranks)
    for collective in ("all_reduce", "all_gather", "all_to_all", "broadcast"):
        for program in programs(collective, ranks):
            for count in (1003, 300_000):
                sizes = even_sizes(collective, ranks, count)
                inputs, wanted = exact(rng, program, "float32", "sum", sizes)
                call = group.prepare(program, "float32", "sum", sizes, inputs, bulk=True)
                call.launch()
                group.finish()
                for rank in range(ranks):
                    assert call.outputs(rank) == wanted[rank], (program.name, count, rank)


def test_a_captured_graph_is_replayed() -> None:
    rng = generator("gpu graph")
    ranks = 4
    group = VirtualRanks(ranks)
    for program in (_core.build("ring", "all_reduce", ranks), _cuda.pull_two_shot(ranks)):
        sizes = [10_007]
        inputs, wanted = exact(rng, program, "int32", "sum", sizes)
        call = group.prepare(program, "int32", "sum", sizes, inputs)
        first, *others = group.streams
        first.begin_capture()
        for other in others:
            other.wait_for(first)
        call.launch()
        call.launch()
        for other in others:
            first.wait_for(other)
        graph = first.end_capture()
        for _ in range(10):
            graph.launch(first)
        group.finish()
        call.launch()  # counters and flags are as a launch outside of the graph needs them
        group.finish()
        for rank in range(ranks):
            assert call.outputs(rank) == wanted[rank], program.name


def test_who_never_comes_is_named() -> None:
    group = VirtualRanks(2)
    program = _core.build("ring", "all_reduce", 2)
    inputs: Arrays = [{0: np.zeros(64, np.float32)} for _ in range(2)]
    call = group.prepare(program, "float32", "sum", [64], inputs)
    group.executors[0].set_timeout(0.2)
    group.executors[0].launch(call.plans[0], call.pointers(0), group.streams[0].handle)
    group.streams[0].synchronize()
    trouble = group.executors[0].trouble()
    assert trouble is not None
    assert (trouble["kind"], trouble["peer"]) == ("timed out", 1)


def test_abort_ends_a_launch() -> None:
    group = VirtualRanks(2)
    program = _core.build("ring", "all_reduce", 2)
    inputs: Arrays = [{0: np.zeros(64, np.float32)} for _ in range(2)]
    call = group.prepare(program, "float32", "sum", [64], inputs)
    group.executors[0].set_timeout(0.0)
    group.executors[0].launch(call.plans[0], call.pointers(0), group.streams[0].handle)
    group.executors[0].abort()
    group.streams[0].synchronize()
    trouble = group.executors[0].trouble()
    assert trouble is not None
    assert trouble["kind"] == "aborted"
