"""A process group's view of a topology: some ranks take part, and the others only forward, as switches do.

    group=0+2     0 ── 1 ── 2           0 ── (1) ── 1
                  │    │    │  becomes  │     │     │
                  3 ── 4 ── 5          (3) ─ (4) ─ (5)

This describes devices with routers (a mesh or torus of accelerators), where data pass through a device that runs no
part of the collective. Where only members relay, give `Collective.make` the members instead.

The ranks of the group are 0, 1, .. in the order in which they are listed. All nodes keep their names.

Symmetry: the automorphisms of the declared group that map the set of members to itself (graph/stabilizer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from syntony.topologies.graph.stabilizer import stabilizer
from syntony.topologies.topology import Link, Topology, TopologyError


def group_view(topology: Topology, members: Sequence[int]) -> Topology:
    """The topology with the members as its only ranks. Raises TopologyError for a missing or repeated rank."""
    inside = set(members)
    if not inside or len(inside) < len(members):
        raise TopologyError(f"{topology.name}: a group has at least one rank, and each only once")
    if not inside <= set(range(topology.ranks)):
        raise TopologyError(f"{topology.name}: a rank of the group does not exist or is lost")
    order = [*members, *(node.id for node in topology.nodes if node.id not in inside)]
    number = np.argsort(order).tolist()
    nodes = tuple(
        replace(topology.nodes[old], id=new, kind="switch" if old < topology.ranks and new >= len(members) else
                topology.nodes[old].kind)
        for new, old in enumerate(order)
    )  # fmt: skip
    links = tuple(
        Link(link.id, number[link.src], number[link.dst], link.alpha, link.bandwidth) for link in topology.links
    )
    kept = stabilizer(len(order), topology.generators, tuple(sorted(inside))) if topology.generators else []
    generators = tuple(tuple(number[generator[old]] for old in order) for generator in kept)
    return Topology(topology.name, nodes, links, generators, topology.about)
