"""Every engine on irregular networks: a schedule that the checker proves, no faster than the bounds, or a sentence."""

from __future__ import annotations

import pytest

from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.checker import check_schedule
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.registry import ENGINES
from syntony.synth.model.collective import KINDS, Collective
from syntony.synth.simulation.schedule_simulator import simulate

ALONE = [engine for engine in ENGINES if engine.name != "auto"]
SIZES = (1 << 10, 1 << 20, 1 << 30)


def answers(name: str, kind: str, seed: int, seconds: float) -> None:
    engine = next(engine for engine in ENGINES if engine.name == name)
    topology = random_network(seed)
    collective = Collective.make(kind, topology.ranks)
    try:
        schedule = engine.run(topology, collective, SIZES[seed % len(SIZES)], Budget(seconds))
    except EngineError:
        return
    verdict = check_schedule(schedule)
    assert verdict, verdict.fault
    assert schedule.bounds is not None
    for size in SIZES[:2]:
        assert simulate(schedule, size, 1 << 16).seconds >= schedule.bounds.seconds(size) * (1 - 1e-9)
    assert (schedule.topology, schedule.collective.kind) == (topology, kind)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("number", "name"), list(enumerate(engine.name for engine in ALONE)))
def test_a_proven_schedule_or_a_sentence(number: int, name: str, seed: int) -> None:
    answers(name, KINDS[(number + 3 * seed) % len(KINDS)], seed, 0.3)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("name", [engine.name for engine in ALONE])
def test_a_proven_schedule_or_a_sentence_for_every_collective(name: str, seed: int) -> None:
    for kind in KINDS:
        answers(name, kind, seed, 0.5)
