"""Programs through slots and sockets: closed forms, order, skipping, a pair that no socket joins."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from syntony import _core
from syntony.base.command import UserError
from syntony.synth.model.program import Program
from syntony.synth.simulation.program_simulator import Lanes, executor_depth, simulate_program
from syntony.synth.simulation.sockets import Sockets
from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, Topology
from tests.synth.programs import Row, program

RATE = 1e9
WHOLE = 1 << 40
"""A slice that no chunk exceeds."""


def pair_of_wires(first: Fraction, second: Fraction) -> Topology:
    """Two ranks, and two links from 0 to 1 without latency."""
    nodes = tuple(Node(rank, "rank", f"rank{rank}") for rank in range(2))
    return Topology("pair", nodes, (Link(0, 0, 1, 0.0, first), Link(1, 0, 1, 0.0, second), Link(2, 1, 0, 0.0, first)))


def gift() -> Program:
    """Rank 0 scatters: half stays, half goes to rank 1."""
    send, take = {"op": "send", "src": ["input", 1], "to": 1}, {"op": "recv", "dst": ["output", 0], "from": 0}
    return program("scatter", [[0, 1], [1, 1]], [([0, 1], [0], [], [[send]]), ([], [1], [], [[take]])])


def scatter_by_one_lane() -> Program:
    """Rank 0 sends to rank 1 and then to rank 2, over and over, from one lane."""
    sends = [{"op": "send", "src": ["input", rank], "to": rank} for rank in (1, 2)]
    takes: list[tuple[list[int], list[int], list[int], list[list[Row]]]] = [
        ([], [rank], [], [[{"op": "recv", "dst": ["output", 0], "from": 0}]]) for rank in (1, 2)
    ]
    return program("scatter", [[0, 1], [1, 1], [2, 1]], [([0, 1, 2], [0], [], [sends]), *takes])


def ways_of(topology: Topology) -> Sockets:
    """One socket on every direct link."""
    ways: dict[tuple[int, int], tuple[tuple[int, ...], ...]] = {}
    for link in topology.links:
        ways[link.src, link.dst] = (*ways.get((link.src, link.dst), ()), (link.id,))
    return Sockets(ways)


@pytest.mark.parametrize(("sockets", "seconds"), [(((0,),), 8.0), (((0,), (1,)), 4.0), (((0,), (0,)), 8.0)])
def test_messages_take_turns_over_sockets(sockets: tuple[tuple[int, ...], ...], seconds: float) -> None:
    """Eight messages of a second each, over one wire or two."""
    topology = pair_of_wires(Fraction(1000), Fraction(1000))
    found = simulate_program(gift(), topology, 16_000, 1000, 4, ways=Sockets({(0, 1): sockets}))
    assert found.seconds == pytest.approx(seconds)
    assert found.busy[:2].sum() == pytest.approx(8.0)


def test_a_message_that_overtakes_waits_for_the_one_before_it() -> None:
    """Two slots, a wire of one second per message and one of a tenth: the slow wire sets the pace of both."""
    topology = pair_of_wires(Fraction(1000), Fraction(10_000))
    sockets = Sockets({(0, 1): ((0,), (1,))})
    found = simulate_program(gift(), topology, 16_000, 1000, 2, every_message=True, ways=sockets)
    assert found.seconds == pytest.approx(4.0)
    even, odd = found.messages.arrival[::2], found.messages.arrival[1::2]
    assert even.tolist() == pytest.approx([1, 2, 3, 4])
    assert (odd < even).all()


def test_a_lane_goes_on_while_there_are_slots() -> None:
    """Two wires side by side: one after the other for a lane that waits for its wire, at once where there are slots."""
    topology, size = parse("full:3,alpha=0"), 3 << 20
    waiting = simulate_program(scatter_by_one_lane(), topology, size, WHOLE)
    slots = simulate_program(scatter_by_one_lane(), topology, size, WHOLE, ways=ways_of(topology))
    assert waiting.seconds == pytest.approx(2 * (1 << 20) / RATE)
    assert slots.seconds == pytest.approx((1 << 20) / RATE)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all"])
@pytest.mark.parametrize("algorithm", ["ring", "dbt", "direct", "hierarchical"])
def test_skipping_changes_nothing_and_no_bound_is_beaten(algorithm: str, collective: str) -> None:
    topology = parse("full:4")
    built = _core.build(algorithm, collective, 4)
    sockets = Sockets({pair: way * 2 for pair, way in ways_of(topology).ways.items()})
    whole = simulate_program(built, topology, 3_000_000, 10_000, every_message=True, ways=sockets)
    assert simulate_program(built, topology, 3_000_000, 10_000, ways=sockets).seconds == pytest.approx(whole.seconds)
    assert whole.seconds >= whole.bound_seconds * (1 - 1e-9)
    assert (whole.messages.start <= whole.messages.left).all()
    assert whole.messages.arrival.max() == pytest.approx(whole.seconds)
    carried = np.zeros(len(topology.links))
    for route, seconds in zip(whole.messages.route, whole.messages.left - whole.messages.start, strict=True):
        carried[list(whole.routes[route])] += seconds > 0
    assert ((carried > 0) == (whole.busy > 0)).all()


def test_ranks_that_talk_need_a_socket() -> None:
    with pytest.raises(UserError, match=r"from rank 0 to rank 1, but in full:2 no socket joins them$"):
        simulate_program(gift(), parse("full:2"), 16, ways=Sockets({(1, 0): ((1,),)}))


def test_a_connection_holds_more_short_messages() -> None:
    """As many as in csrc/core/group/fabric.cpp: where a credit takes a second, a long lane sends so many a second."""
    topology = Topology(
        "slow", tuple(Node(rank, "rank", f"rank{rank}") for rank in range(2)),
        (Link(0, 0, 1, 1.0, Fraction(10**12)), Link(1, 1, 0, 1.0, Fraction(10**12))),
    )  # fmt: skip
    chunks = 64
    sends: list[Row] = [{"op": "send", "src": ["input", chunk], "to": 1} for chunk in range(chunks, 2 * chunks)]
    takes: list[Row] = [{"op": "recv", "dst": ["output", chunk], "from": 0} for chunk in range(chunks)]
    halves = [[half, 1] for half in range(2) for _ in range(chunks)]
    every = list(range(2 * chunks))
    scatter = program("scatter", halves, [(every, every[:chunks], [], [sends]), ([], every[chunks:], [], [takes])])
    for message, depth in (32 << 10, 32), ((32 << 10) + 1, 8):
        size = message * 2 * chunks
        lanes = Lanes.of(scatter, topology, size, ways=ways_of(topology))
        assert (lanes.sizes.longest(), lanes.columns.fifo_depth) == (message, depth)
        assert lanes.run().seconds == pytest.approx(chunks / depth, rel=1e-3)
    assert executor_depth(scatter) == executor_depth(scatter, longest=1) == 4
