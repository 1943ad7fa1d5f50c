"""The latency bound: how far data must travel, whatever its size.

A chunk that is not summed must reach each rank that wants it from its holder. A summed chunk carries every rank's
contribution, so every rank's distance to every rank that wants it counts. So data must travel between these ranks:

    broadcast, scatter      root -> every rank          all others      every rank -> every rank
    reduce, gather          every rank -> root

Switches that copy or add do not shorten paths, because data still travel all the way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony._solve import ShortestPaths
from syntony.base.wording import in_ranges
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.demand import fitting_generators, member_orbits
from syntony.synth.model.bound import Distance, Latency
from syntony.synth.model.collective import Collective, CollectiveError
from syntony.synth.model.network import Network


def latency(network: Network, arcs: Arcs | None = None) -> Latency:
    """Least steps and seconds with witnesses. Raises CollectiveError if some rank cannot be reached."""
    arcs = arcs or Arcs.of(network)
    is_rank = np.asarray([node.kind == "rank" for node in network.topology.nodes])
    alphas = np.asarray([link.alpha for link in network.links], np.float64)
    steps, steps_witness = _farthest(network, arcs, is_rank[arcs.tails].astype(np.float64))
    if np.isinf(steps):
        assert steps_witness is not None
        raise CollectiveError(_cut_off(network, arcs, steps_witness))
    seconds, seconds_witness = _farthest(network, arcs, alphas)
    return Latency(int(steps), seconds, steps_witness, seconds_witness)


def _farthest(network: Network, arcs: Arcs, lengths: NDArray[np.float64]) -> tuple[float, Distance | None]:
    """The greatest distance that some chunk must travel, and a chunk that must."""
    collective = network.collective
    members = np.asarray(collective.members)
    rank_of = {member: rank for rank, member in enumerate(collective.members)}
    inward = collective.kind in ("reduce", "gather")
    graph = arcs.reversed() if inward else arcs
    paths = ShortestPaths(graph.nodes, graph.tails, graph.heads, lengths)
    if collective.rooted:
        starts = [collective.members[collective.root]]
    else:
        starts = [orbit[0] for orbit in member_orbits(network, fitting_generators(network))]
    worst, ends = 0.0, (0, 0)
    for start in starts:
        distances = paths.distances(start)[members]
        furthest = int(np.argmax(distances))
        if distances[furthest] > worst:
            worst = float(distances[furthest])
            ends = (furthest, rank_of[start]) if inward else (rank_of[start], furthest)
    if not worst:
        return worst, None
    src, dst = (collective.members[end] for end in ends)
    return worst, Distance(_first_chunk(collective, *ends), src, dst)


def _cut_off(network: Network, arcs: Arcs, witness: Distance) -> str:
    """The error for ranks without a path: those on one side of a cut without links, and those on the other."""
    paths = ShortestPaths(arcs.nodes, arcs.tails, arcs.heads, np.zeros(len(arcs.tails)))
    beyond = np.isinf(paths.distances(witness.src))
    here = [member for member in sorted(network.collective.members) if not beyond[member]]
    there = [member for member in sorted(network.collective.members) if beyond[member]]
    others = " (ranks that are not members do not relay)" if len(here) + len(there) < network.topology.ranks else ""
    return (
        f"{network.topology.name}: no path leads from {in_ranges(here)} to {in_ranges(there)}, "
        f"so no {network.collective.kind} exists{others}"
    )


def _first_chunk(collective: Collective, src: int, dst: int) -> int:
    """The first chunk that must get from rank `src` of the collective (at least a contribution to it) to rank `dst`."""
    match collective.kind:
        case "all_gather" | "gather":
            block = src
        case "reduce_scatter" | "scatter":
            block = dst
        case "all_to_all":
            block = src * collective.ranks + dst
        case _:
            block = 0
    return int(np.searchsorted(collective.chunks.block, np.int32(block)))  # of the column's type, or it is copied
