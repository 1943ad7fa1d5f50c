"""Every builder x collective x rank count, run by an independent interpreter and compared with NumPy."""

from __future__ import annotations

import itertools
import math
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from tests.csrc.program_interpreter import blocks_of, expected_outputs, random_inputs, run

ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
BUILDERS = [(a.name, collective) for a in _core.algorithms() for collective in a.collectives]
# Every run takes few ranks, a power of two and two primes among them; the proofs (test_builders_proven.py) go further.
RANKS = [n if n in (1, 2, 3, 5, 8) else pytest.param(n, marks=pytest.mark.sweep) for n in range(1, 10)]
# Beyond nine ranks: powers of two, their neighbours, primes. Relayed all_to_all stops at 31 for time.
LARGE = [
    (name, collective, ranks)
    for (name, collective), ranks in itertools.product(BUILDERS, (16, 17, 31, 64))
    if collective != "all_to_all" or ranks < 64
]


def generator(*key: object) -> np.random.Generator:
    """A seed per case, the same in every run; printed so that a failure names it."""
    seed = zlib.crc32(repr(key).encode())
    print(f"seed {seed} for {key}")
    return np.random.default_rng(seed)


def uneven_sizes(collective: str, ranks: int, rng: np.random.Generator) -> list[int]:
    """Element counts of the blocks: odd, uneven, some of them zero."""
    blocks = blocks_of(collective, ranks)
    if blocks == 1:
        return [int(rng.integers(1, 4 * ranks + 2))]
    return rng.integers(0, 8, blocks).tolist()


def check(program: Any, rng: np.random.Generator, *, slice_elements: int, in_place: bool) -> None:
    columns = program.columns()
    sizes = uneven_sizes(columns["collective"], columns["ranks"], rng)
    inputs = random_inputs(columns, sizes, rng)
    outputs = run(columns, sizes, inputs, rng, in_place=in_place, slice_elements=slice_elements)
    for rank, (got, want) in enumerate(zip(outputs, expected_outputs(columns, sizes, inputs), strict=True)):
        assert got.keys() == want.keys()
        for block, values in want.items():
            np.testing.assert_array_equal(got[block], values, f"rank {rank}, block {block}, sizes {sizes}")


def roots(collective: str, ranks: int) -> range:
    if collective not in ROOTED:
        return range(1)
    return range(ranks) if ranks <= 5 else range(ranks - 1, ranks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("name", "collective"), BUILDERS)
def test_builder_computes_its_collective(name: str, collective: str, ranks: int) -> None:
    for root in roots(collective, ranks):
        program = _core.build(name, collective, ranks, root)
        assert (program.collective, program.ranks, program.root) == (collective, ranks, root)
        assert program.fifo_depth == 1
        assert program.in_place
        assert program.out_of_place
        rng = generator(name, collective, ranks, root)
        check(program, rng, slice_elements=2, in_place=False)
        check(program, rng, slice_elements=3, in_place=True)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "collective", "ranks"), LARGE)
def test_builder_at_larger_rank_counts(name: str, collective: str, ranks: int) -> None:
    rng = generator(name, collective, ranks)
    program = _core.build(name, collective, ranks, 3 if collective in ROOTED else 0)
    check(program, rng, slice_elements=1 << 20, in_place=bool(ranks % 2))


@pytest.mark.parametrize(
    ("name", "collective"), [pair for pair in BUILDERS if pair[0] in ("hierarchical", "two_level")]
)
@pytest.mark.parametrize(
    "boxes",
    [
        [[0, 1, 2, 3, 4, 5]],
        [[0], [1], [2], [3], [4], [5]],
        [[5, 0], [3], [1, 4, 2]],
        [[0, 1, 2, 3, 4], [5]],
        [[0, 2, 4], [1, 3, 5]],
    ],
    ids=str,
)
def test_two_levels_take_any_boxes(boxes: list[list[int]], name: str, collective: str) -> None:
    for root in roots(collective, 6):
        program = _core.build(name, collective, 6, root, boxes)
        rng = generator(boxes, name, collective, root)
        check(program, rng, slice_elements=2, in_place=bool(root % 2))
        check(program, rng, slice_elements=3, in_place=not root % 2)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 9])
