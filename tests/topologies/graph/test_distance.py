"""Hops against networkx on a graph whose switches and NICs have been contracted away."""

from __future__ import annotations

import random
from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given

from syntony.topologies import Link, Node, Topology, parse
from syntony.topologies.graph.distance import cut_off, diameter, longest_route
from tests.sampled import one_in
from tests.topologies.hops import hops_from
from tests.topologies.named import SMALL, networks


def _rank_graph(topology: Topology) -> nx.DiGraph:
    """An edge from rank to rank where a path leads through switches and NICs only."""
    graph = nx.DiGraph((link.src, link.dst) for link in topology.links)
    graph.add_nodes_from(range(len(topology.nodes)))
    direct = nx.DiGraph()
    direct.add_nodes_from(range(topology.ranks))
    for source in range(topology.ranks):
        others = [rank for rank in range(topology.ranks) if rank != source]
        for target in others:
            passing = graph.subgraph([source, target, *range(topology.ranks, len(topology.nodes))])
            if nx.has_path(passing, source, target):
                direct.add_edge(source, target)
    return direct


def _check(topology: Topology) -> None:
    graph = _rank_graph(topology)
    furthest = 0
    missing = None
    for source in range(topology.ranks):
        expected = nx.single_source_shortest_path_length(graph, source)
        furthest = max(furthest, *expected.values())
        if len(expected) < topology.ranks and missing is None:
            missing = source, min(set(range(topology.ranks)) - set(expected))
    assert cut_off(topology) == missing
    assert diameter(topology) == (None if missing else furthest)
    assert longest_route(topology) == (None if missing else _longest_route(topology))


def _longest_route(topology: Topology) -> int:
    graph = nx.DiGraph((link.src, link.dst) for link in topology.links)
    graph.add_nodes_from(range(topology.ranks))
    ranks = range(topology.ranks)
    return max(nx.single_source_shortest_path_length(graph, one)[other] for one in ranks for other in ranks)


@given(networks())
def test_hops_on_any_network(topology: Topology) -> None:
    _check(topology)


@pytest.mark.parametrize("name", SMALL)
def test_hops_on_families(name: str) -> None:
    _check(parse(name))


def _tangle(seed: int, ranks: int, switches: int, spread: int) -> Topology:
    """A ring of one-way links, so that all is connected, and random ones across, none longer than `spread` nodes."""
    choose = random.Random(seed)
    size = ranks + switches
    order = choose.sample(range(size), size)
    pairs = [(order[i - 1], order[i]) for i in range(size)]
    pairs += [(order[i], order[(i + choose.randint(-spread, spread)) % size]) for i in range(size)]
    links = [pair for pair in pairs if pair[0] != pair[1]]
    nodes = [Node(i, "rank" if i < ranks else "switch", f"n{i}") for i in range(size)]
    return Topology(
        f"tangle {seed}", tuple(nodes), tuple(Link(i, *pair, 0.0, Fraction(1)) for i, pair in enumerate(links))
    )


@pytest.mark.parametrize("seed", one_in(3, range(6)))
def test_the_furthest_of_many_ranks_without_symmetry(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More ranks than a machine word has bits, in several blocks; with searches one by one beforehand and without."""
    topology = _tangle(seed, ranks=150, switches=40, spread=(3, 90)[seed % 2])
    hops = max(max(hops_from(topology, rank).values()) for rank in range(150))
    links = _longest_route(topology)
    assert (diameter(topology), longest_route(topology)) == (hops, links)
    monkeypatch.setattr("syntony.topologies.graph.distance._SINGLE_SEARCHES", 0)
    monkeypatch.setattr("syntony.topologies.graph.distance._BLOCK", 70)
    assert (diameter(topology), longest_route(topology)) == (hops, links)
