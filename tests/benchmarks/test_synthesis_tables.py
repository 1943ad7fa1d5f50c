"""The synthesizer's tables: every schedule is proven before its time is told, and instances are what they say."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from syntony.benchmarks.synthesis import broken, forest
from syntony.benchmarks.synthesis.execution import WrongResultError, execute
from syntony.benchmarks.synthesis.systems import sccl
from syntony.benchmarks.synthesis.table import Row, Stopwatch, WrongScheduleError, proven_table, timed
from syntony.benchmarks.tables import Part, show
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.forest.search import pack, run
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.engines.registry import engine_named
from syntony.synth.engines.sccl.exact import chunk_count
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Transfers
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.graph.degraded import degraded
from syntony.topologies.parse import parse
from tests.synth.networks import replay

QUICK = [(0, "all_gather"), (1, "reduce_scatter"), (9, "reduce"), (21, "all_to_all"), (25, "all_reduce")]
EVERY = [(number, kind) for number, instance in enumerate(sccl.INSTANCES) for kind in instance.kinds]


def solve_and_replay(number: int, kind: str) -> None:
    """As the table says: so many chunks, at most so many steps and rounds."""
    instance = sccl.INSTANCES[number]
    schedule, seconds = timed(lambda: sccl.solve(instance, kind))
    assert chunk_count(schedule.collective) == instance.chunks
    assert len(schedule.rounds) <= instance.steps
    assert schedule.rounds.sum() <= instance.rounds
    assert seconds.processor > 0
    replay(schedule)


@pytest.mark.parametrize(("number", "kind"), QUICK)
def test_some_instances(number: int, kind: str) -> None:
    solve_and_replay(number, kind)


@pytest.mark.soak
@pytest.mark.parametrize(("number", "kind"), EVERY)
def test_every_instance(number: int, kind: str) -> None:
    solve_and_replay(number, kind)


def test_no_time_is_told_of_a_wrong_schedule() -> None:
    schedule = expand(sccl.solve(sccl.INSTANCES[0], "all_gather"))
    watch = Stopwatch()
    assert watch.stop(schedule).wall >= 0
    forgetful = replace(schedule, transfers=Transfers.of(schedule.transfers.rows()[1:]))
    with pytest.raises(WrongScheduleError, match="engine sccl made a schedule that is wrong"):
        watch.stop(forgetful)


def test_a_table_says_what_it_missed(capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> Iterator[Row]:
        yield Row(("a", 1))
        yield Row(("b", 20), "more than 10")

    part = Part("Numbers", (("name", -6), ("value", 5)), rows, lambda rows: [f"{len(rows)} rows"])
    assert not show([part])
    assert (
        capsys.readouterr().out
        == "\nNumbers\n\nname    value\na           1\nb          20  MISSED: more than 10\n2 rows\n"
    )
    assert show([replace(part, rows=lambda: iter([Row(("a", 1))]))])


def test_loads_of_trees_are_recomputed() -> None:
    """What stands in for the checker where schedules are too large for it refuses trees that are wrong."""
    topology = parse("dgx-a100:2")
    trees = pack(topology, Collective.make("all_gather", 16))
    schedule = run(topology, Collective.make("all_gather", 16), 1 << 20, Budget())
    assert forest.busiest_link(topology, trees) == seconds_per_byte(schedule)
    twice = trees.dst.copy()
    twice[3, 5] = twice[3, 4]
    with pytest.raises(WrongScheduleError, match="does not reach every rank"):
        forest.busiest_link(topology, replace(trees, dst=twice))
    early = trees.src[:, ::-1].copy()
    with pytest.raises(WrongScheduleError, match="does not hold"):
        forest.busiest_link(topology, replace(trees, src=early))
    astray = trees.route.copy()
    astray[0] = np.roll(astray[0], 1)
    with pytest.raises(WrongScheduleError, match="a route"):
        forest.busiest_link(topology, replace(trees, route=astray))


def test_schedules_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    """On processes; one too large for them, and one with a switch that adds, are not counted."""
    gather = greedy(parse("ring:3"), Collective.make("all_gather", 3), 1 << 20, Budget())
    reduce = greedy(parse("ring:3"), Collective.make("reduce", 3, root=2), 1 << 20, Budget())
    large = greedy(parse("ring:17"), Collective.make("broadcast", 17), 1 << 20, Budget())
    summed = engine_named("in_network").run(
        parse("star:3,aggregator=sharp"), Collective.make("all_reduce", 3), 1 << 20, Budget()
    )
    row = Row(("a",), schedules=(gather, reduce, large, summed))
    table = proven_table("t", "", (Part("", (("name", 4),), lambda: iter([row])),))
    assert show(table.parts(Namespace(run=True)))
    assert "run bit-exact: 2 schedules" in capsys.readouterr().out


def test_a_schedule_that_does_not_run_is_no_row() -> None:
    wrong = greedy(parse("ring:3"), Collective.make("all_gather", 3), 1 << 20, Budget())
    wrong = replace(wrong, transfers=Transfers.of(wrong.transfers.rows()[1:]))
    with pytest.raises(WrongResultError, match="all_gather on ring:3"):
        execute(wrong)


@pytest.mark.parametrize("seed", range(4))
def test_damage_is_as_much_as_is_said_and_cuts_nobody_off(seed: int) -> None:
    """A cable in a hundred; schedules exist for what is left."""
    whole = parse("torus:12x12")
    lost, slowed = broken.damage(whole, random.Random(seed))
    assert len(lost) + len(slowed) == len(whole.links) // 2 // broken.PART == 2
    wires = degraded(whole, lost, slowed).topology
    assert len(wires.links) == len(whole.links) - 2 * len(lost)
    assert sum(link.bandwidth < whole.links[0].bandwidth for link in wires.links) == 2 * len(slowed)
    assert bounds_of(wires, Collective.make("all_gather", wires.ranks)).throughput.seconds_per_byte > 0


def test_damage_slows_what_would_cut_off() -> None:
    """On a star no cable can be lost without some rank losing its only one."""
    lost, slowed = broken.damage(parse("star:8"), random.Random(0))
    assert not lost
    assert len(slowed) == 2
