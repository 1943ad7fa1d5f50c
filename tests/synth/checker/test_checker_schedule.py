"""The checker of Schedules: each kind of fault by name, claims recomputed, symmetric schedules expanded first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker import check_schedule
from syntony.synth.checker.schedules.claims import check_bounds
from syntony.synth.lowering.lower import lower
from syntony.synth.model.bound import Bounds, Cut, Latency, Partition, Throughput
from syntony.synth.model.collective import KINDS, Collective
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.target import CPU, TargetError
from syntony.synth.model.values import ValueBuilder, Values
from syntony.synth.symmetry.groups import fold
from syntony.topologies.aggregator import Aggregator
from syntony.topologies.parse import parse
from tests.synth.schedules import (
    SCHEDULES,
    chain_all_reduce,
    leaf_spine_all_reduce,
    link_between,
    ring_all_gather,
    star_reduce,
    switch_all_reduce,
    two_leaves,
)


def with_rows(original: Schedule, edit: Callable[[list[Transfer]], object]) -> Schedule:
    rows = original.transfers.rows()
    edit(rows)
    return replace(original, transfers=Transfers.of(rows))


def fault_of(schedule: Schedule) -> str:
    verdict = check_schedule(schedule)
    assert not verdict.valid
    assert verdict.fault is not None
    return verdict.fault


def test_source_does_not_hold_the_value() -> None:
    broken = with_rows(ring_all_gather(4), lambda rows: rows.pop(0))
    verdict = check_schedule(broken)
    assert verdict.fault == "step 1, transfer 4 (chunk 0, rank 1 -> rank 2): rank 1 does not hold chunk 0 by then"
    assert (verdict.agent, verdict.step, verdict.transfer, verdict.chunk) == (1, 1, 4, 0)


def test_last_receipt_is_missing() -> None:
    assert fault_of(with_rows(ring_all_gather(4), lambda rows: rows.pop())) == (
        "after step 2, the last, rank 0 never receives chunk 1"
    )


def test_sum_misses_an_operand() -> None:
    broken = with_rows(star_reduce(4), lambda rows: rows.pop(1))
    assert fault_of(broken) == (
        "step 0, transfer 0 (chunk 0, rank 1 -> rank 0): rank 0 never gets chunk 0 summed over ranks 2, "
        "the other operand of chunk 0 summed over ranks 0, 1, 2, 3"
    )


def test_duplicate_is_needless() -> None:
    fault = fault_of(with_rows(ring_all_gather(4), lambda rows: rows.append(replace(rows[0], step=2))))
    assert fault == "step 2, transfer 12 (chunk 0, rank 0 -> rank 1): needless: rank 1 holds chunk 0 already"


def test_useless_transfer_is_needless() -> None:
    gather = Collective.make("gather", 3)
    original = ring_all_gather(3)
    # Block 2 goes to the root at once, block 1 by way of rank 2; block 0 goes to rank 1 for nothing.
    rows = [row for row in original.transfers.rows() if row.dst == 0 or (row.src, row.step) in ((1, 0), (0, 0))]
    fault = fault_of(replace(original, collective=gather, transfers=Transfers.of(rows)))
    assert fault.endswith("needless: rank 1 neither needs it nor passes it on to who does")


def test_link_is_overfull() -> None:
    weights = Collective.make("all_gather", 4, block_sizes=[1, 1, 1, 2])
    fault = fault_of(replace(ring_all_gather(4), collective=weights))
    assert "would carry weight 2; in 1 rounds it carries 1" in fault
    assert fault.startswith("step 0, transfer 3 (chunk 3, rank 3 -> rank 0): link ")


@pytest.mark.parametrize(
    ("rounds", "told"), [([1, 1], "3 steps but rounds for 2"), ([1, 0, 1], "step 1 lasts 0 rounds")]
)
def test_rounds_are_counted(rounds: list[int], told: str) -> None:
    assert told in fault_of(replace(ring_all_gather(4), rounds=np.asarray(rounds)))


def test_routes() -> None:
    original = ring_all_gather(4)
    links = original.topology.links
    wrong_start = next(link.id for link in links if link.src == 2)
    through = (original.transfers.route(0)[0], next(link.id for link in links if (link.src, link.dst) == (1, 2)))

    def first(**values: object) -> Schedule:
        return with_rows(original, lambda rows: rows.__setitem__(0, replace(rows[0], **values)))

    assert "of its route leaves rank2" in fault_of(first(route=(wrong_start,))).replace("rank 2", "rank2")
    assert "only switches and NICs forward" in fault_of(first(route=through, dst=2))
    assert "its route is empty" in fault_of(first(route=()))
    assert "link 99 does not exist in ring:4" in fault_of(first(route=(99,)))
    assert "not at rank 3" in fault_of(first(dst=3))


def test_contribution_summed_twice() -> None:
    original = chain_all_reduce(3)
    values = original.values
    operand = values.operand.copy()
    operand[-1] = 0  # the whole sum adds rank 0 again
    broken = replace(original, values=Values(values.chunk, values.rank, values.offset, operand))
    assert fault_of(broken).endswith("the contribution of rank 0 is summed twice")


def test_sums_need_a_collective_that_sums() -> None:
    original = chain_all_reduce(3)
    broken = replace(original, collective=Collective.make("broadcast", 3))
    assert "value 1 (chunk 0): rank 1 does not start with this chunk" in fault_of(broken)


def test_copies_of_a_sum_must_agree_in_order() -> None:
    """Each of three ranks sums by itself, starting with its own: right sums, different bits."""
    topology, collective = parse("full:3"), Collective.make("all_reduce", 3)
    values = ValueBuilder()
    own = [values.contribution(0, rank) for rank in range(3)]
    rows = []
    for dst in range(3):
        total = values.sum([own[(dst + k) % 3] for k in range(3)])
        rows += [
            Transfer(own[src], total, src, dst, 0, (link_between(topology, src, dst),))
            for src in range(3)
            if src != dst
        ]
    broken = Schedule(topology, collective, values.build(), Transfers.of(rows))
    assert fault_of(broken) == "rank 1 ends with chunk 0 summed in another order than rank 0"


@pytest.mark.parametrize("name", SCHEDULES)
def test_true_bounds_are_believed_and_others_not(name: str) -> None:
    original = SCHEDULES[name]()
    bounds = bounds_of(original.topology, original.collective)
    assert check_schedule(replace(original, bounds=bounds)).fault is None
    better = replace(
        bounds, throughput=replace(bounds.throughput, seconds_per_byte=bounds.throughput.seconds_per_byte * 2)
    )
    assert "seconds per byte at least is false" in fault_of(replace(original, bounds=better))
    farther = replace(bounds, latency=replace(bounds.latency, steps=bounds.latency.steps + 1))
    assert "steps at least is false" in fault_of(replace(original, bounds=farther))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topology", ["ring:5", "mesh:2x3", "dgx1", "dgx-a100:1"])
def test_bounds_of_every_kind_follow_from_their_witnesses(topology: str, kind: str) -> None:
    wires = parse(topology)
    collective = Collective.make(kind, wires.ranks, 2)
    empty = Schedule(wires, collective, Values([], [], [0], []), Transfers.of([]), bounds=bounds_of(wires, collective))
    check_bounds(empty)


def test_a_cut_that_forgets_a_link_is_refused() -> None:
    original = ring_all_gather(4)
    bounds = bounds_of(original.topology, original.collective)
    assert isinstance(bounds.throughput.witness, Cut)
    rate = bounds.throughput.seconds_per_byte * Fraction(3, 2)
    lie = Bounds(Latency(0, 0.0), Throughput(rate, bounds.throughput.witness))
    assert f"its witness proves {bounds.throughput.seconds_per_byte}" in fault_of(replace(original, bounds=lie))


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (((0, 1), (1, 2, 3)), "its parts must be disjoint"),
        (((0, 1), (2,)), "each part must hold members, and the parts all of them"),
        (((0, 1, 2, 3), ()), "each part must hold members, and the parts all of them"),
    ],
)
def test_a_partition_that_is_none_is_refused(parts: tuple[tuple[int, ...], ...], told: str) -> None:
    original = chain_all_reduce(4)
    links = original.topology.links
    witness = Partition(parts, tuple(link.id for link in links), Fraction(2), sum(link.bandwidth for link in links))
    assert told in fault_of(replace(original, bounds=Bounds(Latency(0, 0.0), Throughput.by(witness))))


def test_a_partition_bounds_no_other_collective() -> None:
    original = ring_all_gather(4)
    links = original.topology.links
    witness = Partition(
        ((0, 1), (2, 3)), tuple(link.id for link in links), Fraction(2), sum(link.bandwidth for link in links)
    )
    lie = Bounds(Latency(0, 0.0), Throughput.by(witness))
    assert "a partition bounds all_reduce only" in fault_of(replace(original, bounds=lie))


@pytest.mark.parametrize(
    ("chunk", "rank", "told"),
    [(4, 3, "the collective has chunks 0..3"), (-1, 3, "the collective has chunks 0..3"), (3, 4, "rank 4 does not")],
)
def test_values_are_those_of_the_collective(chunk: int, rank: int, told: str) -> None:
    """The last of four values says a chunk or a rank just outside."""
    original = ring_all_gather(4)
    values = original.values
    chunks, ranks = values.chunk.copy(), values.rank.copy()
    chunks[-1], ranks[-1] = chunk, rank
    assert told in fault_of(replace(original, values=Values(chunks, ranks, values.offset, values.operand)))


@pytest.mark.parametrize("name", SCHEDULES)
def test_folded_schedules_are_checked_whole(name: str) -> None:
    original = SCHEDULES[name]()
    assert check_schedule(fold(original)).fault is None


# --- switches ---------------------------------------------------------------------------------------------------------


def with_switches(original: Schedule, **abilities: Any) -> Schedule:
    """The same schedule on switches of other abilities; agents keep their numbers."""
    nodes = tuple(replace(node, **abilities) if node.kind == "switch" else node for node in original.topology.nodes)
    return replace(original, topology=replace(original.topology, nodes=nodes))


def aggregator_of(schedule: Schedule) -> Aggregator:
    aggregator = schedule.topology.nodes[-1].aggregator
    assert aggregator is not None
    return aggregator


def test_agents_are_ranks_and_then_able_switches() -> None:
    schedule = leaf_spine_all_reduce()
    assert schedule.agents == (0, 1, 2, 3, 4, 5, 6)
    assert [schedule.name_of(agent) for agent in (0, 6)] == ["rank 0", "spine"]
    only_spine = replace(schedule, topology=two_leaves().with_aggregator(aggregator_of(schedule), "spine"))
    assert only_spine.node_of(4) == 6
    assert schedule.in_network
    assert not ring_all_gather(4).in_network


def test_a_switch_that_does_not_add_is_refused_by_name() -> None:
    fault = fault_of(with_switches(switch_all_reduce(3), reduces=False, aggregator=None))
    assert fault == "step 0, transfer 0 (chunk 0, rank 0 -> switch switch): it does not reduce"


def test_a_switch_that_does_not_multicast_copies_nothing() -> None:
    fault = fault_of(with_switches(switch_all_reduce(3), multicast=False))
    assert "switch switch -> rank 1" in fault
    assert "takes this value from it already, and it does not multicast" in fault
    assert "can do nothing with a copy" in fault_of(with_switches(leaf_spine_all_reduce(), multicast=False))


def test_a_number_format_that_the_switch_lacks_is_refused() -> None:
    fault = fault_of(replace(switch_all_reduce(3), number_format="float32"))
    assert "switchml adds int32_block, int32, not float32" in fault
    assert "not an unnamed number format" in fault_of(replace(switch_all_reduce(3), number_format=""))
    # Without limits worth naming, any format will do, and none as well.
    assert check_schedule(replace(with_switches(switch_all_reduce(3), aggregator=None), number_format="")).fault is None


def test_more_sums_at_once_than_slots_are_refused() -> None:
    original = switch_all_reduce(3)
    late = [replace(row, step=2) if row.src == 3 else row for row in original.transfers.rows()]
    together = replace(original, transfers=Transfers.of(late))
    assert check_schedule(original).fault is None
    fault = fault_of(together)
    assert fault.startswith("step 1, transfer ")
    assert "it would hold 2 sums at once; switchml has 1 slots" in fault
    roomy = replace(aggregator_of(original), slots=2)
    assert check_schedule(with_switches(together, aggregator=roomy)).fault is None


def test_a_route_does_not_pass_through_its_own_end() -> None:
    original = leaf_spine_all_reduce()
    spine = [link_between(original.topology, *ends) for ends in ((4, 6), (6, 4), (4, 6))]

    def detour(rows: list[Transfer]) -> None:
        at = next(i for i, row in enumerate(rows) if (row.src, row.dst) == (4, 6))
        rows[at] = replace(rows[at], route=tuple(spine))

    assert "its route passes through spine, which is one of its ends" in fault_of(with_rows(original, detour))


def test_a_switch_adds_only_what_arrives_for_the_sum() -> None:
    original = switch_all_reduce(3)
    fault = fault_of(with_rows(original, lambda rows: rows.pop(0)))
    assert "switch switch does not hold chunk 0 summed over ranks 0, 1, 2 by then" in fault
    # A copy that the switch holds is no operand, either; nothing after it is looked at.
    copied = [replace(row, result=row.value) if row.src == 0 else row for row in original.transfers.rows()]
    only_up = [row for row in copied if row.step == 0]
    assert "switch switch never gets chunk 0 summed over ranks 0, the other operand" in fault_of(
        replace(original, transfers=Transfers.of(only_up))
    )


def test_programs_refuse_switches_by_name() -> None:
    with pytest.raises(TargetError, match="makes switch spine add or copy"):
        lower(leaf_spine_all_reduce(), CPU)
