"""Distances between ranks, in hops: moves of data from one rank to the next.

Switches and NICs hold nothing, so a path through them is one hop however many links it has: two ranks on one switch
are one hop apart.
"""

from __future__ import annotations

from topologies.symmetry import orbits
from topologies.topology import Topology


def hops_from(topology: Topology, source: int) -> list[int | None]:
    """Hops from rank `source` to each rank; None where there is no path."""
    hops: list[int | None] = [None] * topology.ranks
    hops[source] = 0
    passed: set[int] = set()
    frontier = [source]
    distance = 0
    while frontier:
        distance += 1
        arrived = []
        reaching = frontier
        for node in reaching:  # grows: switches and NICs that this hop passes through
            for link in topology.links_from(node):
                if link.dst >= topology.ranks:
                    if link.dst not in passed:
                        passed.add(link.dst)
                        reaching.append(link.dst)
                elif hops[link.dst] is None:
                    hops[link.dst] = distance
                    arrived.append(link.dst)
        frontier = arrived
    return hops


def diameter(topology: Topology) -> int | None:
    """The most hops between two ranks; None if some rank cannot reach another.

    Symmetric ranks see the same distances, so one rank per orbit is asked.
    """
    furthest = 0
    for orbit in orbits(len(topology.nodes), topology.generators):
        if orbit[0] >= topology.ranks:
            continue
        for distance in hops_from(topology, orbit[0]):
            if distance is None:
                return None
            furthest = max(furthest, distance)
    return furthest


def cut_off(topology: Topology) -> tuple[int, int] | None:
    """Some pair (source, destination) of ranks without a path; None if there is a path between any two."""
    for source in range(topology.ranks):
        for destination, distance in enumerate(hops_from(topology, source)):
            if distance is None:
                return source, destination
    return None
