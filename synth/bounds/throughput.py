"""The throughput bound of each kind of collective, and which argument it rests on.

    all_gather, gather, broadcast       the most crowded cut, exact over all cuts            (bounds/cut.py)
    reduce_scatter, scatter, reduce     the same on reversed links
    all_to_all                          link prices, cuts among them                         (bounds/prices.py)
    all_reduce                          the larger of the most crowded cut and of the messages that a sum needs
                                        (`Partition` into single members, where no switch copies or adds)

Not a bound for all_reduce: the optimum of reduce_scatter plus that of all_gather. That sum is what one construction
achieves, and on meshes others beat it.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from synth.bounds.bound import Bounds, Cut, Partition, Throughput, Witness
from synth.bounds.cut import crowded_cut, exits_of
from synth.bounds.distance import latency
from synth.bounds.prices import priced
from synth.collective import Collective
from synth.network import Network
from synth.schedule import round_bandwidth
from synth.symmetry import chunk_permutation
from topologies.symmetry import orbits
from topologies.topology import Topology


def bounds_of(topology: Topology, collective: Collective) -> Bounds:
    """Both bounds of the collective on the topology.

    Raises CollectiveError where a member is no rank of the topology or some rank cannot be reached.
    """
    network = Network(topology, collective)
    return Bounds(latency(network), throughput(network))


def throughput(network: Network) -> Throughput:
    """The throughput bound. Every rank must be able to reach those that it must (see `latency`)."""
    collective = network.collective
    if collective.ranks == 1:
        return Throughput(Fraction(0))
    weights = np.bincount(collective.chunks.block, collective.chunks.weight).astype(np.int64).tolist()
    witnesses: list[Witness | None]
    match collective.kind:
        case "all_gather" | "reduce_scatter" | "gather" | "scatter":
            supply = dict(zip(collective.members, weights, strict=True))
            every = collective.kind in ("all_gather", "reduce_scatter")
            sinks = _orbit_representatives(network) if every else [collective.members[collective.root]]
            witnesses = [crowded_cut(network, supply, sinks, collective.kind in ("reduce_scatter", "scatter"))]
        case "broadcast" | "reduce":
            witnesses = [_spread(network, collective.root, weights[0], entering=collective.kind == "reduce")]
        case "all_reduce":
            witnesses = [_spread(network, 0, weights[0], entering) for entering in (False, True)]
            witnesses += [_single_members(network, entering) for entering in (False, True)]
        case _:
            members = collective.members
            table = np.asarray(weights).reshape(collective.ranks, collective.ranks)
            witnesses = [
                priced(
                    network,
                    {s: {d: int(table[i, j]) for j, d in enumerate(members) if i != j} for i, s in enumerate(members)},
                )
            ]
    return max((Throughput.by(witness) for witness in witnesses if witness), key=lambda bound: bound.seconds_per_byte)


def rounds_per_chunk(bound: Throughput, topology: Topology, collective: Collective) -> Fraction:
    """The throughput bound in the rounds and chunks of Cai et al. (PPoPP'21): no k-synchronous schedule has R/C below.

    R counts rounds (see `Schedule.rounds`), C counts equal chunks per block; of all_to_all, chunks per rank's buffer.
    """
    counted = 1 if collective.kind == "all_to_all" else collective.blocks
    return bound.seconds_per_byte * round_bandwidth(topology) * counted


def _spread(network: Network, root: int, weight: int, entering: bool) -> Cut | None:
    members = network.collective.members
    sinks = [member for rank, member in enumerate(members) if rank != root]
    return crowded_cut(network, {members[root]: weight}, sinks, entering)


def _single_members(network: Network, entering: bool) -> Partition | None:
    if any(node.multicast or node.reduces for node in network.topology.nodes):
        return None
    members = network.collective.members
    links = [link for member in members for link in exits_of(network.links, frozenset({member}), entering)]
    bandwidth = sum((link.bandwidth for link in links), Fraction(0))
    share = Fraction(2 * (len(members) - 1))
    parts = tuple((member,) for member in members)
    return Partition(parts, tuple(link.id for link in links), share, bandwidth, entering)


def _orbit_representatives(network: Network) -> list[int]:
    """One member of each orbit under the topology's generators that the collective is invariant under."""
    topology, members = network.topology, set(network.collective.members)
    fitting = [nodes for nodes in topology.generators if chunk_permutation(network.collective, nodes) is not None]
    return [orbit[0] for orbit in orbits(len(topology.nodes), fitting) if orbit[0] in members]
