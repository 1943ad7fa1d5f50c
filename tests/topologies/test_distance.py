"""Hops against networkx on a graph whose switches and NICs have been contracted away."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given

from tests.topologies.named import SMALL, networks
from topologies import Topology, parse
from topologies.distance import cut_off, diameter, hops_from


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
        hops = hops_from(topology, source)
        assert hops == [expected.get(rank) for rank in range(topology.ranks)]
        furthest = max(furthest, *expected.values())
        if None in hops and missing is None:
            missing = source, hops.index(None)
    assert cut_off(topology) == missing
    assert diameter(topology) == (None if missing else furthest)


@given(networks())
def test_hops_on_any_network(topology: Topology) -> None:
    _check(topology)


@pytest.mark.parametrize("name", SMALL)
def test_hops_on_families(name: str) -> None:
    _check(parse(name))
