"""Bounds: closed forms, brute force over all cuts, and witnesses that anyone can recompute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony._solve import FlowNetwork
from syntony.base.deadline import ENDLESS, Deadline
from syntony.synth.bounds import prices
from syntony.synth.bounds.max_flow import LongFlowNetwork, flow_network
from syntony.synth.bounds.references import all_reduce_references
from syntony.synth.bounds.throughput import bounds_of, rounds_per_chunk
from syntony.synth.model.bound import Cut, Partition
from syntony.synth.model.collective import KINDS, Collective, CollectiveError
from syntony.synth.model.network import Network
from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, Topology
from tests.sampled import examples
from tests.synth.networks import able_networks, collectives, networks


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("dgx1", "all_gather", Fraction(7, 6)),
        ("dgx1", "reduce_scatter", Fraction(7, 6)),
        ("dgx1", "gather", Fraction(7, 6)),
        ("dgx1", "broadcast", Fraction(1, 6)),
        ("dgx1", "all_to_all", Fraction(1, 3)),
        ("dgx1", "all_reduce", Fraction(7, 24)),
        ("torus:4x4", "all_gather", Fraction(15, 4)),
        ("mesh:4x4", "all_gather", Fraction(15, 2)),
        ("mesh:4x4", "all_reduce", Fraction(5, 8)),
        ("torus:8x8", "all_gather", Fraction(63, 4)),
        ("dgx-h100:2", "all_gather", Fraction(3, 100)),
        ("dgx-h100:128", "all_gather", Fraction(127, 50)),
        ("ring:8", "all_to_all", Fraction(1)),
    ],
)
def test_published_throughput_in_rounds_per_chunk(name: str, kind: str, expected: Fraction) -> None:
    """7/6 is of SCCL; 15/4, 15/2, 63/4 are ForestColl's optima; 5/8 is the 1.6 of a 4x4 mesh; 1/3 is (24, 2, 8)."""
    topology = parse(name)
    collective = Collective.make(kind, topology.ranks)
    assert rounds_per_chunk(bounds_of(topology, collective).throughput, topology, collective) == expected


@pytest.mark.parametrize(("name", "expected"), [("dgx-a100:2", Fraction(1040, 3)), ("mi250", Fraction(2400, 7))])
def test_sixteen_gpus_gather_as_fast_as_forestcoll_found(name: str, expected: Fraction) -> None:
    bound = bounds_of(parse(name), Collective.make("all_gather", 16)).throughput
    assert 1 / bound.seconds_per_byte == expected * 10**9


@pytest.mark.parametrize(("name", "steps"), [("dgx1", 2), ("ring:8", 4), ("torus:4x4", 4), ("full:5", 1)])
def test_latency_is_the_diameter(name: str, steps: int) -> None:
    topology = parse(name)
    bound = bounds_of(topology, Collective.make("all_gather", topology.ranks)).latency
    assert bound.steps == steps
    assert bound.seconds == pytest.approx(steps * topology.links[0].alpha)
    assert bound.steps_witness is not None


def brute_force(topology: Topology, collective: Collective) -> Fraction:
    """The most crowded cut over all node sets, in seconds per byte; for kinds whose bound is a cut."""
    best, nodes = Fraction(0), range(len(topology.nodes))
    chunks = range(len(collective.chunks))
    for count in range(1, len(nodes)):
        for inside in map(set, combinations(nodes, count)):
            exits = sum((x.bandwidth for x in topology.links if x.src in inside and x.dst not in inside), Fraction(0))
            share = Fraction(0)
            for chunk in chunks:
                pre, post = collective.pre(chunk), collective.post(chunk)
                enough_inside = bool(pre & inside) if collective.combining else pre <= inside
                share += collective.share(chunk) if enough_inside and post - inside else 0
            if share:
                best = max(best, share / exits)
    return best


@examples(60)
@given(data=st.data())
def test_cuts_are_exact(data: st.DataObject) -> None:
    topology = data.draw(networks(5))
    collective = data.draw(collectives(topology))
    bound = bounds_of(topology, collective).throughput
    worst = brute_force(topology, collective)
    if collective.kind in ("all_reduce", "all_to_all"):
        assert bound.seconds_per_byte >= worst
    else:
        assert bound.seconds_per_byte == worst


def every_partition(members: list[int]) -> Iterator[list[list[int]]]:
    """All ways to cut the members into parts."""
    if not members:
        yield []
        return
    first, *rest = members
    for parts in every_partition(rest):
        yield [[first], *parts]
        for position in range(len(parts)):
            yield [*parts[:position], [first, *parts[position]], *parts[position + 1 :]]


