"""Process groups inside a larger machine: every engine keeps to the members, and others neither relay nor hear."""

from __future__ import annotations

import pytest

from syntony.base.arguments import ranks
from syntony.base.command import UserError
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker import check_schedule
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.registry import ENGINES
from syntony.synth.model.collective import Collective, CollectiveError
from syntony.topologies import parse

GROUPS = [
    ("torus:3x3", (0, 1, 2, 5)),
    ("dgx1", (5, 1, 0, 2)),
    ("star:6,aggregator=sharp", (1, 3, 5)),
]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize(("name", "members"), GROUPS, ids=[name for name, _ in GROUPS])
def test_engines_serve_groups(engine, name: str, members: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    topology = parse(name)
    for kind in ("all_gather", "all_to_all"):
        collective = Collective.make(kind, members=members)
        try:
            schedule = engine.run(topology, collective, 1 << 16, Budget(1.0))
        except EngineError:
            continue  # it does not do this kind, not on these wires, or not in time
        verdict = check_schedule(schedule)
        assert verdict, verdict.fault
        assert schedule.collective.members == members
        used = {topology.links[link].src for link in schedule.transfers.link.tolist()}
        assert all(topology.nodes[node].kind != "rank" or node in members for node in used)


def test_the_cut_between_members_is_named() -> None:
    topology = parse("mesh:2x4")
    said = r"no path leads from ranks 0\.\.1 to rank 6, so no all_gather exists \(ranks that are not members do not "
    said += r"relay\)"
    with pytest.raises(CollectiveError, match=said):
        bounds_of(topology, Collective.make("all_gather", members=(0, 1, 6)))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "all_to_all", "gather"])
def test_every_engine_names_the_cut_of_a_broken_network(engine, kind: str) -> None:  # type: ignore[no-untyped-def]
    topology = parse("ring:6,without=0-1,without=3-4")
    with pytest.raises(UserError) as refused:
        engine.run(topology, Collective.make(kind, 6), 1 << 16, Budget(1.0))
    cut = "no path leads from ranks 1..3 to ranks 0, 4..5" in str(refused.value) or (
        "no path leads from ranks 0, 4..5 to ranks 1..3" in str(refused.value)
    )
    assert cut or f"engine {engine.name}" in str(refused.value)


def test_ranks_are_written_as_ranges() -> None:
    assert ranks("0-3,16,8-9") == (0, 1, 2, 3, 16, 8, 9)
    for text in ("3-1", "0,0", "0-2,1", "a", "0-", "-1", ""):
        with pytest.raises(Exception, match="'"):
            ranks(text)
