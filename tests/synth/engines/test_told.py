"""What engines report on their way answers the question that they were asked, not that of an engine inside them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.checker.schedules.check import check_schedule
from syntony.synth.engines import workers
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.registry import engine_named
from syntony.synth.engines.workers import Found, Question
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

# Engines that report results, or that ask others which do.
ENGINES = ("forest", "hierarchy", "in_network", "one_shot", "pipeline", "sccl", "taccl", "teccl")
NETWORKS = (parse("dgx-a100:2"), parse("rail:boxes=3,gpus=2,rails=2"), random_network(9))


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "broadcast", "reduce_scatter", "scatter"])
@pytest.mark.parametrize("topology", NETWORKS, ids=lambda topology: topology.name)
def test_all_that_is_told_is_an_answer(topology: Topology, kind: str) -> None:
    collective = Collective.make(kind, topology.ranks)
    for engine in ENGINES:
        told: list[Schedule] = []
        with suppress(EngineError):
            told.append(engine_named(engine).run(topology, collective, 1 << 26, Budget(1.0, better=told.append)))
        for schedule in told:
            assert schedule.topology.links == topology.links, engine
            assert (schedule.collective.kind, schedule.collective.ranks) == (kind, topology.ranks), engine
            check_schedule(schedule)


@pytest.mark.parametrize("early", [True, False])
def test_an_answer_to_another_question_is_refused(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    topology, part = parse("ring:6"), parse("ring:2")
    wrong = engine_named("greedy").run(part, Collective.make("all_gather", 2), 1, Budget())
    right = engine_named("greedy").run(topology, Collective.make("all_gather", 6), 1, Budget())
    engine = engine_named("greedy")

    def answer(_topology: Topology, _collective: Collective, _size: int, budget: Budget) -> Schedule:
        if early and budget.better is not None:
            budget.better(wrong)
        return right if early else wrong

    class Confused:
        run = staticmethod(answer)

    monkeypatch.setattr(workers, "engine_named", lambda _: Confused)
    question = Question(engine.name, topology, right.collective, 1, 1.0)
    heard: list[Found] = []
    with pytest.raises(ValueError, match="engine greedy, asked for all_gather on ring:6, has all_gather on ring:2"):
        list(question.answers(heard.append))
    assert not heard
    other = replace(question, collective=Collective.make("broadcast", 6))
    monkeypatch.setattr(workers, "engine_named", lambda _: engine)
    assert list(other.answers())
