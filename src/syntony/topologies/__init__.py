"""What the wires are: networks as exact directed multigraphs, by name, from files, or as found on this machine."""

from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, NodeKind, Permutation, Topology, TopologyError

__all__ = ["Link", "Node", "NodeKind", "Permutation", "Topology", "TopologyError", "parse"]
