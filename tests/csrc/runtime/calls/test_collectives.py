"""Every collective x algorithm x rank count x dtype x op x count, in place and not, against NumPy, bit by bit.

Values are such that every order of summing gives the same bits, so equality with NumPy is equality between ranks. Only
`test_inexact_sums_are_equal_on_all_ranks` sums what rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.csrc.program_interpreter import blocks_of
from tests.csrc.runtime.cases import (
    ALGORITHMS,
    COLLECTIVES,
    REDUCING,
    ROOTED,
    Call,
    Case,
    even_case,
    generator,
    run_cases,
)
from tests.csrc.runtime.elements import EIGHTH, PAIRS
from tests.csrc.runtime.harness import Rank, run_as_processes, run_as_threads

COUNTS = (0, 1, 2, 3, 7, 31, 64, 257, 1000, 4099)
LARGE = 1_000_003
SMALL_SLOTS = {"SYNTONY_SLOT_BYTES": "4096"}
LAYOUTS = {"2x2": "aabb", "3+1": "aaab", "2+2+1": "aabbc", "interleaved": "abab", "four hosts": "abcd"}
# Averages of what has one; float8 is left out because it cannot hold the values that make averages exact.
AVERAGED = [dtype for dtype, op in PAIRS if op == "sum" and dtype not in EIGHTH and dtype != "bool"]
WEIGHTED = ("float16", "bfloat16", "float32", "float64", *EIGHTH)


def drawn(
    rng: np.random.Generator, collective: str, algorithm: str, ranks: int, pair: tuple[str, str], count: int
) -> Case:
    dtype, op = pair
    return even_case(
        collective,
        ranks,
        count,
        algorithm=algorithm,
        dtype=dtype,
        op=op if collective in REDUCING else "sum",
        root=int(rng.integers(ranks)) if collective in ROOTED else 0,
        in_place=bool(rng.integers(2)),
        seed=int(rng.integers(1 << 30)),
    )


def sample(rng: np.random.Generator, ranks: int, of_each: int, counts: tuple[int, ...] = COUNTS) -> Iterator[Case]:
    """`of_each` draws of dtype, op and count for every collective and algorithm."""
    for collective in COLLECTIVES:
        for algorithm, _ in itertools.product(ALGORITHMS[collective], range(of_each)):
            pair = PAIRS[rng.integers(len(PAIRS))]
            yield drawn(rng, collective, algorithm, ranks, pair, int(rng.choice(counts)))


def body(rank: Rank, cases: list[Case]) -> None:
    group = rank.join()
    run_cases(group, cases)
    group.shutdown()


@pytest.mark.parametrize(
    ("ranks", "of_each"),
    [(ranks, 8 if ranks < 6 else 2) for ranks in (1, 2, 3, 5, 8)]
    + [pytest.param(ranks, 8, marks=pytest.mark.sweep) for ranks in (4, *range(6, 10))],
)
def test_a_sample_of_everything(ranks: int, of_each: int) -> None:
    """Every rank computes what all give it, so the time grows as their square."""
    run_as_processes(body, ranks, list(sample(generator("sample", ranks), ranks, of_each)))


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("share_process", [False, True])
def test_ranks_as_threads(ranks: int, share_process: bool) -> None:
    cases = list(sample(generator("threads", ranks, share_process), ranks, 2))
    run_as_threads(body, ranks, cases, share_process=share_process)


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_every_dtype_and_op(algorithm: str) -> None:
    rng = generator("dtypes", algorithm)
    cases = [drawn(rng, "all_reduce", algorithm, 4, pair, 37) for pair in PAIRS]
    run_as_threads(body, 4, cases)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_large_odd_counts(collective: str) -> None:
    rng = generator("large", collective)
    pairs = [("float32", "sum"), ("bfloat16", "sum"), ("int8", "max")]
    count = LARGE if blocks_of(collective, 3) == 1 else LARGE // 3
    algorithms = ALGORITHMS[collective]
    cases = [drawn(rng, collective, a, 3, pairs[i % len(pairs)], count) for i, a in enumerate(algorithms)]
    run_as_threads(body, 3, cases)


@pytest.mark.parametrize("ranks", [3, 5])
def test_small_slots_make_many_slices_and_full_fifos(ranks: int) -> None:
    rng = generator("slots", ranks)
    cases = list(sample(rng, ranks, 1, (4099, 20_011)))
    run_as_processes(body, ranks, cases, environment=SMALL_SLOTS)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_several_hosts(layout: str) -> None:
    """Emulated: ranks of one letter share memory, the others talk TCP."""
    hosts = LAYOUTS[layout]
    cases = list(sample(generator("hosts", layout), len(hosts), 1, (*COUNTS, 50_021)))
    run_as_processes(body, len(hosts), cases, hosts=hosts, environment=SMALL_SLOTS if layout == "2x2" else None)


def uneven(rng: np.random.Generator, collective: str, algorithm: str, ranks: int) -> Case:
    sizes = tuple(int(s) for s in rng.choice([0, 0, 1, 3, 50, 1021, 9001], blocks_of(collective, ranks)))
    return Case(
        collective,
        algorithm,
        sizes=sizes,
        even=False,
        dtype=str(rng.choice(["int32", "bfloat16", "complex64", "uint8"])),
        root=int(rng.integers(ranks)) if collective in ROOTED else 0,
        in_place=bool(rng.integers(2)),
        seed=int(rng.integers(1 << 30)),
    )


def test_chunks_that_leave_no_cache_to_others() -> None:
    """They are written past it, in whole lines but for their ends."""
    case = even_case("all_gather", 2, (8 << 20) + 5, algorithm="direct", dtype="uint8", seed=8)
    run_as_processes(body, 2, [case], hosts="ab")


@pytest.mark.parametrize(("ranks", "hosts"), [(1, ""), (2, ""), (5, ""), (5, "aabbc")])
def test_uneven_blocks(ranks: int, hosts: str) -> None:
    rng = generator("uneven", ranks, hosts)
    cases = [
        uneven(rng, collective, algorithm, ranks)
        for collective in ("all_gather", "reduce_scatter", "gather", "scatter")
        for algorithm in ALGORITHMS[collective]
        for _ in range(4)
    ]
    cases += [uneven(rng, "all_to_all", "direct", ranks) for _ in range(8)]
    run_as_processes(body, ranks, cases, hosts=hosts, environment=SMALL_SLOTS)


def own_sizes_only(rank: Rank, case: Case) -> None:
    """all_to_all_v where a rank knows the sizes of its own blocks and no others."""
    group = rank.join()
    call = Call(case, group.rank, group.size)
    known = [n if group.rank in divmod(b, group.size) else 0 for b, n in enumerate(case.sizes)]
    group.run("all_to_all", case.dtype, known, call.inputs, call.outputs, algorithm=case.algorithm, even=False)
    call.check()
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "aabc"])
@pytest.mark.parametrize("algorithm", ["direct", "auto"])
def test_all_to_all_v_needs_only_ones_own_sizes(hosts: str, algorithm: str) -> None:
    case = uneven(generator("own sizes", hosts), "all_to_all", algorithm, 4)
    run_as_processes(own_sizes_only, 4, case, hosts=hosts)


def scaled(rng: np.random.Generator, ranks: int, algorithms: dict[str, Any]) -> Iterator[Case]:
    for collective in REDUCING:
        for algorithm in algorithms[collective]:
            for fields in ({"average": True, "dtype": str(rng.choice(AVERAGED))},
                           {"factor": 0.5, "dtype": str(rng.choice(WEIGHTED))}):  # fmt: skip
                for in_place in (False, True):
                    yield even_case(
                        collective,
                        ranks,
                        int(rng.choice([1, 33, 1000])),
                        algorithm=algorithm,
                        in_place=in_place,
                        seed=int(rng.integers(1 << 30)),
                        **fields,
                    )


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_averages_and_premultiplied_sums(ranks: int) -> None:
    run_as_threads(body, ranks, list(scaled(generator("scaled", ranks), ranks, ALGORITHMS)))


def rounding_sums(rank: Rank, algorithms: tuple[str, ...]) -> list[str]:
    group = rank.join()
    digests = []
    for algorithm, dtype in itertools.product(algorithms, ("float32", "float16", "bfloat16")):
        rng = np.random.default_rng((rank.rank, len(digests)))
        floats = (rng.standard_normal(10_007) * 10.0 ** rng.integers(-3, 3, 10_007)).astype(np.float32)
        raw = floats.astype(np.float16) if dtype == "float16" else floats
        data = raw.view(np.uint8).copy()
        if dtype == "bfloat16":
            data = (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        repeated = []
        for _ in range(2):
            out = np.zeros_like(data)
            group.run("all_reduce", dtype, [10_007], {0: data}, {0: out}, algorithm=algorithm)
            repeated.append(out.tobytes())
        assert repeated[0] == repeated[1], f"{algorithm} on {dtype} differs from run to run"
        digests.append(f"{algorithm} {dtype} {hash_of(repeated[0])}")
    group.shutdown()
    return digests


def hash_of(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("ranks", "hosts"), [(3, ""), (8, ""), (5, "aabbc")])
def test_inexact_sums_are_equal_on_all_ranks(ranks: int, hosts: str) -> None:
    digests = run_as_processes(rounding_sums, ranks, ALGORITHMS["all_reduce"], hosts=hosts)
    assert all(own == digests[0] for own in digests)


def test_unmeant_reductions_are_refused() -> None:
    def refused(rank: Rank) -> None:
        group = rank.join()
        data = np.zeros(16, np.uint8)
        with pytest.raises(ValueError, match=r"max of complex64 has no meaning"):
            group.run("all_reduce", "complex64", [2], {0: data}, {0: data}, op="max")
        with pytest.raises(ValueError, match=r"root rank 2.*has 2 ranks"):
            group.run("broadcast", "uint8", [16], {0: data}, {0: data}, root=2)
        with pytest.raises(ValueError, match=r"takes 2 blocks, not 1"):
            group.run("all_gather", "uint8", [16], {0: data}, {0: data})
        with pytest.raises(ValueError, match=r"unknown algorithm rong: available are auto, shared, in_network, direct"):
            group.run("all_reduce", "uint8", [16], {0: data}, {0: data}, algorithm="rong")
        group.barrier()  # the group goes on
        group.shutdown()

    run_as_threads(refused, 2)


@pytest.mark.soak
@pytest.mark.parametrize("ranks", range(1, 10))
def test_the_full_matrix(ranks: int) -> None:
    """Every collective, algorithm, dtype and op, both memory forms; the count is drawn."""
    rng = generator("full", ranks)
    cases = [
        drawn(rng, collective, algorithm, ranks, pair, int(rng.choice(COUNTS)))
        for collective in COLLECTIVES
        for algorithm in ALGORITHMS[collective]
        for pair in PAIRS
        for _ in range(2)
    ]
    cases += list(sample(rng, ranks, 8)) + list(sample(rng, ranks, 1, (LARGE,) if ranks < 5 else (100_003,)))
    run_as_processes(body, ranks, cases, deadline=1200.0)


@pytest.mark.soak
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_full_matrix_over_hosts(layout: str) -> None:
    hosts = LAYOUTS[layout]
    run_as_processes(
        body, len(hosts), list(sample(generator("full", layout), len(hosts), 60)), hosts=hosts, deadline=1200.0
    )
