"""Cut bounds: the node set whose exits are the most crowded.

For a set S let w(S) be the share of the collective's size that must leave S, and B(S) the bandwidth of the links that
leave it. Every S proves w(S) / B(S) seconds per byte; the best S is found exactly, in whole numbers:

    all_gather    w(S) = blocks owned in S            S any set without the sink, which is each member in turn
    gather        w(S) = blocks owned in S            the sink is the root
    broadcast     w(S) = 1                            S holds the root, the sink is each other member
    all_reduce    w(S) = 1                            S divides the members: from rank 0 to each other one, and back

reduce_scatter, scatter and reduce are these on the reversed links.

For one sink, "is there an S with w(S) / B(S) > t?" is one minimum cut: give member u a source arc of capacity w(u),
link e capacity t * b(e); the answer is yes iff the maximum flow to the sink does not saturate the source arcs. If so,
the cut names a better S, hence a better t, and the question is asked again (Dinkelbach 1967). For all_gather this is
the optimum of Zhao et al., ForestColl (NSDI'26): some packing of trees meets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from synth.bounds.bound import Cut
from synth.bounds.max_flow import FlowNetwork
from synth.network import Network
from synth.schedule import round_bandwidth
from topologies.topology import Link


def crowded_cut(
    network: Network, supply: Mapping[int, int], sinks: Iterable[int], entering: bool = False
) -> Cut | None:
    """The best cut where what nodes `supply` (units of chunk weight) must reach each sink; None if nothing must move.

    `entering`: all links are taken reversed, and the cut's links enter it.
    """
    unit = round_bandwidth(network.topology)
    arcs = [(_ends(link, entering), int(link.bandwidth / unit)) for link in network.links]
    best: tuple[Fraction, frozenset[int]] | None = None
    for sink in sinks:
        owed = {node: weight for node, weight in supply.items() if node != sink and weight}
        while owed:
            ratio = best[0] if best else Fraction(0)
            found = _violated(network.usable, arcs, owed, sink, ratio)
            if found is None:
                break
            owned = sum(weight for node, weight in owed.items() if node in found)
            exits = sum(capacity for (src, dst), capacity in arcs if src in found and dst not in found)
            best = (Fraction(owned, exits), found)
    if best is None:
        return None
    ratio, nodes = best
    links = exits_of(network.links, nodes, entering)
    bandwidth = sum((link.bandwidth for link in links), Fraction(0))
    share = ratio * bandwidth / unit * network.collective.unit
    return Cut(tuple(sorted(nodes)), tuple(link.id for link in links), share, bandwidth, entering)


def exits_of(links: Sequence[Link], nodes: frozenset[int], entering: bool = False) -> list[Link]:
    """The links that leave (or enter) the node set."""
    ends = ((link, _ends(link, entering)) for link in links)
    return [link for link, (src, dst) in ends if src in nodes and dst not in nodes]


def _ends(link: Link, turned: bool) -> tuple[int, int]:
    return (link.dst, link.src) if turned else (link.src, link.dst)


def _violated(
    usable: Sequence[bool],
    arcs: list[tuple[tuple[int, int], int]],
    owed: Mapping[int, int],
    sink: int,
    ratio: Fraction,
) -> frozenset[int] | None:
    """A node set without the sink that owes more than `ratio` times its exits' capacity; None if there is none."""
    if not ratio:
        # Any set will do to begin with: everything but the sink.
        return frozenset(node for node, use in enumerate(usable) if use and node != sink)
    nodes = len(usable)
    flow = FlowNetwork(nodes + 1)
    for (src, dst), capacity in arcs:
        flow.add(src, dst, capacity * ratio.numerator)
    for node, weight in owed.items():
        flow.add(nodes, node, weight * ratio.denominator)
    value, side = flow.max_flow(nodes, sink)
    if value == sum(owed.values()) * ratio.denominator:
        return None
    return side - {nodes}
