"""Exact cuts, by networkx on the graph alone."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import networkx as nx

from syntony.topologies import Topology


def flow_graph(topology: Topology) -> nx.DiGraph:
    """The nodes, with the bandwidth between each two of them as capacity."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(topology.nodes)))
    for link in topology.links:
        capacity = graph.get_edge_data(link.src, link.dst, {"capacity": 0})["capacity"]
        graph.add_edge(link.src, link.dst, capacity=capacity + link.bandwidth)
    return graph


def cut(topology: Topology, sources: Iterable[int], sinks: Iterable[int]) -> Fraction:
    """The least bandwidth, bytes/s, that leads from the sources to the sinks wherever one divides the other nodes."""
    graph = flow_graph(topology)
    graph.add_edges_from(("source", rank) for rank in sources)  # no capacity: unlimited
    graph.add_edges_from((rank, "sink") for rank in sinks)
    flow: Fraction = nx.maximum_flow_value(graph, "source", "sink")
    return flow


def inflow(topology: Topology, rate: Fraction, sink: int) -> Fraction:
    """Bytes/s that reach rank `sink` when every rank, the sink too, sends it at most `rate`: the all_gather's bound."""
    graph = flow_graph(topology)
    for rank in range(topology.ranks):
        graph.add_edge("source", rank, capacity=rate)
    flow: Fraction = nx.maximum_flow_value(graph, "source", sink)
    return flow
