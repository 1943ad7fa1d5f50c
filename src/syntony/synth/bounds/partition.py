"""Partition bounds of all_reduce: how many messages a sum needs between parts of the network.

Divide all members into k parts, P1 .. Pk (disjoint sets of nodes; switches and NICs may be in any part, or in none):

        ┌────┐   ┌────┐   ┌────┐         each byte of the result needs 2 (k - 1) messages from part to part,
        │ P1 │──▶│ P2 │──▶│ P3 │         each of which leaves the part of its sender:
        │    │◀──│    │◀──│    │
        └────┘   └────┘   └────┘         seconds per byte  >=  2 (k - 1) / (B(P1) + .. + B(Pk))

where B(P) is the bandwidth of the links that leave P; parts may share switches, and a link that leaves several parts
then counts in each. Proof: consider one byte, and say that a part knows a member when some value in it depends on that
member's contribution. After a message, the receiving part knows at most what both knew. When the first part knows all
members, the messages so far connect all k parts, so there are at least k - 1. Every other part does not know all
members yet and needs a further message: k - 1 more. (Patarasuk and Yuan, JPDC'09, have k single nodes.) Counted at the
links that *enter* the parts the argument is the same.

Switches. A switch that only forwards may be outside of all parts: one message leaves it for each that enters. A switch
that multicasts makes several messages of one that left its part, so it must be inside a part if messages are counted
where they leave; a switch that reduces makes one of several, so it must be inside a part if they are counted where they
enter. Inside a part anything may be copied and added. So each such switch is first merged with the ranks around it. A
fabric whose switches all add becomes one part; then only the cut bound remains, 1 / B instead of 2 (n - 1) / n / B on a
star, which such switches do reach.

A switch whose adder takes in at most R bytes/s need not be inside a part: it saves at most one message per
contribution, so it counts as R more bandwidth into the parts,

        seconds per byte  >=  2 (k - 1) / (B(P1) + .. + B(Pk) + R)          B(P) of the links that enter P

For each part but the first to know all members, take the message in which its contribution first leaves it on its way
to the first: it enters a part unchanged, or an adder. These are k - 1 different messages; and again every other part
needs a message that enters it after that. (Aggregators with R: topologies/aggregator.py.)

Which parts? Those with the least sum of B(Pi) - t over all partitions, where t is the best ratio
(B(P1) + .. + B(Pk)) / (k - 1) so far: if the sum is below -t, they are better, and the search is repeated with
their ratio (Dinkelbach). The least sum is a Dilworth truncation: B is submodular, so members are admitted one after
another, each getting the greatest x with x(X) <= B(X) - t for every set X of admitted members (Frank and Tardos 1988;
for graphs Cunningham 1985). That is one minimum cut per member, in one flow that carries the x of the earlier ones on
to those not yet admitted; a set whose x is tight is a part, and parts that overlap join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony.base.deadline import ENDLESS, Deadline
from syntony.synth.bounds.arcs import Arcs, Int32s
from syntony.synth.bounds.islands import Labels, exits, islands
from syntony.synth.bounds.max_flow import flow_network
from syntony.synth.model.bound import Partition
from syntony.synth.model.network import Network

Parts = list[NDArray[np.bool_]]
Terminals = NDArray[np.int64]


def best_partition(
    network: Network,
    arcs: Arcs,
    entering: bool = False,
    reached: Fraction | None = None,
    deadline: Deadline = ENDLESS,
) -> Partition | None:
    """The best partition, with messages counted where they leave (or enter) parts; None if switches leave only one
    part.

    `reached` are seconds per byte that some schedule is known to reach: a partition that proves as much is the best.
    Past the deadline it is the best one found.
    """
    nodes = network.topology.nodes
    rates = {node.id: node.aggregator.rate for node in nodes if node.aggregator and node.aggregator.rate is not None}
    adders = tuple(rates) if entering else ()
    clever = [node.id for node in nodes if (node.reduces if entering else node.multicast) and node.id not in adders]
    graph = arcs.reversed() if entering else arcs
    label = _glued(graph, clever, network)
    terminals = np.unique(label[np.asarray(network.collective.members)])
    if len(terminals) < 2:
        return None
    adding = sum((rates[adder] for adder in adders), Fraction(0))
    small = _contracted(graph, label)

    def ratio_of(leaving: list[int]) -> Fraction:
        """How much leaves the parts, or is added on the way, per message that a phase needs."""
        return (sum(leaving) + adding / graph.unit) / (len(leaving) - 1)

    labels = min(_guesses(small, terminals), key=lambda guess: ratio_of(exits(small, guess)))
    parts = [labels == part for part in range(int(labels.max()) + 1)]
    ratio = ratio_of(exits(small, labels))
    met = reached is not None and 2 / (ratio * graph.unit) >= reached
    while not met and not deadline.passed():
        better = _with_less_sum(small, terminals, ratio, adding / graph.unit)
        if better is None:
            break
        parts, ratio = better, ratio_of([sum(small.capacity[arc] for arc in small.leaving(part)) for part in better])
    parts = [part[label] & graph.usable for part in parts]
    leaving = [arc for part in parts for arc in graph.leaving(part)]
    members = tuple(tuple(np.flatnonzero(part).tolist()) for part in parts)
    links, bandwidth = tuple(graph.links[arc] for arc in leaving), graph.bandwidth(leaving) + adding
    return Partition(members, links, Fraction(2 * (len(parts) - 1)), bandwidth, entering, adders)


def _glued(graph: Arcs, switches: list[int], network: Network) -> Int32s:
    """Merges each of the switches with the nodes around it, as far as ranks; per node the least it is merged with."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    is_rank = np.asarray([node.kind == "rank" for node in network.topology.nodes])
    neighbours: list[list[int]] = [[] for _ in range(graph.nodes)]
    for tail, head in zip(graph.tails.tolist(), graph.heads.tolist(), strict=True) if switches else ():
        neighbours[tail].append(head)
        neighbours[head].append(tail)
    pairs = []
    for switch in switches:
        around, frontier = {switch}, [switch]
        for node in frontier:
            fresh = set(neighbours[node]) - around
            around |= fresh
            frontier += [other for other in fresh if not is_rank[other]]
        if not is_rank[list(around)].any():
            around.add(network.collective.members[0])  # no link leads to any rank, so it may be in any part
        pairs += [(switch, node) for node in around]
    ends = np.asarray(pairs, np.int64).reshape(-1, 2)
    glue = coo_array((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(graph.nodes, graph.nodes))
    _, group = connected_components(glue, directed=False)
    _, first = np.unique(group, return_index=True)
    return np.asarray(first[group], np.int32)


def _contracted(graph: Arcs, label: Int32s) -> Arcs:
    """The graph of the merged nodes, each with the number of its first node."""
    tails, heads = label[graph.tails], label[graph.heads]
    kept = np.flatnonzero(tails != heads).tolist()
    links = tuple(graph.links[arc] for arc in kept)
    capacity = tuple(graph.capacity[arc] for arc in kept)
    usable = graph.usable & (label == np.arange(graph.nodes))
    return Arcs(graph.nodes, usable, links, tails[kept], heads[kept], capacity, graph.unit)


def _guesses(graph: Arcs, terminals: Terminals) -> Iterator[Labels]:
    """The first candidates: single terminals, and islands."""
    singles = np.full(graph.nodes, -1)
    singles[terminals] = np.arange(len(terminals))
    yield singles
    yield from islands(graph, terminals)


def _with_less_sum(graph: Arcs, terminals: Terminals, ratio: Fraction, adding: Fraction) -> Parts | None:
    """Parts whose B(P1) + .. + B(Pk) - k * ratio is least, if that plus `adding` is below what a single part gives."""
    source, sink = graph.nodes, graph.nodes + 1
    step, price = ratio.denominator, ratio.numerator
    whole = [capacity * step for capacity in graph.capacity]
    into, out = _through(graph, whole)
    count, first = len(terminals), len(whole)
    at_sink, at_source = range(first, first + count), range(first + count, first + 2 * count)
    flow = flow_network(
        graph.nodes + 2,
        np.concatenate((graph.tails, terminals, np.full(count, source))).astype(np.int32),
        np.concatenate((graph.heads, np.full(count, sink), terminals)).astype(np.int32),
        whole + [into[node] for node in terminals.tolist()] + [0] * count,
        room=sum(out[node] for node in terminals.tolist()) + count * price,
    )
    part_of = np.arange(count)
    total = 0
    for admitted, node in enumerate(terminals.tolist()):
        # First what the earlier nodes sent here, then as much as fits: the cut that limits x.
        came = flow.flow(at_sink[admitted])
        flow.augment(sink, node, came)
        flow.set_capacity(at_sink[admitted], 0)
        sent = flow.augment(node, sink)
        tight = flow.reachable_from(node)[terminals[: admitted + 1]]
        if np.count_nonzero(tight) > 1:
            part_of[np.isin(part_of, part_of[: admitted + 1][tight])] = admitted
        x = sent - came - price
        total += x
        # From here on the node sends x, or absorbs -x if x is negative.
        flow.set_capacity(at_sink[admitted], max(-x, 0))
        surplus = sent - came - max(x, 0)
        if surplus > 0:
            flow.augment(sink, node, surplus)
        elif surplus < 0:
            flow.augment(node, sink, -surplus)
        if x > 0:
            flow.set_capacity(at_source[admitted], x)
            flow.augment(source, node, x)
    if total + adding * step >= -price:
        return None
    groups = [terminals[part_of == part] for part in np.unique(part_of).tolist()]
    return _smallest_parts(graph, terminals, groups)


def _smallest_parts(graph: Arcs, terminals: Terminals, groups: Sequence[Terminals]) -> Parts:
    """Per group of terminals the smallest node set with the least bandwidth that has these terminals and no others."""
    source, sink, first = graph.nodes, graph.nodes + 1, len(graph.capacity)
    into, out = _through(graph, graph.capacity)
    position = {node: i for i, node in enumerate(terminals.tolist())}
    flow = flow_network(
        graph.nodes + 2,
        np.concatenate((graph.tails, terminals, np.full(len(terminals), source))).astype(np.int32),
        np.concatenate((graph.heads, np.full(len(terminals), sink), terminals)).astype(np.int32),
        [*graph.capacity, *(into[node] for node in terminals.tolist()), *([0] * len(terminals))],
        room=sum(out) + len(terminals),
    )
    parts = []
    for group in groups:
        flow.reset()
        for node in group.tolist():
            flow.set_capacity(first + position[node], 0)
            flow.set_capacity(first + len(terminals) + position[node], out[node] + 1)
        flow.augment(source, sink)
        parts.append(flow.reachable_from(source)[: graph.nodes])
        flow.reset()
        for node in group.tolist():
            flow.set_capacity(first + position[node], into[node])
            flow.set_capacity(first + len(terminals) + position[node], 0)
    return parts


def _through(graph: Arcs, capacity: Sequence[int]) -> tuple[list[int], list[int]]:
    """Per node what can come in and what can go out."""
    into, out = [0] * graph.nodes, [0] * graph.nodes
    for tail, head, amount in zip(graph.tails.tolist(), graph.heads.tolist(), capacity, strict=True):
        out[tail] += amount
        into[head] += amount
    return into, out
