"""Bounds: closed forms, brute force over all cuts, and witnesses that anyone can recompute."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.bounds.bound import Cut, Partition, Prices
from synth.bounds.max_flow import FlowNetwork
from synth.bounds.throughput import bounds_of, rounds_per_chunk
from synth.collective import KINDS, Collective, CollectiveError
from tests.synth.networks import collectives, networks
from topologies.parse import parse
from topologies.topology import Topology


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
        ("ring:8", "all_to_all", Fraction(1)),
    ],
)
def test_published_throughput_in_rounds_per_chunk(name: str, kind: str, expected: Fraction) -> None:
    """7/6 is of SCCL; 15/4, 15/2, 63/4 are ForestColl's optima; 5/8 is the 1.6 of a 4x4 mesh; 1/3 is (24, 2, 8)."""
    topology = parse(name)
    collective = Collective.make(kind, topology.ranks)
    assert rounds_per_chunk(bounds_of(topology, collective).throughput, topology, collective) == expected


def test_two_boxes_are_bound_by_the_wires_between_them() -> None:
    topology = parse("dgx-a100:2")
    bound = bounds_of(topology, Collective.make("all_gather", 16)).throughput
    assert bound.algbw == pytest.approx(346.6666667e9)


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


@settings(max_examples=60)
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


@settings(max_examples=100)
@given(data=st.data())
def test_witnesses_recompute(data: st.DataObject) -> None:
    topology = data.draw(networks())
    collective = data.draw(collectives(topology))
    bound = bounds_of(topology, collective).throughput
    links = topology.links
    match bound.witness:
        case None:
            assert collective.ranks == 1
            assert bound.seconds_per_byte == 0
            return
        case Cut() as cut:
            inside = set(cut.nodes)
            leaving = [link.id for link in links if link.src in inside and link.dst not in inside]
            entering = [link.id for link in links if link.dst in inside and link.src not in inside]
            assert list(cut.links) == (entering if cut.entering else leaving)
            assert cut.bandwidth == sum(links[link].bandwidth for link in cut.links)
        case Partition() as partition:
            assert collective.kind == "all_reduce"
            assert partition.share == 2 * (len(partition.parts) - 1)
            ends = [links[link].dst if partition.entering else links[link].src for link in partition.links]
            assert sorted(ends) == sorted(
                end for x in links for end in [x.dst if partition.entering else x.src] if end < topology.ranks
            )
            assert partition.bandwidth == sum(links[link].bandwidth for link in partition.links)
        case Prices() as prices:
            graph = nx.DiGraph()
            price = dict(zip(prices.links, prices.prices, strict=True))
            for link in links:
                cost = price.get(link.id, Fraction(0))
                if not graph.has_edge(link.src, link.dst) or cost < graph[link.src][link.dst]["price"]:
                    graph.add_edge(link.src, link.dst, price=cost)
            ranks = collective.ranks
            owed = Fraction(0)
            for chunk, block in enumerate(collective.chunks.block.tolist()):
                cheapest = nx.dijkstra_path_length(graph, block // ranks, block % ranks, "price")
                owed += collective.share(chunk) * cheapest
            assert prices.share == owed
            assert prices.bandwidth == sum(price[link] * links[link].bandwidth for link in prices.links)
    assert bound.seconds_per_byte == bound.witness.share / bound.witness.bandwidth


@settings(max_examples=100)
@given(
    nodes=st.integers(2, 7),
    arcs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 10**12)), max_size=25),
)
def test_max_flow_against_networkx(nodes: int, arcs: list[tuple[int, int, int]]) -> None:
    mine, reference = FlowNetwork(nodes), nx.DiGraph()
    reference.add_nodes_from(range(nodes))
    capacity: dict[tuple[int, int], int] = {}
    for src, dst, amount in arcs:
        src, dst = src % nodes, dst % nodes
        if src != dst:
            mine.add(src, dst, amount)
            capacity[src, dst] = capacity.get((src, dst), 0) + amount
    reference.add_edges_from((s, d, {"capacity": c}) for (s, d), c in capacity.items())
    value, side = mine.max_flow(0, nodes - 1)
    assert value == nx.maximum_flow_value(reference, 0, nodes - 1)
    assert value == sum(c for (s, d), c in capacity.items() if s in side and d not in side)


@pytest.mark.parametrize("kind", KINDS)
def test_members_only(kind: str) -> None:
    """Two members of a ring of four that are neighbours: the far way round leads through ranks that take no part."""
    topology = parse("ring:4")
    bounds = bounds_of(topology, Collective.make(kind, members=(0, 1)))
    assert bounds.latency.steps == 1
    assert bounds.throughput.algbw <= 2 * 1e9
    with pytest.raises(CollectiveError, match="cannot be reached"):
        bounds_of(topology, Collective.make(kind, members=(0, 2)))
    with pytest.raises(CollectiveError, match=r"only ranks 0\.\.3"):
        bounds_of(topology, Collective.make(kind, members=(0, 4)))
