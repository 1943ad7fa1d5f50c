"""all_reduce with one slow or late rank: near the bound in simulation, for any rate."""

from __future__ import annotations

import pytest

from syntony import _core
from syntony.benchmarks.sim_vs_lab import stragglers as in_the_lab
from syntony.benchmarks.sim_vs_lab.switch_rank import Switch
from syntony.benchmarks.synthesis import stragglers
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker import check_program
from syntony.synth.model.collective import Collective
from syntony.synth.simulation.lane_classes import one_of_each
from syntony.synth.simulation.program_simulator import Lanes, simulate_program


@pytest.mark.parametrize(("ranks", "percent"), [(3, 75), (8, 50), (8, 60), (8, 75), (8, 90), (12, 60)])
def test_a_slow_rank_costs_what_its_wire_costs(ranks: int, percent: int) -> None:
    """Data and sums share the wires in proportion; on connections of their own they came to 1.11 times the bound."""
    topology, program = stragglers.slowed(ranks, percent), stragglers.unequal(ranks, percent / 100)
    assert check_program(program)
    bound = bounds_of(topology, Collective.make("all_reduce", ranks)).seconds(stragglers.SIZE)
    assert bound <= simulate_program(program, topology, stragglers.SIZE).seconds < 1.005 * bound


def test_others_go_ahead_of_a_late_rank() -> None:
    """When it comes, it gives its data and takes the sum, and nothing else is left to do."""
    topology = stragglers.parse("star:6")
    late = stragglers.UNIT * float(stragglers.share_of_time(6))
    program = stragglers.unequal(6, 0.0)
    took = simulate_program(program, topology, stragglers.SIZE, late={5: late}).seconds - late
    assert stragglers.UNIT <= took < 1.01 * stragglers.UNIT


@pytest.mark.parametrize("percent", [50, 75])
def test_with_hundreds_of_ranks_one_of_each_kind_is_simulated(percent: int) -> None:
    ranks = 160
    topology, size = stragglers.slowed(ranks, percent), stragglers.slow_size(ranks, percent / 100)
    lanes = Lanes.of(stragglers.unequal(ranks, percent / 100), topology, size)
    found = one_of_each(lanes.columns)
    assert found is not None
    assert len(found[0].lane_slices) < 10
    bound = bounds_of(topology, Collective.make("all_reduce", ranks)).seconds(size)
    assert bound <= lanes.run().seconds < stragglers.MOST * bound


@pytest.mark.parametrize("percent", [50, 90])
def test_extrapolated_times(percent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topology, ring = stragglers.slowed(20, percent), _core.build("ring", "all_reduce", 20)
    size = 20 * stragglers.LEAST_SHARE
    every = stragglers.ring_seconds(ring, topology, size)
    monkeypatch.setattr(stragglers, "EVERY_MESSAGE", 19)
    assert stragglers.ring_seconds(ring, topology, size) == pytest.approx(every, rel=1e-3)


@pytest.mark.parametrize(
    ("first", "early", "missed"),
    [(4.5, True, ""), (5.25, True, "more than 1 s"), (4.5, False, "the wire was slow before it should have been")],
)
def test_a_switch_takes_what_its_all_reduce_takes_longer(
    first: float, early: bool, missed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Switch([2.0, 3.0, 9.0], [8.0, 7.0, 6.0], first, [4.0, 5.0, 3.0], early)
    monkeypatch.setattr(in_the_lab, "measure_switch", lambda ranks, percent: found)
    rows = list(in_the_lab._switches(8))
    assert [row.missed for row in rows] == [missed] * 2
    assert [row.cells[:5] for row in rows] == [
        (part, "3.00", "7.00", f"{first - 4:.2f}", "4.00") for part in ("50 %", "75 %")
    ]
