"""Cut bounds: the node set with the most data to send out, relative to the bandwidth of the links that leave it.

For a set S let w(S) be the share of the collective's size that must leave S, and B(S) the bandwidth of the links that
leave it. Every S proves w(S) / B(S) seconds per byte; the best S is found exactly, in whole numbers:

    all_gather    w(S) = blocks owned in S            S any set without the sink, which is each member in turn
    gather        w(S) = blocks owned in S            the sink is the root
    broadcast     w(S) = 1                            S holds the root, the sink is each other member
    all_reduce    w(S) = 1                            S divides the members: from rank 0 to each other one, and back

reduce_scatter, scatter and reduce are these on the reversed links.

The bound also holds if switches copy or add. A block that only S holds and that is wanted outside must cross at least
once, however often it is copied before or after. The sum of the contributions of S has the size of one contribution,
and that much must cross, because the result outside depends on it. As w counts each block and each sum once, it is
valid whatever switches do.

For one sink, "is there an S with w(S) / B(S) > t?" is one minimum cut: give member u a source arc of capacity w(u),
link e capacity t * b(e); the answer is yes iff the maximum flow to the sink does not saturate the source arcs. If so,
the cut names a better S, hence a better t, and the question is asked again (Dinkelbach 1967). A sink whose
answer is no keeps it as t grows, and its flow is reused for the next sink. For all_gather this is the optimum of Zhao
et al., ForestColl (NSDI'26): some packing of trees meets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony.base.deadline import ENDLESS, Deadline
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.max_flow import Flow, flow_network
from syntony.synth.model.bound import Cut


def crowded_cut(
    arcs: Arcs,
    supply: Mapping[int, int],
    sinks: Iterable[int],
    unit: Fraction,
    entering: bool = False,
    deadline: Deadline = ENDLESS,
) -> Cut | None:
    """The best cut if data of nodes `supply` (units of chunk weight) must reach each sink; None if nothing must move.

    `unit` is the share of the size per unit of weight. `entering`: all links are reversed, and the links of the cut
    enter it. Every sink must be reachable from every supply. Past the deadline it is the best cut found.
    """
    graph = arcs.reversed() if entering else arcs
    everything = sum(supply.values())
    crowding = Fraction(0)
    best: NDArray[np.bool_] | None = None
    flow: Flow | None = None
    at = amount = 0
    for sink in _narrowest_first(graph, supply, sinks):
        if best is not None and deadline.passed():
            break
        if everything == supply.get(sink, 0):
            continue
        while True:
            if best is None:  # the first set: everything but the sink
                inside = graph.usable.copy()
                inside[sink] = False
            else:
                if deadline.passed():
                    break
                if flow is None:
                    flow, at, amount = _loaded(graph, supply, crowding)
                if flow.augment(at, sink, amount) == amount:
                    at = sink
                    break
                inside = graph.usable & ~flow.reaching(sink)[:-1]
                flow = None
            best = inside
            crowding = Fraction(
                sum(weight for node, weight in supply.items() if inside[node]),
                sum(graph.capacity[arc] for arc in graph.leaving(inside)),
            )
    return None if best is None else cut_of(graph, best, crowding * unit / graph.unit, entering)


def _narrowest_first(graph: Arcs, supply: Mapping[int, int], sinks: Iterable[int]) -> Iterator[int]:
    """The sink that must receive the most for its bandwidth, then the others."""
    order = list(sinks)
    into = [0] * graph.nodes
    for head, capacity in zip(graph.heads.tolist(), graph.capacity, strict=True):
        into[head] += capacity
    everything = sum(supply.values())
    first = max(order, key=lambda sink: Fraction(everything - supply.get(sink, 0), max(into[sink], 1)), default=None)
    if first is not None:
        yield first
    yield from (sink for sink in order if sink != first)


def cut_of(graph: Arcs, inside: NDArray[np.bool_], rate: Fraction, entering: bool = False) -> Cut:
    """The witness for a node set that proves `rate` seconds per byte on the links that leave it in `graph`."""
    leaving = graph.leaving(inside)
    bandwidth = graph.bandwidth(leaving)
    nodes = tuple(np.flatnonzero(inside).tolist())
    return Cut(nodes, tuple(graph.links[arc] for arc in leaving), rate * bandwidth, bandwidth, entering)


def _loaded(graph: Arcs, supply: Mapping[int, int], crowding: Fraction) -> tuple[Flow, int, int]:
    """A flow network that decides whether some set has more load; its source; the flow to each sink if none has."""
    source = graph.nodes
    tails = np.concatenate((graph.tails, np.full(len(supply), source, np.int32)))
    heads = np.concatenate((graph.heads, np.fromiter(supply, np.int32, len(supply))))
    capacity = [amount * crowding.numerator for amount in graph.capacity]
    capacity += [weight * crowding.denominator for weight in supply.values()]
    amount = sum(supply.values()) * crowding.denominator
    return flow_network(source + 1, tails, heads, capacity), source, amount