@pytest.mark.parametrize("name", [name for name, collective in BUILDERS if collective == "all_reduce"])
def test_all_reduce_is_bitwise_equal_on_all_ranks_and_in_every_order(name: str, ranks: int) -> None:
    columns = _core.build(name, "all_reduce", ranks).columns()
    rng = generator(name, ranks)
    sizes = [5 * ranks + 3]
    inputs = random_inputs(columns, sizes, rng, floats=True)
    first = run(columns, sizes, inputs, rng)[0][0]
    for in_place in (False, True):
        for outputs in run(columns, sizes, inputs, rng, in_place=in_place, slice_elements=2):
            assert outputs[0].tobytes() == first.tobytes()
    np.testing.assert_allclose(first, np.sum([held[0] for held in inputs], axis=0, dtype=np.float64), rtol=1e-2)


def rounds_more_than_once(columns: dict[str, Any]) -> bool:
    """Whether a sum feeds a sum: then there are more reductions than finished sums."""
    reductions = np.count_nonzero(np.isin(columns["instructions"][:, 2], (2, 5)))
    ranks = columns["ranks"]
    sums_per_chunk = 1
    if columns["collective"] == "all_reduce":  # where several ranks finish the same sum
        sums_per_chunk = {"direct": ranks, "recursive_doubling": 1 << ranks.bit_length() - 1}.get(columns["name"], 1)
    return bool(reductions > len(columns["chunks"]) * sums_per_chunk)


@pytest.mark.parametrize(("name", "collective"), [pair for pair in BUILDERS if pair[1] in REDUCING])
def test_rounds_per_hop_is_stated_truthfully(name: str, collective: str) -> None:
    for ranks in range(1, 10):
        program = _core.build(name, collective, ranks)
        assert program.rounds_per_hop == rounds_more_than_once(program.columns()), ranks
        if name in ("direct", "two_shot"):
            assert not program.rounds_per_hop


def test_ring_all_reduce_moves_the_least_and_copies_nothing() -> None:
    for ranks in range(2, 10):
        instructions = _core.build("ring", "all_reduce", ranks).columns()["instructions"]
        opcodes = instructions[:, 2]
        assert np.count_nonzero(opcodes == 3) == 2 * (ranks - 1) * ranks  # per rank 2 (n-1) chunks of 1/n
        assert np.count_nonzero(opcodes == 1) == 0
        first = [instructions[(instructions[:, 0] == rank) & (opcodes == 3)][0] for rank in range(ranks)]
        assert all(row[5] == 0 for row in first), "the first hop sends straight from the input"


@pytest.mark.parametrize("name", ["ring", "two_shot", "hierarchical"])
def test_phases_of_all_reduce_have_lanes_of_their_own(name: str) -> None:
    """So that slice s+1 is being summed while the sums of slice s go round."""
    instructions = _core.build(name, "all_reduce", 6).columns()["instructions"]
    sends = instructions[instructions[:, 2] == 3]
    for agent in range(6):
        own = sends[sends[:, 0] == agent]
        before, after = own[own[:, 10] == 0], own[own[:, 10] == 1]
        assert len(before)
        assert len(after)
        assert not set(before[:, 1]) & set(after[:, 1]), "a lane of both phases"


@pytest.mark.parametrize(("name", "collective"), BUILDERS)
def test_programs_are_stable_and_told_apart_by_hash(name: str, collective: str) -> None:
    hashes = {_core.build(name, collective, ranks).hash for ranks in range(1, 12)}
    assert len(hashes) == 11
    assert _core.build(name, collective, 7).hash == _core.build(name, collective, 7).hash


def test_only_relays_need_the_size_matrix() -> None:
    assert _core.build("ring", "all_to_all", 4).needs_size_matrix
    assert _core.build("hierarchical", "scatter", 9, 4).needs_size_matrix
    assert not _core.build("direct", "all_to_all", 4).needs_size_matrix
    assert not _core.build("ring", "reduce_scatter", 4).needs_size_matrix


