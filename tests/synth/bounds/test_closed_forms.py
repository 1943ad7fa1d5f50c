"""The simulator against formulas that one can derive on paper; all to 1e-9.

The ring is in test_simulator.py and, by representatives, in test_representatives.py; flows by hand in test_flows.py.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from syntony.synth.engines.engine import Budget
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.flows import Flows, Paths, simulate_flows
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.aggregator import Aggregator
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.synth.schedules import switch_all_reduce

ALPHA, RATE = 1e-6, 1e9
SIZE = 3 << 20
EXACT = 1e-9


def route(topology: Topology, src: int, dst: int) -> tuple[int, ...]:
    """The link, or up and down through the switch of a star."""
    if direct := topology.links_between(src, dst):
        return (direct[0].id,)
    switch = topology.ranks
    return topology.links_between(src, switch)[0].id, topology.links_between(switch, dst)[0].id


def trees_all_reduce(topology: Topology, orders: list[list[int]]) -> Schedule:
    """Chunk c is summed up the complete binary tree of order c (node i's parent is (i-1)//2), then copied down it."""
    ranks = topology.ranks
    collective, values, rows = Collective.make("all_reduce", ranks, len(orders)), ValueBuilder(), []
    for chunk, order in enumerate(orders):
        own = [values.contribution(chunk, rank) for rank in order]
        held = list(own)
        depth = [(i + 1).bit_length() - 1 for i in range(ranks)]
        for parent in reversed(range(ranks // 2)):
            children = (2 * parent + 1, 2 * parent + 2)
            held[parent] = values.sum([own[parent], *(held[child] for child in children)])
            for child in children:
                way = route(topology, order[child], order[parent])
                step = depth[-1] - depth[child]
                rows.append(Transfer(held[child], held[parent], order[child], order[parent], step, way))
        for child in range(1, ranks):
            parent = (child - 1) // 2
            way = route(topology, order[parent], order[child])
            step = depth[-1] + depth[parent]
            rows.append(Transfer(held[0], held[0], order[parent], order[child], step, way))
    return Schedule(topology, collective, values.build(), Transfers.of(rows))


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_binary_tree(levels: int) -> None:
    """On wires of its own, a level costs a hop; through a star, two children share their parent's cable both ways."""
    ranks = 2 ** (levels + 1) - 1
    order = list(range(ranks))
    own_wires = simulate(trees_all_reduce(parse(f"full:{ranks}"), [order]), SIZE)
    assert own_wires.seconds == pytest.approx(2 * levels * (ALPHA + SIZE / RATE), rel=EXACT)
    star = simulate(trees_all_reduce(parse(f"star:{ranks}"), [order]), SIZE)
    assert star.seconds == pytest.approx(2 * levels * (2 * ALPHA + 2 * SIZE / RATE), rel=EXACT)


@pytest.mark.parametrize("levels", [2, 3, 4])
def test_double_binary_tree(levels: int) -> None:
    """Half of the data per tree (Sanders, Speck and Traeff 2009): where no link serves both in one step, a level costs
    half of the bandwidth term."""
    ranks = 2 ** (levels + 1) - 1
    order = list(range(ranks))
    mirrored = [ranks - 1 - rank for rank in order]
    schedule = trees_all_reduce(parse(f"full:{ranks}"), [order, mirrored])
    used = np.unique(np.stack([schedule.transfers.link, schedule.transfers.step]), axis=1)
    assert used.shape[1] == len(schedule.transfers), "the trees share a link: the formula does not hold"
    assert simulate(schedule, SIZE).seconds == pytest.approx(2 * levels * (ALPHA + SIZE / 2 / RATE), rel=EXACT)


@pytest.mark.parametrize("side", [3, 5])
def test_torus_dimension_ordered_all_to_all(side: int) -> None:
    """Odd side k = 2h + 1: every link carries k * (1 + .. + h) flows, so all share alike and end together."""
    topology = parse(f"torus:{side}x{side}")
    half = side // 2

    def steps(a: int, b: int) -> list[int]:
        """Coordinates from a to b, the short way round."""
        way = (b - a + half) % side - half
        return [(a + (i if way > 0 else -i)) % side for i in range(abs(way) + 1)]

    ways = []
    for (x, y), (u, v) in product(product(range(side), repeat=2), repeat=2):
        if (x, y) != (u, v):
            nodes = [i * side + y for i in steps(x, u)] + [u * side + j for j in steps(y, v)[1:]]
            ways.append([topology.links_between(a, b)[0].id for a, b in pairwise(nodes)])
    alphas = [sum(topology.links[link].alpha for link in way) for way in ways]
    capacity = [float(link.bandwidth) for link in topology.links]
    found = simulate_flows(Flows.make(Paths.of([[way] for way in ways]), capacity, 1e6, latency=alphas))
    ends = side * half * (half + 1) / 2 * 1e6 / capacity[0]
    assert found.left == pytest.approx(np.full(len(ways), ends), rel=EXACT)
    assert found.seconds == pytest.approx(ends + 2 * half * topology.links[0].alpha, rel=EXACT)


@pytest.mark.parametrize("ranks", [2, 5, 16])
def test_star_all_to_all(ranks: int) -> None:
    topology = parse(f"star:{ranks}")
    schedule = greedy(topology, Collective.make("all_to_all", ranks), SIZE, Budget())
    link = topology.links[0]
    expected = 2 * link.alpha + SIZE * (ranks - 1) / ranks / float(link.bandwidth)
    assert simulate(schedule, SIZE).seconds == pytest.approx(expected, rel=EXACT)


def line(hops: int) -> Schedule:
    """One block from end to end, through `hops` - 1 ranks that pass it on."""
    topology, collective = parse(f"mesh:{hops + 1}"), Collective.make("broadcast", hops + 1)
    rows = [Transfer(0, 0, hop, hop + 1, hop, route(topology, hop, hop + 1)) for hop in range(hops)]
    return Schedule(topology, collective, ValueBuilder.of_chunks(collective).build(), Transfers.of(rows))


@pytest.mark.parametrize(("hops", "slices"), [(1, 1), (1, 8), (4, 1), (4, 8), (4, 64)])
def test_slices_stream_through_relays(hops: int, slices: int) -> None:
    """The first slice takes every hop, the others follow one slice apart."""
    piece = SIZE // slices
    found = simulate(line(hops), SIZE, piece)
    assert found.seconds == pytest.approx(hops * (ALPHA + piece / RATE) + (slices - 1) * piece / RATE, rel=EXACT)
    assert len(found.messages.row) == hops * slices


@pytest.mark.parametrize("slices", [1, 8])
def test_store_and_forward(slices: int) -> None:
    """Through the switch of a star: a message waits there for its end; cutting through costs its alpha only."""
    topology, collective = parse("star:2"), Collective.make("broadcast", 2)
    rows = [Transfer(0, 0, 0, 1, 0, route(topology, 0, 1))]
    schedule = Schedule(topology, collective, ValueBuilder.of_chunks(collective).build(), Transfers.of(rows))
    piece = SIZE // slices
    found = simulate(schedule, SIZE, piece, "store-and-forward")
    assert found.seconds == pytest.approx(2 * (ALPHA + piece / RATE) + (slices - 1) * piece / RATE, rel=EXACT)
    assert simulate(schedule, SIZE, piece).seconds == pytest.approx(2 * ALPHA + SIZE / RATE, rel=EXACT)
    assert [found.routes[number] for number in found.messages.route[:2]] == [(link,) for link in rows[0].route]


@pytest.mark.parametrize("slices", [1, 2, 32])
@pytest.mark.parametrize(
    ("slots", "rate", "up"),
    [
        (None, None, RATE),  # the cables decide
        (None, Fraction(2 * 10**9), RATE / 2),  # four workers share an adder that takes two cables' worth
        (2, None, 2 * 1024 / (2 * ALPHA + 2 * 1024 / RATE)),  # two packets under way in every round trip
        (2, Fraction(10**9), RATE / 4),
    ],
)
def test_a_switch_that_adds_streams(slices: int, slots: int | None, rate: Fraction | None, up: float) -> None:
    """Two chunks in slices: everybody sends all of them up, and each sum comes down while the next goes up."""
    schedule = switch_all_reduce(4)
    switch = Aggregator("some", slots, 1024, ("int32_block",), rate)
    schedule = replace(schedule, topology=schedule.topology.with_aggregator(switch))
    piece = SIZE // 2 // slices
    found = simulate(schedule, SIZE, piece, timeline=True)
    expected = 2 * slices * piece / up + ALPHA + piece / RATE + ALPHA
    assert found.seconds == pytest.approx(expected, rel=EXACT)
    assert found.busy == pytest.approx(np.full(8, SIZE / RATE), rel=EXACT)
    assert found.utilization(1)[:, 0] * found.seconds == pytest.approx(found.busy, rel=EXACT)
    assert found.seconds >= float(seconds_per_byte(schedule)) * SIZE


def test_only_what_is_added_passes_the_adder() -> None:
    """A copy through the switch is as fast as the cables, however slow the adder is."""
    topology = parse("star:2").with_aggregator(Aggregator("slow", 1, 1024, ("float32",), Fraction(1)))
    collective = Collective.make("broadcast", 2)
    up, down = route(topology, 0, 1)
    rows = [Transfer(0, 0, 0, 2, 0, (up,)), Transfer(0, 0, 2, 1, 1, (down,))]
    schedule = Schedule(topology, collective, ValueBuilder.of_chunks(collective).build(), Transfers.of(rows))
    assert simulate(schedule, SIZE).seconds == pytest.approx(2 * (ALPHA + SIZE / RATE), rel=EXACT)
