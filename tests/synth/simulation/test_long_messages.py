"""Estimates for long messages against simulations of all slices."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.pipeline.slicing import in_slices, streamed
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import KINDS, Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation import long_messages
from syntony.synth.simulation.long_messages import AGREED, STRETCHED, Estimate, estimate
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.synth.simulation.result import Simulation
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from tests.sampled import one_in

MOST = 1000
"""Messages per simulation; schedules have a hundred times as many, or less."""


def drawn(rng: random.Random) -> Schedule:
    """On an irregular network, of a quick engine, cut or not; alphas are up to two slices long."""
    while True:
        topology = random_network(rng.randrange(100))
        factor = rng.choice([0.1, 1.0, 100.0])
        links = tuple(replace(link, alpha=link.alpha * factor) for link in topology.links)
        topology = replace(topology, links=links)
        collective = Collective.make(rng.choice(KINDS), topology.ranks)
        engine = rng.choice(["forest", "flow", "greedy", "bfb"])
        try:
            schedule = engine_named(engine).run(topology, collective, 1 << 30, Budget())
        except EngineError:
            continue
        orders = [order for number, of in streamed(schedule, 1 << 30) if number <= 4 for order in of.values()]
        if orders and rng.random() < 0.8:
            schedule = rng.choice(orders)()
        if 0 < len(schedule.transfers) <= 1000:
            return schedule


def size_of(schedule: Schedule, slices: int) -> int:
    """The size at which the heaviest chunk has so many slices."""
    share = schedule.collective.chunks.weight.max() * schedule.collective.unit
    return int(slices * executor_slice(schedule.collective.ranks) / share)


def test_where_nothing_moves_no_time_passes() -> None:
    schedule = greedy.run(parse("ring:1"), Collective.make("all_reduce", 1), 1 << 40, Budget())
    assert estimate(schedule, 1 << 40, MOST) == Estimate(0.0, 0.0, 0.0)


@pytest.mark.parametrize("seed", one_in(4, range(200)))
def test_what_is_sure_is_right(seed: int) -> None:
    rng = random.Random(seed)
    schedule = drawn(rng)
    size = size_of(schedule, rng.randint(100, 100_000 // len(schedule.transfers)))
    found = estimate(schedule, size, MOST)
    seconds = simulate(schedule, size, executor_slice(schedule.collective.ranks)).seconds
    assert not found.sure or found.seconds == pytest.approx(seconds, rel=0.01)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The messages of each simulation from now on."""
    messages: list[int] = []

    def noted(schedule: Schedule, size: int, length: int) -> Simulation:
        found = simulate(schedule, size, length, every_message=True)
        messages.append(len(found.messages.row))
        return found

    monkeypatch.setattr(long_messages, "simulate", noted)
    return messages


@pytest.mark.parametrize("network", ["mesh:3x3", "star:6", "mesh:3x3,alpha=50us"])
def test_turns_that_are_alike_are_simulated_once(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = parse(network)
    schedule = forest.run(topology, Collective.make("broadcast", topology.ranks), 1 << 30, Budget())
    size = size_of(schedule, 2000)
    seconds = simulate(schedule, size, executor_slice(topology.ranks)).seconds
    messages = counted(monkeypatch)
    found = estimate(schedule, size, MOST)
    assert found.sure
    assert found.seconds == pytest.approx(seconds, rel=1e-6)
    assert len(messages) == 3
    assert sum(messages) < 2000 * len(schedule.transfers) / 10


def test_a_path_that_hides_another_is_not_taken_for_all() -> None:
    """At first, a long latency takes longer than the bytes of the slow link."""
    wiring = Wiring("far and slow")
    for rank in range(3):
        wiring.rank((rank, 0))
    wiring.cable(0, 1, Fraction(10**9), 1.0)
    wiring.cable(0, 2, Fraction(10**8), 1e-6)
    schedule = greedy.run(wiring.topology(), Collective.make("broadcast", 3), 1 << 30, Budget())
    size = size_of(schedule, 2000)
    seconds = simulate(schedule, size, executor_slice(3)).seconds
    assert not estimate(schedule, size, MOST).sure
    found = estimate(schedule, size, 10 * MOST)
    assert found.sure
    assert found.seconds == pytest.approx(seconds, rel=1e-6)


@pytest.mark.parametrize("network", ["mesh:3x3", "mesh:3x3,alpha=300us", "mesh:3x3,alpha=2ms"])
@pytest.mark.parametrize("kind", ["all_gather", "broadcast", "all_reduce"])
def test_more_steps_than_slices_are_never_sure_but_near(network: str, kind: str) -> None:
    topology = parse(network)
    whole = greedy.run(topology, Collective.make(kind, topology.ranks), 1 << 30, Budget())
    cut = in_slices(whole, 32)
    size = size_of(cut, 24)
    found = estimate(cut, size, 4 * len(cut.transfers))
    assert cut.steps > 24
    assert AGREED < found.error <= STRETCHED
    assert found.seconds == pytest.approx(simulate(cut, size, executor_slice(9)).seconds, rel=0.01)
    assert estimate(cut, size, 24 * len(cut.transfers)).error == 0
