"""Schedules: values, symmetric storage, and what large sizes cost."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.checker import check_schedule
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import round_bandwidth
from syntony.synth.model.schedule import Generator, Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder, Values
from syntony.synth.symmetry.groups import SymmetryError, chunk_permutation, expand, fold
from syntony.synth.symmetry.reversal import summed
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.parse import parse
from tests.sampled import examples
from tests.synth.networks import networks, replay, round_unit


def shifted_ring(ranks: int) -> Schedule:
    """all_gather round a ring, as one representative per step and the rotation."""
    topology = parse(f"ring:{ranks}")
    collective = Collective.make("all_gather", ranks)
    link = topology.links_between
    rows = []
    for step in range(ranks - 1):
        src, dst = step, (step + 1) % ranks
        rows.append(Transfer(0, 0, src, dst, step, (link(src, dst)[0].id,)))
    turn = tuple((node + 1) % ranks for node in range(ranks))
    return Schedule(
        topology,
        collective,
        ValueBuilder.of_chunks(collective).build(),
        Transfers.of(rows),
        np.ones(ranks - 1),
        symmetry=(Generator(turn, turn),),
    )


def rows_of(schedule: Schedule) -> set[Transfer]:
    rows = schedule.transfers.rows()
    assert len(set(rows)) == len(rows)
    return set(rows)


@pytest.mark.parametrize("ranks", [3, 4, 7])
def test_representatives_expand_to_the_whole(ranks: int) -> None:
    schedule = shifted_ring(ranks)
    whole = expand(schedule)
    assert len(schedule.transfers) == ranks - 1
    assert len(whole.transfers) == ranks * (ranks - 1)
    assert not whole.symmetry
    replay(schedule)


def test_folding_is_the_inverse_of_expanding() -> None:
    whole = expand(shifted_ring(5))
    folded = fold(whole)
    assert folded.symmetry
    assert len(folded.transfers) < len(whole.transfers)
    assert rows_of(expand(folded)) == rows_of(whole)


def test_folding_keeps_only_true_symmetries() -> None:
    whole = expand(shifted_ring(5))
    rows = whole.transfers.rows()
    broken = replace(whole, transfers=Transfers.of(rows[:-1]))
    assert rows_of(expand(fold(broken))) == rows_of(broken)
    assert not fold(broken).symmetry


def test_sums_expand_with_their_association() -> None:
    """Backwards on the reversed ring, each rank's chain of sums is the rotation of rank 0's."""
    forwards = shifted_ring(4)
    topology = forwards.topology.reversed()
    whole = summed(forwards, topology)
    replay(whole)
    mine = [row for row in whole.transfers.rows() if whole.values.chunk[row.value] == 0]
    turn = forwards.symmetry
    folded = replace(whole, transfers=Transfers.of(mine), symmetry=turn)
    assert rows_of(expand(folded)) == rows_of(whole)
    replay(folded)


def test_generators_that_do_not_fit_are_refused() -> None:
    schedule = shifted_ring(4)
    turn = schedule.symmetry[0].nodes
    for generator, sentence in (
        (Generator(turn, (0, 1, 2, 3)), "maps chunk 0 to 0, which belongs to other ranks"),
        (Generator((0, 0, 1, 2), turn), "not a permutation of the 4 nodes"),
        (Generator(turn, (0, 1)), "not a permutation of the 4 chunks"),
    ):
        with pytest.raises(SymmetryError, match=sentence):
            expand(replace(schedule, symmetry=(generator,)))


def test_chunks_follow_their_ranks() -> None:
    collective = Collective.make("all_gather", 3, 2)
    assert chunk_permutation(collective, (1, 2, 0)) == (2, 3, 4, 5, 0, 1)
    uneven = Collective.make("all_gather", 3, block_sizes=(1, 2, 1))
    assert chunk_permutation(uneven, (1, 2, 0)) is None
    assert chunk_permutation(Collective.make("broadcast", 3, root=1), (1, 2, 0)) is None
    assert chunk_permutation(Collective.make("all_to_all", 2), (1, 0)) == (3, 2, 1, 0)


def test_values_name_what_they_sum() -> None:
    builder = ValueBuilder()
    a, b, c = (builder.contribution(0, rank) for rank in range(3))
    left = builder.sum((builder.sum((a, b)), c))
    right = builder.sum((a, builder.sum((b, c))))
    assert left != right
    assert left == builder.sum((builder.sum((a, b)), c))
    values = builder.build()
    assert values.contributions(left) == values.contributions(right) == {0, 1, 2}
    assert [bool(values.operands(value)) for value in (a, left)] == [False, True]
    other = builder.contribution(1, 0)
    with pytest.raises(ValueError, match="one chunk"):
        builder.sum((a, other))


def test_columns_cannot_be_changed() -> None:
    schedule = shifted_ring(3)
    with pytest.raises(ValueError, match="read-only"):
        schedule.transfers.step[0] = 5


def test_seconds_per_byte_with_and_without_barriers() -> None:
    schedule = shifted_ring(4)
    assert seconds_per_byte(schedule) == 3 * Fraction(1, 4) / 10**9
    pipelined = replace(schedule, rounds=np.zeros(0))
    assert seconds_per_byte(pipelined) == Fraction(3, 4) / 10**9


@given(networks())
def test_round_bandwidth_is_the_greatest_common_divisor(topology) -> None:  # type: ignore[no-untyped-def]
    if topology.links:
        assert round_bandwidth(topology) == Fraction(*round_unit(topology))


@examples(20)
@given(st.sampled_from(["ring:4", "torus:3x3", "full:4", "dgx1", "dgx-a100:1"]), st.integers(1, 2))
def test_fold_and_expand_round_trip(name: str, chunks: int) -> None:
    topology = parse(name)
    schedule = greedy(topology, Collective.make("all_gather", topology.ranks, chunks), 1 << 20, Budget())
    whole = expand(schedule)
    assert rows_of(expand(fold(whole))) == rows_of(whole)


def test_values_named_twice_are_expanded_and_folded_as_one() -> None:
    """A table may list a value twice; what comes after it keeps its meaning."""
    ring = parse("ring:4")
    turn = (1, 2, 3, 0)
    twice = Values(np.array([0, 0, 1]), np.array([0, 0, 1]), np.zeros(4, np.int64), np.zeros(0, np.int64))
    rows = [
        Transfer(value, value, src, dst, step, (ring.links_between(src, dst)[0].id,))
        for value, src, dst, step in ((1, 0, 1, 0), (0, 1, 2, 1), (2, 3, 0, 2))
    ]
    collective = Collective.make("all_gather", 4)
    listed = Schedule(ring, collective, twice, Transfers.of(rows), symmetry=(Generator(turn, turn),))
    whole = expand(listed)
    moved = whole.transfers
    sent = zip(whole.values.chunk[moved.value].tolist(), moved.src.tolist(), moved.step.tolist(), strict=True)
    assert set(sent) == {(rank, (rank + step) % 4, step) for rank in range(4) for step in range(3)}
    assert check_schedule(whole)
    assert fold(whole).symmetry
