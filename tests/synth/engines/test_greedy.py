"""The greedy engine on named and random networks: every schedule is right, by replay and by the checker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.checker import check_schedule
from syntony.synth.engines.auto import run as auto
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError
from syntony.synth.engines.greedy import run
from syntony.synth.engines.registry import ENGINES, engine_named
from syntony.synth.model.collective import KINDS, Collective, CollectiveError
from syntony.synth.model.network import Network
from syntony.synth.model.routes import routes_of
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.parse import parse
from tests.sampled import examples, one_in
from tests.synth.networks import collectives, networks, replay

NAMES = ["dgx1", "dgx-a100:2", "ring:5", "star:4", "mesh:2x3", "torus:3x3", "full:2", "rail:boxes=2,gpus=4,rails=2"]


@pytest.mark.parametrize(("name", "kind"), one_in(2, NAMES, KINDS))
def test_named_networks(name: str, kind: str) -> None:
    topology = parse(name)
    schedule = run(topology, Collective.make(kind, topology.ranks), 1 << 20, Budget())
    replay(schedule)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    gap = gap_of(schedule)
    assert gap is not None
    assert gap >= 0


@examples(100)
@given(data=st.data())
def test_random_networks(data: st.DataObject) -> None:
    topology = data.draw(networks())
    schedule = run(topology, data.draw(collectives(topology)), data.draw(st.sampled_from([1, 1 << 20])), Budget())
    replay(schedule)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault


def test_slow_wires_carry_each_block_once() -> None:
    """Between two boxes nothing crosses twice, though every rank could send it across itself."""
    topology = parse("dgx-a100:2")
    schedule = expand(run(topology, Collective.make("all_gather", 16), 1 << 30, Budget()))
    crossings = [row.value for row in schedule.transfers.rows() if (row.src < 8) != (row.dst < 8)]
    assert len(crossings) <= 16 * 1.25
    gap = gap_of(schedule)
    assert gap is not None
    assert gap < 0.25


def test_members_relay_and_others_do_not() -> None:
    topology = parse("mesh:3x3")
    schedule = run(topology, Collective.make("all_gather", members=(0, 1, 2, 5)), 1000, Budget())
    replay(schedule)
    with pytest.raises(CollectiveError, match="no path leads"):
        run(topology, Collective.make("all_gather", members=(0, 8)), 1000, Budget())


def test_the_same_question_has_the_same_answer() -> None:
    topology = parse("torus:3x3")
    collective = Collective.make("all_to_all", 9)
    assert run(topology, collective, 1000, Budget()) == run(topology, collective, 1000, Budget())


def test_limits_are_told() -> None:
    topology, collective = parse("ring:4"), Collective.make("all_gather", 4)
    with pytest.raises(EngineError, match="takes no --steps or --rounds"):
        run(topology, collective, 1000, Budget(steps=2))
    with pytest.raises(OutOfTimeError, match="needs more than 0 s"):
        run(topology, collective, 1000, Budget(timeout=0))


def test_a_hundred_ranks() -> None:
    topology = parse("torus:10x10")
    schedule = run(topology, Collective.make("all_gather", 100), 1 << 30, Budget())
    assert len(expand(schedule).transfers) == 100 * 99
    gap = gap_of(schedule)
    assert gap is not None
    assert gap < 0.5


def test_auto_takes_the_faster_one() -> None:
    topology, collective = parse("ring:4"), Collective.make("all_reduce", 4)
    assert auto(topology, collective, 1 << 20, Budget(5)).engine in ("sccl", "forest", "flow", "greedy")
    assert auto(topology, collective, 1 << 20, Budget(60, steps=4, rounds=6)).engine == "sccl"
    with pytest.raises(EngineError, match=r"no engine 'scl' \(did you mean sccl\?\); the engines are auto,"):
        engine_named("scl")
    assert [engine_named(engine.name) for engine in ENGINES] == list(ENGINES)


def test_routes_cross_switches_but_no_rank() -> None:
    topology = parse("dgx-a100:2")
    network = Network(topology, Collective.make("all_gather", 16))
    routes = routes_of(network).routes
    assert {(route.src, route.dst) for route in routes} == {(s, d) for s in range(16) for d in range(16) if s != d}
    for route in routes:
        ends = [topology.links[link] for link in route.links]
        assert [link.dst for link in ends[:-1]] == [link.src for link in ends[1:]]
        assert all(topology.nodes[link.dst].kind != "rank" for link in ends[:-1])
        assert route.bandwidth == min(link.bandwidth for link in ends)
