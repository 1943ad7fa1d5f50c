"""Lanes by colour against all lanes: equal times, and as few lanes as there should be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syntony import _core
from syntony.base.command import UserError
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.references import References
from syntony.synth.simulation.connections import Connections
from syntony.synth.simulation.lane_classes import one_of_each
from syntony.synth.simulation.message_sizes import MessageSizes
from syntony.synth.simulation.program_simulator import Lanes, sim_program_of
from syntony.synth.simulation.sim_program import SimProgram, simulate_sim_program
from syntony.topologies.parse import parse

WIRES = ("ring:6", "star:6", "full:8", "dgx1", "dgx-a100:1", "torus:3x3", "clos:leaves=2,hosts=3,spines=2")
SIZE = 1_234_567


def lanes(algorithm: str, collective: str, wires: str, slice_bytes: int = 1 << 16) -> SimProgram | None:
    """The lanes of a builder's Program on the wires; None where it has no way there."""
    topology = parse(wires)
    program = _core.build(algorithm, collective, topology.ranks)
    code = References(program)
    try:
        connections = Connections.of(code, Network(topology, Collective.make(collective, topology.ranks)))
    except UserError:
        return None
    return sim_program_of(code, MessageSizes(code, SIZE, slice_bytes), connections, topology, 4)


BUILDERS = [(entry.name, collective) for entry in _core.algorithms() for collective in entry.collectives]


@pytest.mark.parametrize("wires", WIRES)
def test_one_of_each_takes_as_long_as_all(wires: str) -> None:
    alike = 0
    for algorithm, collective in BUILDERS:
        for slice_bytes in (1000, 1 << 40):
            every = lanes(algorithm, collective, wires, slice_bytes)
            found = one_of_each(every) if every else None
            if every is None or found is None:
                continue
            alike += 1
            assert len(found[0].lane_slices) * 2 <= len(every.lane_slices)
            expected = simulate_sim_program(every).seconds
            assert simulate_sim_program(found[0]).seconds == pytest.approx(expected, rel=1e-9), (algorithm, collective)
    assert alike >= 4


@pytest.mark.parametrize("percent", [50, 75])
def test_lanes_wait_for_others_in_any_order(percent: int) -> None:
    """One slow rank: to every other one it comes at another place among those whose data is summed."""
    ranks = 7
    topology, shares = (
        parse(f"star:{ranks},slowed=rank6-switch@{percent}%"),
        _core.shares_for([1.0] * 6 + [percent / 100]),
    )
    lanes = Lanes.of(_core.build("two_shot", "all_reduce", ranks, shares=shares), topology, sum(shares), 1 << 16)
    found = one_of_each(lanes.columns)
    assert found is not None
    assert simulate_sim_program(found[0]).seconds == pytest.approx(
        simulate_sim_program(lanes.columns).seconds, rel=1e-9
    )


def test_a_ring_is_one_rank() -> None:
    """All ranks of a ring live alike; of a star too, whose switch makes no difference."""
    for wires in ("ring:8", "star:8"):
        every = lanes("ring", "all_reduce", wires)
        assert every is not None
        found = one_of_each(every)
        assert found is not None
        assert len(found[0].lane_slices) == len(every.lane_slices) // 8


def test_one_slow_link_makes_all_the_difference() -> None:
    """On a ring with one slow link, every rank is at another distance from it."""
    every = lanes("ring", "all_reduce", "ring:8")
    assert every is not None
    capacity = every.capacity.copy()
    capacity[0] /= 2
    assert one_of_each(replace(every, capacity=capacity)) is None
    unused = [link for link in range(len(capacity)) if link not in every.paths.link]
    capacity = every.capacity.copy()
    capacity[unused[0]] /= 2
    found = one_of_each(replace(every, capacity=capacity))
    assert found is not None
    assert simulate_sim_program(found[0]).seconds == pytest.approx(simulate_sim_program(every).seconds, rel=1e-9)


def test_the_first_stuck_row_is_the_same() -> None:
    every = lanes("ring", "all_reduce", "ring:4")
    assert every is not None
    # A ring whose FIFOs hold nothing: the first lane that sends is stuck at once.
    stuck = replace(every, fifo_depth=0)
    found = one_of_each(stuck)
    assert found is not None
    there, here = simulate_sim_program(stuck), simulate_sim_program(found[0])
    assert there.stuck_row >= 0
    assert (there.stuck_row, there.stuck_slice) == (int(found[1][here.stuck_row]), here.stuck_slice)


def test_columns_that_do_not_fit_are_refused() -> None:
    every = lanes("ring", "all_gather", "ring:4")
    assert every is not None
    for change, sentence in (
        ({"need": every.need + 10_000}, "a row needs a row that does not exist"),
        ({"route": every.route + 100}, "a flow names no set of paths"),
        ({"lane_offset": every.lane_offset[:-1]}, "lane_offset does not cut the rows into lanes"),
        ({"slice_bytes": every.slice_bytes * 0}, "slice_bytes must be finite and positive"),
        ({"kind": every.kind + 1}, "that is no FIFO"),
    ):
        with pytest.raises(ValueError, match=sentence):
            simulate_sim_program(replace(every, **change))
