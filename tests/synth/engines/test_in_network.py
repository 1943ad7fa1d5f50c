"""Engine in_network: every schedule proven and replayed, at the bounds where they can be met, or refused by name."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.checker import check_schedule
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.in_network import run
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.aggregation_limits import aggregation_seconds_per_byte
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.aggregator import PROFILES, Aggregator
from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, Topology
from tests.sampled import examples
from tests.synth.networks import networks
from tests.synth.schedules import two_leaves, works

KINDS = ("all_reduce", "reduce_scatter", "reduce", "all_gather", "broadcast")


def in_network(topology: Topology, kind: str, chunks: int = 1, size: int = 1 << 24) -> Schedule:
    schedule = run(topology, Collective.make(kind, topology.ranks, chunks), size, Budget(60.0))
    assert check_schedule(schedule).fault is None
    return schedule


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "star:4,aggregator=switchml",
        "dgx-h100:1",
        "rail:boxes=3,gpus=4,rails=4,aggregator=sharp",
        "fat-tree:4,aggregator=sharp",
    ],
)
def test_the_throughput_bound_is_met(name: str, kind: str) -> None:
    schedule = in_network(parse(name), kind, chunks=16 if kind in ("all_reduce", "reduce", "broadcast") else 1)
    gap = gap_of(schedule)
    assert gap is not None
    # Sixteen chunks do not divide evenly among four rails and three boxes everywhere.
    assert gap <= (Fraction(1, 2) if name.startswith("rail") else 0), (gap, schedule.bounds)
    assert schedule.in_network
    if schedule.collective.ranks <= 8:
        assert works(schedule, runs=1)


def test_all_reduce_takes_half_of_what_rings_take() -> None:
    """Over 8 ranks a ring needs 2 * 7 / 8 of the size per link; the switch needs 1."""
    through = in_network(parse("star:8,aggregator=switchml"), "all_reduce")
    ring = engine_named("forest").run(parse("star:8"), Collective.make("all_reduce", 8), 1 << 24, Budget(60.0))
    assert seconds_per_byte(ring) / seconds_per_byte(through) == Fraction(7, 4)
    assert simulate(ring, 1 << 28).seconds > 1.6 * simulate(through, 1 << 28).seconds


def test_sums_are_made_in_rank_order_in_the_switch() -> None:
    schedule = in_network(parse("star:4,aggregator=switchml"), "all_reduce", chunks=2)
    values = schedule.values
    sums = [values.operands(value) for value in range(len(values)) if values.operands(value)]
    assert [[int(values.rank[term]) for term in terms] for terms in sums] == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert schedule.number_format == "int32_block"


def test_leaves_add_before_the_spine() -> None:
    schedule = in_network(two_leaves().with_aggregator(PROFILES["sharp"].aggregator), "all_reduce", chunks=3)
    uplinks = [link.id for link in schedule.topology.links if {link.src, link.dst} in ({4, 6}, {5, 6})]
    loads = np.bincount(schedule.transfers.link, minlength=len(schedule.topology.links))
    assert loads[uplinks].tolist() == [3, 3, 3, 3]  # one message per chunk and direction
    assert gap_of(schedule) == 0


def test_a_switch_that_only_forwards_makes_sums_go_on_side_by_side() -> None:
    only_spine = two_leaves().with_aggregator(PROFILES["sharp"].aggregator, "spine")
    schedule = in_network(only_spine, "all_reduce", chunks=2)
    assert seconds_per_byte(schedule) == 2 * Fraction(1, 10**9)  # both ranks of a leaf share its uplink


def test_chunks_spread_over_rails() -> None:
    schedule = in_network(parse("rail:boxes=4,gpus=4,rails=4,aggregator=sharp@rail*"), "all_reduce")
    busy = {schedule.name_of(agent) for agent in schedule.transfers.dst.tolist() if agent >= schedule.collective.ranks}
    assert busy == {"rail0", "rail1", "rail2", "rail3"}
    assert gap_of(schedule) == 0


def test_few_slots_are_enough_and_are_kept_to() -> None:
    for slots in (1, 2):
        topology = parse(f"star:3,aggregator=switchml,aggregator.slots={slots}")
        for kind in ("all_reduce", "reduce_scatter"):
            assert works(in_network(topology, kind, chunks=5), runs=1)


@pytest.mark.parametrize("kind", ["reduce", "reduce_scatter", "all_reduce"])
def test_boxes_that_do_not_multicast_help_with_sums(kind: str) -> None:
    schedule = in_network(parse("star:4,aggregator=netagg"), kind, chunks=4)
    assert schedule.number_format == "float32"
    assert works(schedule, runs=1)


def test_hot_parameters_take_the_switch_and_the_rest_the_ranks() -> None:
    schedule = in_network(parse("star:4,aggregator=libra,aggregator.hot=3/4"), "all_reduce", chunks=6)
    collective, values, transfers = schedule.collective, schedule.values, schedule.transfers
    by_switch = {
        int(values.chunk[value]) for value, dst in zip(transfers.value, transfers.dst, strict=True) if dst == 4
    }
    share = sum(collective.share(chunk) for chunk in by_switch)
    assert share == Fraction(3, 4)
    assert 0 < len(by_switch) < len(collective.chunks)
    assert works(schedule, runs=1)
    # The whole costs 3/4 by the switch and 1/4 of what rings cost: 2 * 3 / 4.
    assert seconds_per_byte(schedule) == (Fraction(3, 4) + Fraction(1, 4) * Fraction(3, 2)) / 10**9


def test_the_limits_of_aggregators_count() -> None:
    """512 slots of 1 KiB over two links of 1 us and 1e9 bytes/s each way; or an adder of 2e9 bytes/s for 4 workers."""
    fast = in_network(parse("star:4,aggregator=switchml"), "all_reduce")
    round_trip = 2 * (Fraction(1e-6) + Fraction(1024, 10**9))
    assert aggregation_seconds_per_byte(fast) == round_trip / (512 * 1024)
    assert gap_of(fast) == 0
    starved = in_network(parse("star:4,aggregator=switchml,aggregator.slots=2"), "all_reduce")
    assert seconds_per_byte(starved) == round_trip / 2048 > seconds_per_byte(fast)
    slow = in_network(parse("star:4,aggregator=switchml,aggregator.rate=2e9"), "all_reduce")
    assert seconds_per_byte(slow) == Fraction(4, 2 * 10**9)
    assert gap_of(slow) == 1


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        (
            "star:4",
            "all_reduce",
            "no switch of star:4 adds; give its switches a profile, such as star:4,aggregator=swi",
        ),
        ("ring:4", "reduce", "no switch of ring:4 adds"),
        ("star:4,aggregator=netagg", "broadcast", "no switch of star:4,aggregator=netagg copies"),
        ("star:4,aggregator=sharp", "all_to_all", "all_to_all neither sums nor copies, so no switch can help"),
        ("star:4,aggregator=libra", "reduce", "add 1/2 of a buffer, which this engine does for all_reduce"),
    ],
)
def test_where_no_switch_helps_it_says_so(name: str, kind: str, sentence: str) -> None:
    with pytest.raises(EngineError, match=sentence):
        in_network(parse(name), kind)


def test_switches_without_a_common_number_format_are_refused() -> None:
    mixed = two_leaves().with_aggregator(PROFILES["switchml"].aggregator, "leaf0")
    mixed = mixed.with_aggregator(PROFILES["fpisa"].aggregator, "leaf1")
    with pytest.raises(EngineError, match="the switches have no number format in common: leaf0"):
        in_network(mixed, "all_reduce")


def test_steps_and_time_are_limits() -> None:
    topology, collective = parse("star:4,aggregator=sharp"), Collective.make("all_reduce", 4)
    with pytest.raises(EngineError, match="takes no --steps"):
        run(topology, collective, 1 << 20, Budget(60.0, steps=2))
    with pytest.raises(EngineError, match="needs more than 0 s"):
        run(topology, collective, 1 << 20, Budget(0.0))


@st.composite
def able_networks(draw: st.DrawFn) -> Topology:
    """Random networks whose switches add or copy, or not, with few slots."""
    topology = draw(networks(max_ranks=5, switches=3))
    nodes = list(topology.nodes)
    for node in nodes:
        if node.kind == "switch":
            multicast, reduces = draw(st.booleans()), draw(st.booleans())
            slots = draw(st.sampled_from([None, 1, 2]))
            aggregator = Aggregator("any", slots, 64, ("float32",)) if reduces and draw(st.booleans()) else None
            nodes[node.id] = replace(node, multicast=multicast, reduces=reduces, aggregator=aggregator)
    return replace(topology, nodes=tuple(nodes))


@examples(150)
@given(able_networks(), st.sampled_from(KINDS), st.integers(1, 3))
def test_any_network_gets_a_schedule_that_works_or_a_sentence(topology: Topology, kind: str, chunks: int) -> None:
    collective = Collective.make(kind, topology.ranks, chunks)
    if collective.blocks == 1 and chunks == 1:
        collective = Collective.make(kind, topology.ranks, 2)  # not the 64 that it is cut into by itself
    try:
        schedule = run(topology, collective, 1 << 20, Budget(60.0))
    except EngineError as error:
        useful = [node.reduces if collective.combining else node.multicast for node in topology.nodes]
        assert not any(useful), error  # noqa: PT017
        return
    assert check_schedule(schedule).fault is None
    assert works(schedule, runs=1)


def test_a_sum_whose_last_switch_cannot_copy_is_copied_by_the_next() -> None:
    """All terms meet in `adds`, on their way to the one switch that adds and copies."""
    nodes = [*(Node(rank, "rank", f"n{rank}") for rank in range(3)), Node(3, "switch", "both", True, True)]
    nodes.append(Node(4, "switch", "adds", False, True))
    ways = [(0, 4), (1, 4), (2, 4), (4, 3), (3, 0), (3, 1), (4, 2)]
    links = [Link(number, src, dst, 0.0, Fraction(1)) for number, (src, dst) in enumerate(ways)]
    assert works(in_network(Topology("meeting", tuple(nodes), tuple(links)), "all_reduce", 2), runs=1)


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_eighteen_planes_are_equally_busy(kind: str) -> None:
    schedule = engine_named("in_network").run(parse("nvl72"), Collective.make(kind, 72), 1 << 26, Budget(60.0))
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    assert gap_of(schedule) == 0
