"""Simulation by representatives against the expanded schedule: equal times, equal loads, equal rates over time."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.forest import search as forest
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Generator, Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.representatives import representatives_of
from syntony.synth.simulation.result import Simulation
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.groups import chunk_permutation, fold
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples
from tests.synth.schedules import switch_reduce_scatter

ALPHA, RATE = 1e-6, 1e9


def ring_all_reduce(ranks: int) -> Schedule:
    """The ring in one orbit per step: chunk 0 goes round twice, the turns of the ring make the rest."""
    topology, collective = parse(f"ring:{ranks}"), Collective.make("all_reduce", ranks, ranks)
    values = ValueBuilder()
    value, rows = values.contribution(0, 0), []
    for step in range(2 * ranks - 2):
        src, dst = step % ranks, (step + 1) % ranks
        result = value if step >= ranks - 1 else values.sum([value, values.contribution(0, dst)])
        rows.append(Transfer(value, result, src, dst, step, (topology.links_between(src, dst)[0].id,)))
        value = result
    turn = tuple((rank + 1) % ranks for rank in range(ranks))
    return Schedule(topology, collective, values.build(), Transfers.of(rows), symmetry=(Generator(turn, turn),))


def two_leaves(ranks: int) -> tuple[Topology, tuple[int, ...]]:
    """Half of the ranks on each of two switches, joined by one thin cable; and a turn of the ranks through both."""
    wiring = Wiring("two leaves")
    nodes = [wiring.rank((float(rank), 0.0)) for rank in range(ranks)]
    leaves = [wiring.switch(f"leaf{leaf}", (float(leaf), 1.0)) for leaf in range(2)]
    for node in nodes:
        wiring.cable(node, leaves[node % 2], Fraction(10**9), ALPHA)
    wiring.cable(leaves[0], leaves[1], Fraction(7 * 10**8), 3 * ALPHA)
    turn = tuple((rank + 1) % ranks for rank in range(ranks))
    return wiring.topology(), (*turn, ranks + 1, ranks)


def route(topology: Topology, src: int, dst: int) -> tuple[int, ...]:
    """Direct, or through switches."""
    if direct := topology.links_between(src, dst):
        return (direct[0].id,)
    for first in topology.links_from(src):
        if topology.nodes[first.dst].kind == "switch":
            for last in topology.links_from(first.dst):
                if last.dst == dst:
                    return (first.id, last.id)
                if topology.nodes[last.dst].kind == "switch":
                    for end in topology.links_between(last.dst, dst):
                        return (first.id, last.id, end.id)
    raise AssertionError((src, dst))


@st.composite
def symmetric_schedules(draw: st.DrawFn) -> Schedule:
    """Chains and trees of one block, in some order of ranks, with gaps in the steps; a turn makes the other blocks."""
    ranks = draw(st.sampled_from([4, 6]))
    topology, nodes = two_leaves(ranks)
    other = draw(st.sampled_from(["full", "star", "two leaves"]))
    if other != "two leaves":
        topology = parse(f"{other}:{ranks}")
        nodes = (*((rank + 1) % ranks for rank in range(ranks)), *range(ranks, len(topology.nodes)))
    kind = draw(st.sampled_from(["all_reduce", "all_gather", "all_to_all"]))
    collective = Collective.make(kind, ranks, ranks if kind == "all_reduce" else 1)
    chunks = nodes[:ranks] if kind == "all_reduce" else chunk_permutation(collective, nodes)
    assert chunks is not None
    values, rows = ValueBuilder(), []
    order = draw(st.permutations(range(ranks)))
    gaps = st.integers(1, 3)
    if kind == "all_to_all":
        for dst in range(1, ranks):
            value, step, at = values.contribution(dst, 0), draw(st.integers(0, 3)), 0
            for hop in [*draw(st.lists(st.sampled_from(order), max_size=1)), dst]:
                if hop not in (0, at) and (at != dst):
                    rows.append(Transfer(value, value, at, hop, step, route(topology, at, hop)))
                    at, step = hop, step + draw(gaps)
    else:
        step, root = 0, 0
        value = values.contribution(0, 0)
        if kind == "all_reduce":
            value = values.contribution(0, order[0])
            for src, dst in pairwise(order):
                total = values.sum([value, values.contribution(0, dst)])
                rows.append(Transfer(value, total, src, dst, step, route(topology, src, dst)))
                value, step, root = total, step + draw(gaps), dst
        held = {root: step}
        for dst in order:
            if dst not in held:
                src = draw(st.sampled_from(sorted(held)))
                rows.append(Transfer(value, value, src, dst, held[src], route(topology, src, dst)))
                held[dst] = held[src] + draw(gaps)
    symmetry = (Generator(nodes, chunks),)
    return Schedule(topology, collective, values.build(), Transfers.of(rows), symmetry=symmetry)


def assert_alike(found: Simulation, whole: Simulation) -> None:
    """Everything that does not name messages."""
    assert found.seconds == pytest.approx(whole.seconds, rel=1e-9)
    assert found.busy == pytest.approx(whole.busy, rel=1e-9)
    assert found.rates is not None
    assert whole.rates is not None
    capacity = np.asarray([float(link.bandwidth) for link in found.topology.links])
    means = found.rates.means(found.seconds, 11, capacity)
    assert means == pytest.approx(whole.rates.means(whole.seconds, 11, capacity), rel=1e-6, abs=1e-9)
    assert means.mean(axis=1) * found.seconds == pytest.approx(found.busy, rel=1e-6, abs=1e-12)


@examples(150)
@given(schedule=symmetric_schedules(), slice_bytes=st.sampled_from([None, None, 100_000]))
def test_representatives_are_exact(schedule: Schedule, slice_bytes: int | None) -> None:
    size = 1 << 20
    whole = simulate(schedule, size, slice_bytes, every_message=True, timeline=True)
    found = simulate(schedule, size, slice_bytes, timeline=True)
    by_representatives = representatives_of(schedule) is not None
    event(f"by representatives: {by_representatives}")
    assert len(found.messages.row) == (0 if by_representatives else len(whole.messages.row))
    assert_alike(found, whole)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ring_by_representatives(ranks: int) -> None:
    size, schedule = 1 << 20, ring_all_reduce(ranks)
    found = representatives_of(schedule)
    assert found is not None
    assert len(found.moves) == 2 * ranks - 2
    assert simulate(schedule, size).seconds == pytest.approx((2 * ranks - 2) * (ALPHA + size / ranks / RATE), rel=1e-9)
    assert len(simulate(schedule, size, every_message=True).messages.row) == ranks * (2 * ranks - 2)


def test_a_thousand_ranks_by_representatives() -> None:
    """Two million transfers, of which 2,046 are simulated."""
    ranks, size = 1024, 1 << 30
    small = bounds_of(parse("ring:8"), Collective.make("all_reduce", 8))  # any bounds: they are not what is tested
    schedule = replace(ring_all_reduce(ranks), bounds=small)
    assert simulate(schedule, size).seconds == pytest.approx((2 * ranks - 2) * (ALPHA + size / ranks / RATE), rel=1e-9)


def test_a_rank_that_stays_in_place_is_expanded() -> None:
    """A reflection fixes two ranks of a ring; the switch of a star stays where it is under every turn."""
    ring = parse("ring:4")
    collective = Collective.make("all_gather", 4)
    values = ValueBuilder.of_chunks(collective).build()
    mirror = (0, 3, 2, 1)
    rows = [Transfer(0, 0, 0, 1, 0, route(ring, 0, 1))]
    both_ways = Schedule(ring, collective, values, Transfers.of(rows), symmetry=(Generator(mirror, mirror),))
    assert representatives_of(both_ways) is None
    assert len(simulate(both_ways, 8).messages.row) == 2
    folded = fold(switch_reduce_scatter(4))
    assert folded.symmetry
    assert representatives_of(folded) is None
    assert simulate(folded, 1 << 20).seconds == pytest.approx(simulate(switch_reduce_scatter(4), 1 << 20).seconds)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("name", ["rail:boxes=4,gpus=4,rails=4", "torus:3x4"])
def test_what_shares_a_lane_and_a_step_leaves_in_the_listed_order(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees by orbits send many chunks over one lane in one step."""
    monkeypatch.setattr(forest, "FOLDED", 2)
    topology = parse(name)
    schedule = forest.run(topology, Collective.make(kind, topology.ranks), 1, Budget())
    assert representatives_of(schedule) is not None
    for slice_bytes in (None, 50_000):
        whole = simulate(schedule, 1 << 20, slice_bytes, every_message=True, timeline=True)
        assert_alike(simulate(schedule, 1 << 20, slice_bytes, timeline=True), whole)


