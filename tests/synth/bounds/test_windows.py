"""Bounds at a size: closed forms, flows over time, and no schedule that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget
from syntony.synth.model.bound import Partition
from syntony.synth.model.collective import Collective
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, Topology
from tests.sampled import examples
from tests.synth.networks import collectives, networks


def test_two_ways_of_unequal_length() -> None:
    """1 B/s after 1 s, and 2 B/s more after 3 s: 2 bytes take 3 s, and 5 bytes (T - 1) + 2 (T - 3) = 5, T = 4."""
    nodes = tuple(Node(i, "rank" if i < 2 else "switch", f"n{i}") for i in range(3))
    ends = [(0, 1, 1.0, 1), (0, 2, 2.0, 2), (2, 1, 1.0, 2), (1, 0, 1.0, 9)]
    links = tuple(Link(i, src, dst, alpha, Fraction(rate)) for i, (src, dst, alpha, rate) in enumerate(ends))
    bounds = bounds_of(Topology("two ways", nodes, links), Collective.make("broadcast", 2))
    assert [bounds.seconds(size) for size in (0, 1, 2, 5)] == pytest.approx([1, 2, 3, 4], rel=1e-9)


@pytest.mark.parametrize(
    ("name", "kind", "seconds"),
    [
        ("ring:8,bandwidth=1e9,alpha=1e-6", "all_gather", 1e-6 + 7 / 16 * 1e-3),  # over both links of a rank
        ("star:4,bandwidth=1e9,alpha=1e-6", "all_gather", 2e-6 + 3 / 4 * 1e-3),  # two alphas through a switch
        ("star:4,bandwidth=1e9,alpha=1e-6", "all_reduce", 2e-6 + 6 / 4 * 1e-3),
        ("full:4,bandwidth=1e9,alpha=1e-6", "all_to_all", 1e-6 + 1 / 4 * 1e-3),
    ],
)
def test_a_megabyte_takes_its_bytes_and_the_way(name: str, kind: str, seconds: float) -> None:
    topology = parse(name)
    bounds = bounds_of(topology, Collective.make(kind, topology.ranks))
    assert seconds * (1 - 1e-9) <= bounds.seconds(10**6) <= seconds * 1.02


def line(*cables: tuple[int, int, float]) -> Topology:
    """Three ranks; each cable has an alpha and 1 B/s."""
    wiring = Wiring("line")
    for rank in range(3):
        wiring.rank((rank, 0))
    for one, other, alpha in cables:
        wiring.cable(one, other, Fraction(1), alpha)
    return wiring.topology()


@pytest.mark.parametrize(
    ("cables", "kind", "size", "seconds"),
    [
        # Rank 2 is far away: its byte is there after 11 s and one more, whatever rank 1 does meanwhile.
        (((0, 1, 1.0), (1, 2, 10.0)), "gather", 3, 12),
        (((0, 1, 1.0), (1, 2, 10.0)), "scatter", 3, 12),
        (((0, 1, 1.0), (1, 2, 10.0)), "all_gather", 3, 12),
        (((0, 1, 1.0), (1, 2, 10.0)), "reduce_scatter", 3, 12),
        (((0, 1, 1.0), (1, 2, 10.0)), "all_to_all", 3, 12),
        # Rank 0 is in the middle: what rank 1 adds comes to rank 2 after 11 s and the time for all bytes.
        (((0, 1, 1.0), (0, 2, 10.0)), "all_reduce", 3, 14),
    ],
)
def test_from_far_away(cables: Sequence[tuple[int, int, float]], kind: str, size: int, seconds: float) -> None:
    bounds = bounds_of(line(*cables), Collective.make(kind, 3))
    assert bounds.seconds(size) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("kind", ["gather", "scatter", "all_gather", "reduce_scatter"])
def test_blocks_of_unequal_size(kind: str) -> None:
    """Half of 4 bytes are rank 2's block: 11 s to rank 0, or from it, and 2 more for the bytes."""
    bounds = bounds_of(line((0, 1, 1.0), (1, 2, 10.0)), Collective.make(kind, 3, block_sizes=(1, 1, 2)))
    assert bounds.seconds(4) == pytest.approx(13, rel=1e-9)


def test_what_adders_take_in_counts_from_the_beginning() -> None:
    """A witness's bandwidth includes theirs, beside that of its links; its window must not demand more."""
    bounds = bounds_of(parse("star:8,aggregator=iswitch"), Collective.make("all_reduce", 8))
    partition = bounds.throughput.witness
    assert isinstance(partition, Partition)
    assert partition.adders
    size = 10**9
    steady = size * float(partition.share / partition.bandwidth)
    assert steady <= bounds.seconds(size) <= steady + 1e-4


@examples(60)
@given(data=st.data())
def test_no_schedule_is_faster(data: st.DataObject) -> None:
    topology = data.draw(networks())
    collective = data.draw(collectives(topology))
    size = data.draw(st.sampled_from([1, 7, 100]))
    schedule = greedy.run(topology, collective, size, Budget(60))
    assert schedule.bounds is not None
    least = schedule.bounds.seconds(size)
    assert simulate(schedule, size).seconds >= least * (1 - 1e-9)
    assert simulate(schedule, size, 1).seconds >= least * (1 - 1e-9)
    assert least >= replace(schedule.bounds, windows=()).seconds(size) * (1 - 1e-9)
