"""Engine pipeline, and what it is made of: slices, list scheduling, trees that negotiate."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _solve
from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.checker import check_program, check_schedule
from syntony.synth.engines import greedy, workers
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.pipeline import search as pipeline
from syntony.synth.engines.pipeline import slicing
from syntony.synth.engines.pipeline.list_scheduling import Ordering, _Tasks
from syntony.synth.engines.pipeline.negotiation import Negotiation, Tree
from syntony.synth.engines.pipeline.slicing import Dull, Slices, in_slices
from syntony.synth.lowering.lower import lower
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import routes_of
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.target import CPU
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.parse import parse
from tests.sampled import examples, one_in
from tests.synth import random_executor
from tests.synth.networks import collectives, networks

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


def valid(schedule: Schedule) -> Schedule:
    """The schedule, which the checker has proven. Operands of a sum may come before what they are added to."""
    assert check_schedule(schedule).fault is None
    return schedule


@pytest.mark.parametrize(
    ("name", "kind"), one_in(2, ["mesh:2x3", "ring:4", "star:4", "dgx1", "mesh:2x2,bandwidth=1e9x3e9"], KINDS)
)
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


@examples(12)
@given(data=st.data(), slices=st.integers(1, 4), size=st.sampled_from([0, 1, 1 << 20]))
def test_slices_in_any_order_are_right(data: st.DataObject, slices: int, size: int) -> None:
    topology = data.draw(networks())
    schedule = greedy.run(topology, data.draw(collectives(topology)), 1 << 20, Budget())
    cut = valid(in_slices(schedule, slices))
    assert cut.collective.unit * slices == schedule.collective.unit
    assert seconds_per_byte(cut) == seconds_per_byte(expand(schedule)) or len(schedule.rounds)
    due = Slices.of(schedule.collective.chunks, slices).due()
    orders = Ordering(cut, size)
    for ordered in (orders.by_urgency(), orders.by_urgency(due), orders.at_pace(due, slices)):
        assert sorted(valid(ordered).transfers.value.tolist()) == sorted(cut.transfers.value.tolist())


def test_light_chunks_are_cut_into_fewer_slices() -> None:
    """None is longer than those of the heaviest one, and they are due with these."""
    weights = np.asarray([8, 3, 1, 4])
    whole = Collective.make("broadcast", 3)
    cut = replace(whole, chunks=ChunkTable(np.zeros(4, np.int32), weights))
    routes = {(link.src, link.dst): (link.id,) for link in parse("ring:3").links}
    hops = [Transfer(chunk, chunk, src, src + 1, src, routes[src, src + 1]) for src in (0, 1) for chunk in range(4)]
    schedule = Schedule(parse("ring:3"), cut, ValueBuilder.of_chunks(cut).build(), Transfers.of(hops))
    sliced = valid(in_slices(schedule, 4))
    assert sliced.collective.chunks.weight.tolist() == [8] * 4 + [6] * 2 + [4] + [8] * 2
    assert sliced.collective.bytes_of_chunks(1 << 20).max() == cut.bytes_of_chunks(1 << 20).max() / 4
    assert Slices.of(cut.chunks, 4).due().tolist() == [0, 0.25, 0.5, 0.75, 0, 0.5, 0, 0, 0.5]
    assert Slices.of(cut.chunks, 4).due(2).tolist() == [0, 0.125, 0.25, 0.375, 0.5, 0.75, 0, 0.5, 0.75]
    at_first = sliced.transfers.src == 0
    assert sliced.transfers.step[at_first].tolist() == [0] * 4 + [1] + [2] * 3 + [3]
    assert simulate(sliced, 1 << 20).seconds < simulate(schedule, 1 << 20).seconds


@examples(20)
@given(data=st.data(), lagging=st.booleans())
def test_tasks_have_their_links_to_themselves_and_no_link_waits_for_nothing(data: st.DataObject, lagging: bool) -> None:
    topology = data.draw(networks())
    schedule = expand(greedy.run(topology, data.draw(collectives(topology)), 1 << 20, Budget()))
    tasks = _Tasks.of(schedule, 1 << 20)
    tasks.lag[:] = np.arange(len(tasks.lag)) % 3 * 1e-4 * lagging
    start, depth = _solve.list_schedule(tasks).values()
    end = start + tasks.seconds
    arrival = end + tasks.latency
    ready = np.zeros(len(start))
    np.maximum.at(ready, tasks.waiter, arrival[tasks.awaited])
    assert np.all(start >= ready)
    assert np.all(depth[tasks.waiter] > depth[tasks.awaited])
    busy: dict[int, list[tuple[float, float]]] = {}
    routes = [tasks.link[first:last].tolist() for first, last in zip(tasks.offset[:-1], tasks.offset[1:], strict=True)]
    taken = [routes[route] for route in tasks.route]
    for task, links in enumerate(taken):
        for link in links:
            busy.setdefault(link, []).append((start[task], end[task]))
    for spans in busy.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
    for task, links in enumerate(taken):  # while it waits, some link of its own is always busy
        now = ready[task]
        while now < start[task]:
            now = max((last for link in links for first, last in busy[link] if first <= now < last), default=np.nan)
        assert now == start[task] or not links


def test_wrong_tasks_are_refused() -> None:
    topology = parse("ring:3")
    schedule = expand(greedy.run(topology, Collective.make("broadcast", 3), 1 << 20, Budget()))
    tasks = _Tasks.of(schedule, 1 << 20)
    tasks.seconds[1] = -1.0
    with pytest.raises(ValueError, match=r"seconds\[1\] is -1"):
        tasks.times()
    tasks.seconds[1] = 1.0
    tasks.waiter[0] = 1_000
    with pytest.raises(ValueError, match=r"waiter\[0\] is not a task"):
        tasks.times()


@pytest.mark.parametrize("kind", KINDS)
def test_forests_are_trees_of_all_ranks(kind: str) -> None:
    topology = parse("torus:3x3,bandwidth=1e9x3e9")
    collective = Collective.make(kind, 9, root=4 if kind in ("broadcast", "reduce") else 0)
    negotiation = Negotiation.of(Network(topology, collective), 1 << 20, 1e-9, Budget())
    assert negotiation is not None
    numbers = set()
    for trees in chain.from_iterable(negotiation.forests()):
        numbers.add(len(trees))
        for tree in trees:
            assert not collective.rooted or tree.root == collective.root
            for way, backwards in ((tree.up, True), (tree.down, False)):
                assert bool(way) == (collective.combining if backwards else kind not in ("reduce", "reduce_scatter"))
                depth = {tree.root: 0}
                for route, time in way:
                    here, there = (route.dst, route.src) if backwards else (route.src, route.dst)
                    assert time == depth[here]
                    assert there not in depth
                    depth[there] = time + 1
                assert len(depth) == (9 if way else 1)
    assert len(numbers) > 1


def test_the_patient_load_links_evenly_and_the_impatient_are_shallow() -> None:
    topology = parse("star:8")
    hops = [(src, dst) for src in range(8) for dst in range(8) if src != dst]
    src, dst = np.asarray(hops, np.int32).T
    routes = {
        (route.src, route.dst): route for route in routes_of(Network(topology, Collective.make("broadcast", 8))).routes
    }
    links = np.asarray([link for hop in hops for link in routes[hop].links], np.int32)
    offset = np.concatenate(([0], np.cumsum([len(routes[hop].links) for hop in hops])))

    def grown(patience: float, time: float) -> _solve.NegotiatedTrees:
        return _solve.negotiated_trees(
            8, src.copy(), dst.copy(), np.full(len(hops), 10.0), offset, links, np.ones(len(topology.links)),
            np.zeros(2, np.int64), np.full(2, 0.5), np.zeros(2, np.uint8), time, patience, 24,
        )  # fmt: skip

    patient, impatient = grown(1e-6, 1.0), grown(1e6, 10.0)
    assert patient.busy < impatient.busy
    assert patient.depth > impatient.depth
    assert impatient.depth == pytest.approx(10.0)  # all hang on the root
    assert impatient.busy == pytest.approx(7.0)


def test_ranks_whose_wires_are_full_become_leaves() -> None:
    """Two trees of half the bytes fill every wire of a star; both are shallow only where each rank forwards one."""
    topology = parse("star:16,bandwidth=1e9,alpha=1e-6")
    size = 1 << 20
    negotiation = Negotiation.of(Network(topology, Collective.make("broadcast", 16)), size, 1e-9, Budget())
    assert negotiation is not None
    pairs, *_ = negotiation.forests()
    full = [trees for trees in pairs if max(_sent(trees).values()) <= 2]
    assert full
    assert min(max(time for tree in trees for _, time in tree.down) for trees in full) < 8


def _sent(trees: list[Tree]) -> dict[int, int]:
    return Counter(route.src for tree in trees for route, _ in tree.down)


def test_all_reduce_on_a_mesh_has_the_roots_of_the_best_trees() -> None:
    negotiation = Negotiation.of(Network(parse("mesh:3x3"), Collective.make("all_reduce", 9)), 1 << 20, 1e-10, Budget())
    assert negotiation is not None
    assert negotiation.time == pytest.approx((1 << 20) / 1.5e9)  # composed of two halves, 1.125e9
    assert negotiation.shares is not None
    assert negotiation.shares.sum() == pytest.approx(1)


def test_many_trees_are_for_long_messages_and_many_roots() -> None:
    network = Network(parse("mesh:2x2"), Collective.make("all_reduce", 4))

    def numbers(network: Network, size: int) -> list[int]:
        negotiation = Negotiation.of(network, size, 1e-9, Budget())
        assert negotiation is not None
        return [len(forest) for forests in negotiation.of_many_trees() for forest in forests[:1]]

    assert numbers(network, 64 << 20) == [32, 64]
    assert numbers(network, (64 << 20) - 1) == [32]
    assert numbers(network, 16 << 20) == []
    assert numbers(Network(parse("mesh:2x2"), Collective.make("broadcast", 4)), 64 << 20) == []
    assert numbers(Network(parse("mesh:4x4"), Collective.make("all_gather", 16)), 1 << 30) == [128]  # few enough hops


def test_wrong_columns_are_refused() -> None:
    one, hop = np.ones(1), np.zeros(1, np.int32)
    nothing, root, way = np.asarray([0, 1]), np.zeros(1, np.int64), np.zeros(1, np.uint8)
    with pytest.raises(ValueError, match="a receiver cannot be reached"):
        _solve.negotiated_trees(3, hop, hop + 1, one, nothing, hop, one, root, one, way, 1.0, 0.1, 2)
    with pytest.raises(ValueError, match="a hop ends at no receiver"):
        _solve.negotiated_trees(1, hop, hop + 1, one, nothing, hop, one, root, one, way, 1.0, 0.1, 2)


def test_slices_that_are_due_one_after_another_overlap_sums_and_copies() -> None:
    topology = parse("mesh:4x4,bandwidth=50e9")
    schedule = in_slices(forest.run(topology, Collective.make("all_reduce", 16), 1 << 20, Budget()), 2)
    due = np.arange(len(schedule.collective.chunks)) % 2 / 2
    times = [simulate(valid(Ordering(schedule, 1 << 20).by_urgency(when)), 1 << 20).seconds for when in (None, due)]
    assert times[1] < times[0]


def test_many_more_slices_than_the_best_number_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them would take as long to simulate as all before."""
    topology = parse("star:4")
    schedule = greedy.run(topology, Collective.make("broadcast", 4), 1 << 20, Budget())
    simulated: list[int] = []

    def seconds(cut: Schedule, size: int, beat: float, most: int) -> float:
        assert beat == (1.0 if 2 in simulated else 2.0)
        simulated.append(len(cut.transfers) // len(schedule.transfers))
        return 2.0 - (simulated[-1] == 2)

    monkeypatch.setattr(workers, "seconds_at", seconds)
    found = list(workers._cuts(workers.Found("greedy", schedule, 2.0), 1 << 20, Budget()))
    assert [one.seconds for one in found] == [1.0]
    assert set(simulated) == {slices for slices in slicing.SLICES if slices <= 2 * slicing.BEYOND}
    assert max(simulated) < max(slicing.SLICES)


def test_numbers_of_slices_four_times_apart_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what nobody asks for is not cut."""
    topology = parse("star:4")
    schedule = greedy.run(topology, Collective.make("broadcast", 4), 1 << 20, Budget())
    made: list[int] = []
    cut = slicing._cut

    def noted(whole: Schedule, slices: Slices) -> Schedule:
        made.append(slices.most)
        return cut(whole, slices)

    monkeypatch.setattr(slicing, "_cut", noted)
    found = dict(slicing.streamed(schedule, 1 << 20))
    assert list(found) == [1, 4, 16, 64, 2, 8, 32, 128]
    for order in ("as cut", "by urgency"):
        assert len(valid(found[16][order]()).transfers) == 16 * len(schedule.transfers)
    assert made == [16]


def test_orders_that_are_slow_with_each_forest_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are on this network, and what is found stays the same."""
    topology, size = random_network(2), 1 << 26
    collective = Collective.make("all_reduce", topology.ranks)
    hear = Dull.hear
    tried: list[set[str]] = []

    def noted(self: Dull, times: Mapping[str, float]) -> None:
        tried.append(set(times))
        hear(self, times)

    monkeypatch.setattr(Dull, "hear", noted)
    found = pipeline.run(topology, collective, size, Budget())
    every = tried[0]
    assert tried[: slicing.TRIED] == [every] * slicing.TRIED
    assert any(orders < every for orders in tried)
    monkeypatch.setattr(slicing, "DULL", np.inf)
    tried.clear()
    thorough = pipeline.run(topology, collective, size, Budget())
    assert not any(orders < every for orders in tried)
    assert simulate(found, size).seconds == simulate(thorough, size).seconds


def test_what_is_better_is_told_while_the_search_goes_on() -> None:
    told: list[Schedule] = []
    topology, collective = parse("mesh:3x3,bandwidth=50e9"), Collective.make("all_reduce", 9)
    found = pipeline.run(topology, collective, 1 << 20, Budget(better=told.append))
    times = [simulate(valid(schedule), 1 << 20).seconds for schedule in told]
    assert len(times) > 1
    assert times == sorted(times, reverse=True)
    assert simulate(found, 1 << 20).seconds <= times[-1]
    assert all(schedule.bounds and schedule.engine == "pipeline" for schedule in told)
