"""Engine pipeline, and what it is made of: slices, list scheduling, trees in a reservation table."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.synth.checker import check_program, check_schedule
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.pipeline import search as pipeline
from syntony.synth.engines.pipeline.list_scheduling import by_urgency
from syntony.synth.engines.pipeline.slicing import in_slices
from syntony.synth.engines.pipeline.trees import Grower, Hop, ReservationTable, pack
from syntony.synth.lowering.lower import lower
from syntony.synth.model.collective import Collective
from syntony.synth.model.routes import Route
from syntony.synth.model.schedule import Schedule
from syntony.synth.model.target import CPU
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.parse import parse
from tests.synth import random_executor
from tests.synth.networks import collectives, networks

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


def valid(schedule: Schedule) -> Schedule:
    """The schedule, which the checker has proven. Operands of a sum may come before what they are added to."""
    assert check_schedule(schedule).fault is None
    return schedule


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["mesh:2x3", "ring:4", "star:4", "dgx1", "mesh:2x2,bandwidth=1e9x3e9"])
def test_named_networks_are_right_and_no_slower_than_others(name: str, kind: str) -> None:
    topology = parse(name)
    collective = Collective.make(kind, topology.ranks, root=1 if kind in ("broadcast", "reduce") else 0)
    found = valid(pipeline.run(topology, collective, 200_000, Budget()))
    assert found.engine == "pipeline"
    gap = gap_of(found)
    assert gap is not None
    assert gap >= 0
    others = [engine.run(topology, collective, 200_000, Budget()) for engine in (greedy, forest)]
    assert simulate(found, 200_000).seconds <= min(simulate(other, 200_000).seconds for other in others)
    if len(found.transfers) > 500:
        return
    program = lower(found, CPU)
    assert check_program(program).fault is None
    random_executor.run(program, False, random.Random(name + kind))


def test_between_small_and_large_it_is_faster() -> None:
    topology = parse("mesh:3x3,bandwidth=50e9")
    collective = Collective.make("all_reduce", 9)
    times = [simulate(e.run(topology, collective, 10**6, Budget()), 10**6).seconds for e in (greedy, forest)]
    assert simulate(pipeline.run(topology, collective, 10**6, Budget()), 10**6).seconds < 0.9 * min(times)


def test_what_it_does_not_do_is_said() -> None:
    topology = parse("ring:4")
    with pytest.raises(
        EngineError, match="engine pipeline packs trees, which all_to_all does not need; use --engine flow"
    ):
        pipeline.run(topology, Collective.make("all_to_all", 4), 1, Budget())
    with pytest.raises(EngineError, match="engine pipeline takes no --steps or --rounds"):
        pipeline.run(topology, Collective.make("all_gather", 4), 1, Budget(steps=3))


def test_the_least_cases() -> None:
    valid(pipeline.run(parse("ring:2"), Collective.make("all_reduce", 2), 0, Budget()))
    wires = parse("ring:2,alpha=0")
    valid(pipeline.run(wires, Collective.make("all_reduce", 2), 0, Budget()))
    alone = Collective.make("all_reduce", members=(1,))
    assert not len(pipeline.run(parse("ring:3"), alone, 100, Budget()).transfers)


@settings(max_examples=12)
@given(data=st.data(), slices=st.integers(1, 4), size=st.sampled_from([0, 1, 1 << 20]))
def test_slices_in_any_order_are_right(data: st.DataObject, slices: int, size: int) -> None:
    topology = data.draw(networks())
    schedule = greedy.run(topology, data.draw(collectives(topology)), 1 << 20, Budget())
    cut = valid(in_slices(schedule, slices))
    assert cut.collective.unit * slices == schedule.collective.unit
    assert seconds_per_byte(cut) == seconds_per_byte(expand(schedule)) or len(schedule.rounds)
    ordered = valid(by_urgency(cut, size))
    assert sorted(ordered.transfers.value.tolist()) == sorted(cut.transfers.value.tolist())


def hop(src: int, dst: int, link: int, slots: int = 1) -> Hop:
    return Hop(Route(src, dst, (link,), 0.0, Fraction(1)), (slots,))


def test_a_reservation_table_wraps_round() -> None:
    table = ReservationTable(4, 1)
    way = hop(0, 1, 0, slots=3)
    assert table.earliest(way, 6, backwards=False) == 6
    table.reserve(way, 6, backwards=False)  # slots 2, 3, 0
    assert table.left(way) == 1
    assert table.earliest(way, 0, backwards=False) is None
    single = hop(0, 1, 0)
    assert table.earliest(single, 2, backwards=False) == 5
    assert table.earliest(single, 0, backwards=True) == 2  # from slot -2 back to -3, which is slot 1
    assert table.earliest(hop(0, 1, 0, slots=5), 0, backwards=False) is None


def test_trees_share_no_slot() -> None:
    hops = [hop(a, (a + d) % 4, 2 * a + (d > 0)) for a in range(4) for d in (1, -1)]
    table = ReservationTable(6, 8)
    trees = pack(Grower(hops, 4), table, [[0, 1, 2, 3]] * 4, True, True)
    assert trees is not None
    taken = set()
    for tree in trees:
        assert len(tree.up) == len(tree.down) == 3
        for backwards, way in ((True, tree.up), (False, tree.down)):
            for step, time in way:
                slot = (step.route.links[0], (-time - 1 if backwards else time) % 6)
                assert slot not in taken
                taken.add(slot)
    assert pack(Grower(hops, 4), ReservationTable(1, 8), [[0]] * 4, True, True) is None
    assert np.ptp([len(tree.up) for tree in trees]) == 0