@examples(60)
@given(data=st.data())
def test_partitions_are_the_best_there_are(data: st.DataObject) -> None:
    """Over all partitions of the members, each part with the switches that suit it best, out and in."""
    topology = data.draw(networks(5))
    collective = Collective.make("all_reduce", topology.ranks)
    if topology.ranks == 1:
        return
    switches = range(topology.ranks, len(topology.nodes))
    best = brute_force(topology, collective)
    for entering in (False, True):
        exits: dict[tuple[int, ...], Fraction] = {}
        for count in range(1, topology.ranks):
            for home in combinations(range(topology.ranks), count):
                exits[home] = min(
                    crossing(topology, {*home, *extra}, entering)
                    for size in range(len(switches) + 1)
                    for extra in combinations(switches, size)
                )
        for parts in every_partition(list(range(topology.ranks))):
            if len(parts) > 1:
                best = max(best, Fraction(2 * (len(parts) - 1)) / sum(exits[tuple(sorted(part))] for part in parts))
    assert bounds_of(topology, collective).throughput.seconds_per_byte == best


def crossing(topology: Topology, inside: set[int], entering: bool) -> Fraction:
    ends = [((link.dst, link.src) if entering else (link.src, link.dst), link.bandwidth) for link in topology.links]
    return sum((rate for (tail, head), rate in ends if tail in inside and head not in inside), Fraction(0))


# ---- all_reduce: what is a bound, and what is not -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bound", "trees", "composition"),
    [
        ("mesh:3x3", "3/2", "3/2", "9/8"),
        ("mesh:4x4", "8/5", "8/5", "16/15"),
        ("mesh:5x5", "5/3", "5/3", "25/24"),
        ("mesh:6x6", "12/7", "12/7", "36/35"),
        ("mesh:4x4,bandwidth=2e9x1e9", "12/5", "12/5", "8/5"),
        ("mesh:4x4,bandwidth=4e9x1e9", "4", "4", "8/3"),
        ("torus:4x4", "32/15", "32/15", "32/15"),
        ("dgx1", "600/7", "600/7", "600/7"),
        ("star:8", "4/7", "4/7", "4/7"),
        ("dgx-a100:2", "520/3", "520/3", "520/3"),
        ("dgx-h100:2", "400", "400", "800/3"),
        ("dgx-h100:2,nvls=off", "800/3", "800/3", "800/3"),
        ("dgx-h100:4", "800/3", "800/3", "8000/31"),
    ],
)
def test_all_reduce_is_not_reduce_scatter_and_all_gather(name: str, bound: str, trees: str, composition: str) -> None:
    """In GB/s. The meshes are those of PipeComm's table IV in units of a link; DGX-1 has 25 GB/s and six links."""
    topology = parse(name)
    collective = Collective.make("all_reduce", topology.ranks)
    references = all_reduce_references(Network(topology, collective))
    assert 1 / bounds_of(topology, collective).throughput.seconds_per_byte == Fraction(bound) * 10**9
    assert references.trees == pytest.approx(float(Fraction(trees)) * 1e9, rel=1e-7)
    assert references.composition == Fraction(composition) * 10**9


@examples(60)
@given(data=st.data())
def test_no_trees_beat_the_bound(data: st.DataObject) -> None:
    """The linear program knows nothing of partitions: if a bound were too good to be true, it would show."""
    topology = data.draw(able_networks())
    if topology.ranks == 1:
        return
    collective = Collective.make("all_reduce", topology.ranks)
    bound = bounds_of(topology, collective).throughput.algbw
    references = all_reduce_references(Network(topology, collective))
    assert references.trees is not None
    assert references.trees <= bound * (1 + 1e-7)
    assert float(references.composition) <= references.trees * (1 + 1e-7) or any(
        node.kind == "switch" for node in topology.nodes
    )


