"""Hops as networkx counts them: a step to a rank is one, a step to a switch or a NIC is none."""

from __future__ import annotations

import networkx

from syntony.topologies import Topology


def hops_from(topology: Topology, source: int) -> dict[int, int]:
    """Hops from rank `source` to each rank that it reaches, by rank."""
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from((link.src, link.dst, int(link.dst < topology.ranks)) for link in topology.links)
    graph.add_node(source)
    found = networkx.single_source_dijkstra_path_length(graph, source)
    return {node: hops for node, hops in found.items() if node < topology.ranks}
