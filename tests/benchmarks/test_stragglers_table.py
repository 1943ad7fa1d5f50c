"""all_reduce with one slow or late rank: near the bound in simulation, for any rate."""

from __future__ import annotations

import pytest

from syntony.benchmarks.synthesis import stragglers
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker import check_program
from syntony.synth.model.collective import Collective
from syntony.synth.simulation.program_simulator import simulate_program


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


@pytest.mark.parametrize("percent", [50, 90])
def test_extrapolated_times(percent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topology, program = stragglers.slowed(20, percent), stragglers.unequal(20, percent / 100)
    size = 20 * stragglers.LEAST_SHARE
    every = stragglers.slow_seconds(program, topology, size)
    monkeypatch.setattr(stragglers, "EVERY_MESSAGE", 19)
    assert stragglers.slow_seconds(program, topology, size) == pytest.approx(every, rel=1e-3)
