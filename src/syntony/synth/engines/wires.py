"""The wires of some of the ranks, as a network of their own: the links on routes with the fewest links between these
ranks, without other ranks on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony._solve import ShortestPaths
from syntony.synth.engines.engine import EngineError
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.topologies.topology import Link, Node, Topology

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Wires:
    """The ranks' own network: its rank i is the i-th of them, its link i is link `links[i]` of the whole topology."""

    topology: Topology
    links: Integers


def wires_of(topology: Topology, ranks: Integers) -> Wires:
    """The wires of these ranks. Raises EngineError if they are not connected."""
    members = ranks.tolist()
    network = Network(topology, Collective.make("all_gather", members=members))
    usable = np.asarray([link.id for link in network.links], np.int64)
    tails, heads = (np.ascontiguousarray(ends[usable], np.int32) for ends in topology.ends)
    count = len(topology.nodes)
    ones = np.ones(len(usable))
    away, towards = ShortestPaths(count, tails, heads, ones), ShortestPaths(count, heads, tails, ones)
    reach = np.asarray([towards.distances(member) for member in members])  # from every node to each member
    kept = np.zeros(len(usable), bool)
    for member in members:
        far = away.distances(member)
        kept |= (far[tails] + 1 + reach[:, heads] == far[members][:, None]).any(axis=0)
        if np.isinf(far[members]).any():
            other = members[int(np.isinf(far[members]).argmax())]
            raise EngineError(f"no wires of their own join ranks {member} and {other}")
    links = usable[kept]
    inner = np.setdiff1d(np.concatenate([tails[kept], heads[kept]]), ranks)
    number = {node: position for position, node in enumerate([*members, *inner.tolist()])}
    nodes = [Node(position, topology.nodes[node].kind, f"{topology.nodes[node].kind}{position}")
             for node, position in number.items()]  # fmt: skip
    renamed = [
        Link(position, number[link.src], number[link.dst], link.alpha, link.bandwidth)
        for position, link in enumerate(topology.links[link] for link in links.tolist())
    ]
    return Wires(Topology("a line", tuple(nodes), tuple(renamed)), links)
