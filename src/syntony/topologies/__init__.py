"""Networks as exact directed multigraphs: made from a name, read from a file, or detected on this machine."""

from syntony.topologies.parse import parse
from syntony.topologies.topology import Link, Node, NodeKind, Permutation, Topology, TopologyError

__all__ = ["Link", "Node", "NodeKind", "Permutation", "Topology", "TopologyError", "parse"]