@pytest.mark.parametrize(
    ("able", "expected", "witness"),
    [
        ({}, Fraction(2 * 5, 6), Partition),  # the ring meets it
        ({"multicast": True}, Fraction(2 * 5, 6), Partition),  # what enters the ranks is not saved by copying
        ({"reduces": True}, Fraction(2 * 5, 6), Partition),  # what leaves the ranks is not saved by adding
        ({"multicast": True, "reduces": True}, Fraction(1), Cut),  # one up, one down
    ],
)
def test_all_reduce_on_a_star_of_six(able: dict[str, bool], expected: Fraction, witness: type) -> None:
    topology = parse("star:6")
    switch = replace(topology.nodes[6], **able)
    topology = replace(topology, nodes=(*topology.nodes[:6], switch))
    bound = bounds_of(topology, Collective.make("all_reduce", 6)).throughput
    assert bound.seconds_per_byte == expected / 10**9
    assert isinstance(bound.witness, witness)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("star:8,aggregator=iswitch", Fraction(14, 8 + 5)),  # 5e9 contributions per second save a message each
        ("star:8,aggregator=iswitch,bandwidth=5e9", Fraction(14, 40 + 5)),
        ("star:8,aggregator=iswitch,bandwidth=1e8", Fraction(10)),  # links slower than the adder: up and down once
        ("star:8,aggregator=switchagg", Fraction(14, 8)),  # it does not copy: what leaves the ranks is not saved
        ("star:8,aggregator=sharp", Fraction(1)),
    ],
)
def test_an_adder_saves_no_more_messages_than_it_takes_in(name: str, expected: Fraction) -> None:
    topology = parse(name)
    bound = bounds_of(topology, Collective.make("all_reduce", 8)).throughput
    assert bound.seconds_per_byte == expected / 10**9


def test_boxes_whose_switches_add_are_summed_inside() -> None:
    """128 boxes with NVLink SHARP: 2 * 127 messages leave boxes of 400 GB/s each, twice what a cut alone would say."""
    topology = parse("dgx-h100:128")
    bound = bounds_of(topology, Collective.make("all_reduce", 1024)).throughput
    assert isinstance(bound.witness, Partition)
    assert bound.seconds_per_byte == Fraction(2 * 127, 128 * 400 * 10**9)
    assert sorted(map(len, bound.witness.parts)) == [8 + 1 + 8] * 128


# ---- all_to_all: prices ---------------------------------------------------------------------------------------------


@examples(60)
@given(data=st.data())
def test_cheap_prices_are_called_the_best_only_where_the_program_agrees(data: st.DataObject) -> None:
    topology = data.draw(able_networks())
    if topology.ranks == 1:
        return
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=topology.ranks**2, max_size=topology.ranks**2))
    collective = Collective.make("all_to_all", topology.ranks, block_sizes=sizes)
    bound = bounds_of(topology, collective).throughput
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prices, "MAX_SPREAD", 0)
        solved = bounds_of(topology, collective).throughput
        assert solved.searched.startswith("all prices (flow LP")
        patch.setattr(prices, "MAX_LP_VARIABLES", 0)
        cheap = bounds_of(topology, collective).throughput
        assert cheap.searched.startswith("cuts of members, islands and sweeps, and equal prices (the flow LP has ")
    assert bound.seconds_per_byte == solved.seconds_per_byte >= cheap.seconds_per_byte


# ---- at scale, by the numbers; how long it takes is `python -m syntony.benchmarks synthesis bounds`
# -----------------------------------


@pytest.mark.parametrize("hint", [True, False], ids=["hint", "no hint"])
@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("rail:boxes=128,gpus=8,rails=8", "all_gather", Fraction(127, 128 * 400)),
        ("rail:boxes=128,gpus=8,rails=8", "reduce_scatter", Fraction(127, 128 * 400)),
        ("rail:boxes=128,gpus=8,rails=8", "all_reduce", Fraction(127, 64 * 400)),
        ("rail:boxes=128,gpus=8,rails=8", "all_to_all", Fraction(127 * 8, 128 * 400)),
        ("torus:16x16x4", "all_gather", Fraction(1023, 1024 * 6)),
    ],
)
def test_a_thousand_ranks(name: str, kind: str, expected: Fraction, hint: bool) -> None:
    topology = parse(name)
    if not hint:
        topology = replace(topology, generators=())
    bound = bounds_of(topology, Collective.make(kind, 1024)).throughput
    assert bound.seconds_per_byte == expected / 10**9


def test_symmetry_puts_the_flow_program_within_reach() -> None:
    """Dimension by dimension: the long way round is the crowded one, and prices on its wires say so."""
    topology = parse("torus:16x8")
    collective = Collective.make("all_to_all", topology.ranks)
    bound = bounds_of(topology, collective).throughput
    assert bound.searched.startswith("all prices")
    assert bound.seconds_per_byte == Fraction(2, 10**9)  # 16/8 hops on average each way along the long dimension


