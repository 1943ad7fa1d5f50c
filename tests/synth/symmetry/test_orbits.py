"""Symmetric schedules proven without expansion say what the expanded ones say; trees by orbits meet the bound."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from syntony.base.command import UserError
from syntony.synth.checker import check_schedule
from syntony.synth.checker.schedules.orbits import orbits_of
from syntony.synth.engines.engine import MEETS_BOUND, Budget
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.forest.orbits import trees_by_orbits
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.link_loads import link_loads
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.parse import parse

SMALL = (
    "ring:5",
    "torus:3x4",
    "rail:boxes=3,gpus=2,rails=2",
    "dgx-a100:2",
    "hypercube:3",
    "rail:boxes=4,gpus=4,rails=2",
)
KINDS = ("all_gather", "reduce_scatter", "all_reduce")


def folded(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> Schedule:
    """By engine forest, as for large networks; all_to_all by engine flow."""
    topology = parse(name)
    monkeypatch.setattr(forest, "FOLDED", 2)
    engine = flow if kind == "all_to_all" else forest
    return engine.run(topology, Collective.make(kind, topology.ranks), 1, Budget())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SMALL)
def test_trees_by_orbits_meet_the_bound(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = folded(name, kind, monkeypatch)
    if kind == "all_reduce" and not schedule.symmetry:
        pytest.skip("this one is packed for all roots")
    assert schedule.symmetry
    assert orbits_of(schedule) is not None
    assert check_schedule(schedule)
    whole = expand(schedule)
    assert check_schedule(whole)
    assert np.array_equal(link_loads(schedule), link_loads(whole))
    assert kind == "all_reduce" or gap_of(schedule) == gap_of(whole) == 0
    assert (schedule.proof == MEETS_BOUND) == (gap_of(schedule) == 0)


def test_uneven_blocks_keep_the_symmetry_that_is_left() -> None:
    topology = parse("torus:2x4")
    sizes = [1, 3] * 4
    found = trees_by_orbits(Network(topology, Collective.make("all_gather", 8, block_sizes=sizes)))
    assert found is not None
    assert check_schedule(found)
    assert check_schedule(expand(found))
    assert np.array_equal(link_loads(found), link_loads(expand(found)))


def test_without_declared_symmetry_there_are_no_orbits() -> None:
    bare = replace(parse("ring:4"), generators=())
    assert trees_by_orbits(Network(bare, Collective.make("all_gather", 4))) is None


def mutant(schedule: Schedule, chance: random.Random) -> Schedule:
    """The schedule with one thing changed: a transfer, a route, the claim of rounds, or a generator."""
    rows = schedule.transfers.rows()
    at = chance.randrange(len(rows))
    row, other = rows[at], rows[chance.randrange(len(rows))]
    ranks, links = schedule.collective.ranks, len(schedule.topology.links)
    match chance.randrange(9):
        case 0:
            del rows[at]
        case 1:
            rows.append(row)
        case 2:
            rows[at] = replace(row, step=max(0, row.step + chance.choice((-1, 1, 2))))
        case 3:
            rows[at] = replace(row, src=chance.randrange(ranks))
        case 4:
            rows[at] = replace(row, dst=chance.randrange(ranks), route=other.route)
        case 5:
            rows[at] = replace(row, route=(chance.randrange(links), *row.route[1:]))
        case 6:
            rows[at] = replace(row, value=other.value, result=other.result)
        case 7:
            rounds = [chance.randrange(1, 4) for _ in range(schedule.steps)]
            return replace(schedule, rounds=np.asarray(rounds, np.int32))
        case _:
            kept = list(schedule.symmetry)
            one = chance.randrange(len(kept))
            moved = list(kept[one].chunks)
            a, b = chance.randrange(len(moved)), chance.randrange(len(moved))
            moved[a], moved[b] = moved[b], moved[a]
            kept[one] = replace(kept[one], chunks=tuple(moved))
            return replace(schedule, symmetry=tuple(kept))
    return replace(schedule, transfers=Transfers.of(rows))


def verdict(schedule: Schedule) -> bool | str:
    """The checker's word, or that the generators do not fit."""
    try:
        return bool(check_schedule(schedule))
    except UserError:
        return "no symmetry"


@pytest.mark.parametrize("kind", [*KINDS, "all_to_all"])
def test_mutants_are_judged_as_if_expanded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_mutants_are_judged_alike("ring:5", kind, 10, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("kind", [*KINDS, "all_to_all"])
@pytest.mark.parametrize("name", SMALL[:4])
def test_many_mutants_are_judged_as_if_expanded(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_mutants_are_judged_alike(name, kind, 25, monkeypatch)


def assert_mutants_are_judged_alike(name: str, kind: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants of the engine's schedule: by orbits and expanded, the checker says the same."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    schedule = folded(name, kind, monkeypatch)
    if not schedule.symmetry:
        pytest.skip("this one is packed for all roots")
    for _ in range(count):
        changed = mutant(schedule, chance)
        told = verdict(changed)
        monkeypatch.setattr("syntony.synth.checker.schedules.check.orbits_of", lambda schedule: None)
        assert verdict(changed) == told, changed.transfers.rows()
        monkeypatch.setattr("syntony.synth.checker.schedules.check.orbits_of", orbits_of)


def test_generators_that_do_not_keep_what_is_demanded_are_not_believed() -> None:
    schedule = flow.run(parse("torus:3x3"), Collective.make("all_to_all", 9), 1, Budget())
    wrong = replace(schedule.symmetry[0], nodes=tuple(reversed(schedule.symmetry[0].nodes)))
    assert orbits_of(replace(schedule, symmetry=(wrong,))) is None