def hops(columns: dict[str, Any]) -> int:
    """Messages in the longest chain in which each must wait for the one before, at one instruction's time each."""
    fifos: dict[tuple[int, int, int], list[int]] = {}
    depth: dict[tuple[int, int, int], int] = {}
    lanes: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    dependencies, at = columns["dependencies"].tolist(), 0
    for row in columns["instructions"].tolist():
        lanes.setdefault((row[0], row[1]), []).append((*row, at))
        at += row[12]
    waiting = dict.fromkeys(lanes, 0)
    moved = True
    while moved:
        moved = False
        for (rank, lane), rows in lanes.items():
            while waiting[rank, lane] < len(rows):
                position = waiting[rank, lane]
                row = rows[position]
                before = [(rank, *on) for on in dependencies[row[-1] : row[-1] + row[12]]]
                before += [(rank, lane, position - 1)] if position else []
                source = (row[8], rank, row[10])
                if any(one not in depth for one in before) or (row[2] in (4, 5) and not fifos.get(source)):
                    break
                here = max((depth[one] for one in before), default=0)
                if row[2] in (4, 5):
                    here = max(here, fifos[source].pop(0) + 1)
                if row[2] == 3:
                    fifos.setdefault((rank, row[9], row[10]), []).append(here)
                depth[rank, lane, position] = here
                waiting[rank, lane] += 1
                moved = True
    return max(depth.values())


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_butterflies_take_as_many_hops_as_the_papers_say(ranks: int) -> None:
    steps = ranks.bit_length() - 1
    assert hops(_core.build("recursive_doubling", "all_reduce", ranks).columns()) == steps
    for name in ("rabenseifner", "swing"):
        columns = _core.build(name, "all_reduce", ranks).columns()
        assert hops(columns) == 2 * steps
        sends = columns["instructions"][columns["instructions"][:, 2] == 3]
        assert sends[:, 7].sum() == 2 * ranks * (ranks - 1), "2 (n-1) chunks of 1/n by each rank"
        assert len(sends) == 2 * steps * ranks, "one message to each partner, there and back"
    for name, collective in (("bruck", "all_gather"), ("pat", "all_gather"), ("pat", "reduce_scatter")):
        columns = _core.build(name, collective, ranks).columns()
        assert hops(columns) == steps
        sends = columns["instructions"][columns["instructions"][:, 2] == 3]
        assert sends[:, 7].sum() == ranks * (ranks - 1)
    assert hops(_core.build("bruck", "all_to_all", ranks).columns()) == steps


def test_two_level_crosses_the_border_once() -> None:
    boxes = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    columns = _core.build("two_level", "all_reduce", 9, 0, boxes).columns()
    assert hops(columns) == 3
    assert hops(_core.build("hierarchical", "all_reduce", 9, 0, boxes).columns()) == 6


def test_partners_of_swing_are_near() -> None:
    """Distances 1, 1, 3, 5 on a ring of 16, where halving has 8, 4, 2, 1 (De Sensi et al., table 1)."""
    instructions = _core.build("swing", "all_reduce", 16).columns()["instructions"]
    sends = instructions[(instructions[:, 2] == 3) & (instructions[:, 10] == 0)]
    near = {min((row[9] - row[0]) % 16, (row[0] - row[9]) % 16) for row in sends.tolist()}
    assert near == {1, 3, 5}


def parents_in_both_trees(ranks: int) -> list[list[int]]:
    """Whom each rank sends its sums to, in a reduce to one more rank, which stands above both trees: `ranks`."""
    instructions = _core.build("dbt", "reduce", ranks + 1, ranks).columns()["instructions"]
    sends = instructions[instructions[:, 2] == 3]
    assert len(sends) == 2 * ranks
    parents = [[-1] * ranks, [-1] * ranks]
    for row in sends.tolist():
        parents[row[10]][row[0]] = row[9]
    return parents


