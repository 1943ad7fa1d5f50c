"""Engine one_shot: all_reduce that crosses the network once, with the same sum, hence the same bits, everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.checker import check_schedule
from syntony.synth.engines import auto, one_shot
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.lowering.lower import lower
from syntony.synth.model.collective import Collective
from syntony.synth.model.target import CPU
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples
from tests.synth.networks import networks, replay


@examples(40)
@given(topology=networks(), weights=st.lists(st.integers(1, 3), min_size=1, max_size=2), size=st.integers(1, 1 << 12))
def test_any_network(topology: Topology, weights: list[int], size: int) -> None:
    collective = Collective.make("all_reduce", topology.ranks, weights=weights)
    schedule = one_shot.run(topology, collective, size, Budget(10))
    verdict = check_schedule(schedule)
    assert verdict, verdict.fault
    replay(schedule)


@pytest.mark.parametrize("name", ["ring:8", "torus:4x6", "torus:3x4x2", "hypercube:4", "dgx-a100:2"])
def test_a_few_bytes_cross_the_network_once(name: str) -> None:
    """Within some per cent of the latency bound; what sums at owners takes twice that."""
    topology = parse(name)
    schedule = one_shot.run(topology, Collective.make("all_reduce", topology.ranks), 8, Budget(10))
    assert check_schedule(schedule)
    assert schedule.bounds is not None
    assert simulate(schedule, 8).seconds <= 1.05 * schedule.bounds.latency.seconds


def test_a_grid_takes_its_axes_one_after_another() -> None:
    """Each rank gets 2 (4 - 1) messages, not 15, and adds twice, in each of two halves."""
    schedule = one_shot.run(parse("torus:4x4"), Collective.make("all_reduce", 16), 8, Budget(10))
    moves = schedule.transfers.src != schedule.transfers.dst
    assert len(schedule.collective.chunks) == 2
    assert moves.sum() == 16 * 2 * 6
    assert (~moves).sum() == 16 * 2 * 2
    assert lower(schedule, CPU).ranks == 16


def test_auto_takes_it_where_latency_counts() -> None:
    topology, collective = parse("torus:4x4"), Collective.make("all_reduce", 16)
    assert auto.run(topology, collective, 32, Budget(3)).engine == "one_shot"


def test_it_finds_no_other_collective() -> None:
    with pytest.raises(EngineError, match="one_shot finds all_reduce, not broadcast"):
        one_shot.run(parse("ring:4"), Collective.make("broadcast", 4), 8, Budget())
    with pytest.raises(EngineError, match="takes no --steps"):
        one_shot.run(parse("ring:4"), Collective.make("all_reduce", 4), 8, Budget(steps=2))
    with pytest.raises(EngineError, match="take more than 262144 transfers"):
        one_shot.run(parse("star:600"), Collective.make("all_reduce", 600), 8, Budget())


@pytest.mark.parametrize(("name", "shots"), [("torus:4x4", [4, 6]), ("torus:2x3x4", [4, 6, 7]), ("dgx-a100:2", [2, 3])])
def test_axes_in_two_shots_move_less(name: str, shots: list[int]) -> None:
    """Each is a proven all_reduce; every axis taken twice costs its steps once more, and bytes become fewer."""
    topology = parse(name)
    collective = Collective.make("all_reduce", topology.ranks, weights=(1, 2))
    grid = one_shot._grids(topology, collective)[0]
    found = list(one_shot._Grid(topology, collective, grid, 1 << 12, Budget(20)).schedules())
    assert [schedule.steps for schedule in found] == shots
    for schedule in found:
        verdict = check_schedule(schedule)
        assert verdict, verdict.fault
        replay(schedule)
    seconds = [simulate(schedule, 1 << 24).seconds for schedule in found]
    assert seconds == sorted(seconds, reverse=True)