def test_an_orbit_listed_twice_on_a_shared_lane_is_expanded() -> None:
    """Which of its two rows says when it leaves is not said."""
    schedule = ring_all_reduce(4)
    values = ValueBuilder()
    for chunk, rank in ((0, 0), (1, 1), (3, 0)):
        values.contribution(chunk, rank)
    rows = [
        Transfer(value, value, rank, rank + 1, 0, route(schedule.topology, rank, rank + 1))
        for value, rank in ((0, 0), (2, 0), (1, 1))
    ]
    twice = replace(schedule, values=values.build(), transfers=Transfers.of(rows))
    assert representatives_of(twice) is None
    assert representatives_of(replace(twice, transfers=Transfers.of(rows[:2]))) is not None


def test_equal_transfers_under_two_names_are_one() -> None:
    """Representatives may list several members of an orbit."""
    schedule = ring_all_reduce(4)
    values = ValueBuilder()
    for chunk, rank in ((0, 0), (0, 1), (1, 1), (1, 2)):
        values.contribution(chunk, rank)
    first = values.sum([0, 1])
    second = values.sum([2, 3])
    links = [route(schedule.topology, 0, 1), route(schedule.topology, 1, 2)]
    twice = [Transfer(0, first, 0, 1, 0, links[0]), Transfer(2, second, 1, 2, 0, links[1])]
    found = representatives_of(replace(schedule, values=values.build(), transfers=Transfers.of(twice)))
    assert found is not None
    assert len(found.moves) == 1