@given(st.integers(1, 300))
def test_no_rank_is_an_inner_node_of_both_trees(ranks: int) -> None:
    inner = []
    for parent in parents_in_both_trees(ranks):
        assert parent.count(ranks) == 1
        assert max(parent.count(rank) for rank in range(ranks)) <= 2
        inner.append(set(parent) - {ranks})
        for rank in range(ranks):
            depth = 0
            while parent[rank] != ranks:
                rank, depth = parent[rank], depth + 1
                assert depth <= math.floor(math.log2(ranks)), "deeper than the drawing, or a circle"
    assert not inner[0] & inner[1]


@given(st.integers(1, 60))
def test_default_boxes_are_near_square(ranks: int) -> None:
    count = math.isqrt(ranks)  # their sizes differ by one at most
    boxes = [[rank for rank in range(ranks) if rank * count // ranks == box] for box in range(count)]
    for name in ("hierarchical", "two_level"):
        assert _core.build(name, "all_reduce", ranks) == _core.build(name, "all_reduce", ranks, 0, boxes)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("rung", "all_reduce", 2), "no algorithm 'rung'; there are direct, two_shot, pairwise, ring, dbt, rec"),
        (("ring", "all_reduced", 2), "no collective 'all_reduced'; there are all_reduce"),
        (("two_shot", "gather", 2), "'two_shot' has no gather; it has all_reduce"),
        (("ring", "broadcast", 4, 4), "root 4 is not one of the 4 ranks"),
        (("ring", "broadcast", 0), "at least 1 rank"),
        (("hierarchical", "gather", 3, 0, [[0, 1]]), "rank 2 is in no box"),
        (("hierarchical", "gather", 3, 0, [[0, 1], [1, 2]]), "box 1 names rank 1, which already has a box"),
        (("hierarchical", "gather", 3, 0, [[0, 1, 2], []]), "box 1 is empty"),
        (("hierarchical", "gather", 3, 0, [[0, 1, 2, 3]]), "box 0 names rank 3, but there are 3 ranks"),
    ],
)
def test_a_wrong_request_gets_a_sentence(arguments: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _core.build(*arguments)


@pytest.mark.parametrize("shares", [[0, 1], [3, 0, 5], [1, 0, 0, 0], [2, 7, 2, 0, 2, 1]], ids=str)
def test_two_shot_sums_as_much_as_shares_say(shares: list[int]) -> None:
    ranks = len(shares)
    program = _core.build("two_shot", "all_reduce", ranks, shares=shares)
    columns = program.columns()
    assert [weight for _, weight in columns["chunks"]] == [share for share in shares if share]
    assert not program.rounds_per_hop
    rng = generator(str(shares))
    check(program, rng, slice_elements=2, in_place=False)
    check(program, rng, slice_elements=3, in_place=True)


@given(rates=st.lists(st.one_of(st.just(0.0), st.floats(0.05, 4.0)), min_size=3, max_size=12).filter(any))
def test_shares_reach_the_bound(rates: list[float]) -> None:
    """What ranks send, over what they can, is no more than the bound; but for late ones, which are not in it."""
    shares = np.asarray(_core.shares_for(rates), float)
    ranks, there = len(rates), np.asarray([rate for rate in rates if rate])
    load = 1 + (ranks - 2) * shares / shares.sum()
    took = max(sent / rate for sent, rate in zip(load, rates, strict=True) if rate)
    late = ranks - len(there)
    bound = max(1 / there.min(), (2 * (ranks - 1) - late) / there.sum())
    assert took == pytest.approx(bound, rel=1e-3)


def test_shares_that_make_no_sense_are_refused() -> None:
    for wrong in ([], [0.0, 0.0], [1.0, -1.0], [1.0, math.inf], [math.nan]):
        with pytest.raises(ValueError, match="rates must be finite, none negative, and one of them at least above 0"):
            _core.shares_for(wrong)
    for shares in ([1, 1], [0, 0, 0]):
        with pytest.raises(ValueError, match="a share for each of the 3 ranks, and one of them above 0"):
            _core.build("two_shot", "all_reduce", 3, shares=shares)
