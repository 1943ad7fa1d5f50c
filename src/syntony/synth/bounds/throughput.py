"""The throughput bound of each kind of collective, and how it is proven.

    all_gather, gather, broadcast       the most crowded cut, exact over all cuts            (bounds/cut.py)
    reduce_scatter, scatter, reduce     the same on reversed links
    all_to_all                          link prices, cuts among them                         (bounds/prices.py)
    all_reduce                          the larger of the most crowded cut and of the messages that a sum needs
                                        between parts                                        (bounds/partition.py)

All of these hold for every schedule, whatever its switches do. The optimum of reduce_scatter
plus that of all_gather is not a bound for all_reduce, because on meshes other schedules are faster
(bounds/references.py).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from syntony.base.deadline import ENDLESS, Deadline
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.cut import crowded_cut
from syntony.synth.bounds.demand import block_weights, fitting_generators, member_orbits
from syntony.synth.bounds.distance import latency
from syntony.synth.bounds.partition import best_partition
from syntony.synth.bounds.prices import priced
from syntony.synth.bounds.windows import with_windows
from syntony.synth.model.bound import Bounds, Cut, Throughput, Witness
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network, round_bandwidth
from syntony.topologies.topology import Topology


def bounds_of(topology: Topology, collective: Collective, deadline: Deadline = ENDLESS) -> Bounds:
    """Both bounds of the collective on the topology; see `throughput` for the deadline.

    Raises CollectiveError if a member is not a rank of the topology or some rank cannot be reached.
    """
    network = Network(topology, collective)
    arcs = Arcs.of(network)
    bounds = Bounds(latency(network, arcs), throughput(network, arcs, deadline))
    return with_windows(network, bounds, arcs)


def throughput(network: Network, arcs: Arcs | None = None, deadline: Deadline = ENDLESS) -> Throughput:
    """The best bound found. Ranks must be able to reach those that they must (see `latency`).

    Every witness found on the way to the best one proves a bound, so past the deadline it is the best of those.
    """
    collective = network.collective
    if collective.ranks == 1:
        return Throughput(Fraction(0))
    arcs = arcs or Arcs.of(network)
    searched = "all cuts"
    witnesses: list[Witness | None]
    match collective.kind:
        case "all_gather" | "reduce_scatter" | "gather" | "scatter":
            supply = dict(zip(collective.members, block_weights(collective).tolist(), strict=True))
            sinks = [collective.members[collective.root]]
            if not collective.rooted:
                sinks = [orbit[0] for orbit in member_orbits(network, fitting_generators(network))]
            entering = collective.kind in ("reduce_scatter", "scatter")
            witnesses = [crowded_cut(arcs, supply, sinks, collective.unit, entering, deadline)]
        case "broadcast" | "reduce":
            witnesses = [_spread(collective, arcs, collective.root, collective.kind == "reduce", deadline)]
        case "all_reduce":
            searched = "all cuts and partitions"
            # If bandwidths are the same in both directions, entering and leaving give the same bound.
            ways = (False,) if arcs.symmetric() else (False, True)
            witnesses = [_spread(collective, arcs, 0, entering, deadline) for entering in ways]
            nodes = network.topology.nodes
            alike = all(node.multicast == node.reduces and node.aggregator is None for node in nodes)
            ways = ways if alike else (False, True)
            reached = _composed(network, arcs, deadline) if arcs.symmetric() else None
            witnesses += [best_partition(network, arcs, entering, reached, deadline) for entering in ways]
        case _:
            witness, searched = priced(network, arcs, deadline)
            witnesses = [witness]
    if deadline.passed() and searched.startswith("all"):
        searched = f"{searched} that were looked at in time"
    bounds = [Throughput.by(witness, searched) for witness in witnesses if witness]
    return max(bounds, key=lambda bound: bound.seconds_per_byte)


def rounds_per_chunk(bound: Throughput, topology: Topology, collective: Collective) -> Fraction:
    """The throughput bound in the rounds and chunks of Cai et al. (PPoPP'21): no k-synchronous schedule has R/C below.

    R counts rounds (see `Schedule.rounds`), C counts equal chunks per block; of all_to_all, chunks per rank's buffer.
    """
    counted = 1 if collective.kind == "all_to_all" else collective.blocks
    return bound.seconds_per_byte * round_bandwidth(topology) * counted


def _composed(network: Network, arcs: Arcs, deadline: Deadline) -> Fraction | None:
    """Seconds per byte of a reduce_scatter and an all_gather, if bandwidths are the same in both directions: then trees
    reach both bounds (Zhao et al., ForestColl, NSDI'26; engines/forest/search.py). None if time ran out."""
    gather = Collective.make("all_gather", members=network.collective.members)
    half = throughput(replace(network, collective=gather), arcs, deadline)
    return None if deadline.passed() else 2 * half.seconds_per_byte


def _spread(collective: Collective, arcs: Arcs, root: int, entering: bool, deadline: Deadline) -> Cut | None:
    """The cut bound between the root and any other member, one of which must receive all data of the other."""
    members = collective.members
    sinks = [member for rank, member in enumerate(members) if rank != root]
    return crowded_cut(arcs, {members[root]: 1}, sinks, Fraction(1), entering, deadline)