@examples(60)
@given(
    nodes=st.integers(3, 7),
    arcs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 10**12)), max_size=25),
    limit=st.integers(0, 10**12),
)
def test_long_flows_against_the_core(nodes: int, arcs: list[tuple[int, int, int]], limit: int) -> None:
    """Python's integers take over where 64 bits end, and must answer every question as the core does."""
    ends = [(src % nodes, dst % nodes, amount) for src, dst, amount in arcs if src % nodes != dst % nodes]
    tails, heads = (np.asarray([arc[i] for arc in ends], np.int32) for i in range(2))
    capacities = [arc[2] for arc in ends]
    core = flow_network(nodes, tails, heads, capacities)
    assert isinstance(core, FlowNetwork)
    long = LongFlowNetwork(nodes, tails, heads, capacities)
    wide = flow_network(nodes, tails, heads, [capacity << 60 for capacity in capacities], room=2**63)
    assert isinstance(wide, LongFlowNetwork)
    for network in (core, long):
        sent = network.augment(0, 1, limit)
        moved = network.augment(1, 2, sent)
        if moved < sent:
            network.augment(2, 1, moved)
    for ask in (
        lambda flow: flow.augment(0, 1),
        lambda flow: flow.reaching(1).tolist(),
        lambda flow: flow.reachable_from(0).tolist(),
        lambda flow: flow.reset(),
        lambda flow: flow.augment(0, nodes - 1),
        lambda flow: flow.set_capacity(0, flow.flow(0) + 7) if ends else None,
        lambda flow: flow.augment(0, nodes - 1),
    ):
        assert ask(core) == ask(long)
    wide.reset()
    assert wide.augment(0, 1) == flow_network(nodes, tails, heads, capacities).augment(0, 1) << 60


@pytest.mark.parametrize("kind", KINDS)
def test_members_only(kind: str) -> None:
    """Two members of a ring of four that are neighbours: the far way round leads through ranks that take no part."""
    topology = parse("ring:4")
    bounds = bounds_of(topology, Collective.make(kind, members=(0, 1)))
    assert bounds.latency.steps == 1
    assert bounds.throughput.algbw <= 2 * 1e9
    with pytest.raises(CollectiveError, match="no path leads"):
        bounds_of(topology, Collective.make(kind, members=(0, 2)))
    with pytest.raises(CollectiveError, match=r"only ranks 0\.\.3"):
        bounds_of(topology, Collective.make(kind, members=(0, 4)))


LEAF_SPINE = f"file:{Path(__file__).parents[2] / 'data' / 'leaf_spine.json'}"
"""Six hosts of four GPUs and two NICs, two leaves, a spine, and a slow uplink."""


@pytest.mark.parametrize(
    ("kind", "gigabytes"),
    [
        ("all_gather", 20),  # 12 of 24 blocks must pass the uplink of 10 GB/s
        ("reduce_scatter", 20),
        ("broadcast", 10),
        ("reduce", 10),
        ("gather", 20),
        ("scatter", 20),
        ("all_reduce", 10),
        ("all_to_all", Fraction(5, 3)),  # 12 * 12 of 24 * 24 blocks, in units of a rank's buffer
    ],
)
def test_the_slow_uplink_bounds_everything(kind: str, gigabytes: Fraction) -> None:
    topology = parse(LEAF_SPINE)
    collective = Collective.make(kind, topology.ranks)
    assert 1 / bounds_of(topology, collective).throughput.seconds_per_byte == gigabytes * 10**9
    if kind == "all_reduce":
        references = all_reduce_references(Network(topology, collective))
        assert references.trees == pytest.approx(1e10, rel=1e-7)


@examples(60)
@given(data=st.data())
def test_what_is_found_before_the_deadline_is_a_bound(data: st.DataObject) -> None:
    topology = data.draw(able_networks())
    collective = data.draw(collectives(topology))
    early, exact = (bounds_of(topology, collective, deadline) for deadline in (Deadline(0.0), ENDLESS))
    assert early.latency == exact.latency
    assert early.throughput.seconds_per_byte <= exact.throughput.seconds_per_byte
    assert (early.throughput.witness is None) == (exact.throughput.witness is None)


def test_trees_pass_nodes_that_only_forward() -> None:
    """A mesh has the same best trees if there is a NIC in the middle of each cable."""
    mesh = parse("mesh:3x3")
    nodes, links = list(mesh.nodes), []
    for link in mesh.links:
        nodes.append(Node(len(nodes), "nic", f"nic{link.id}"))
        for src, dst in ((link.src, nodes[-1].id), (nodes[-1].id, link.dst)):
            links.append(Link(len(links), src, dst, link.alpha, link.bandwidth))
    cabled = replace(mesh, nodes=tuple(nodes), links=tuple(links), generators=())
    references = all_reduce_references(Network(cabled, Collective.make("all_reduce", 9)))
    assert references.trees == pytest.approx(1.5e9, rel=1e-7)
    assert float(references.composition) == 1.125e9
