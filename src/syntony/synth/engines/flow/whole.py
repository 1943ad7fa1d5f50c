"""all_to_all on large networks without symmetry: every chunk takes one path, and links are balanced by prices.

A flow program of 512 sources and 3,000 links has one and a half million variables. But so many chunks share each link
that none needs to be divided, and paths can be found one by one (csrc/solve/graph/balanced_paths.hpp):

    prices         exponential in the load of a link    0 ──▶ 1 ──▶ 2     chunks of 0 for 2 move to the lower
    paths          each demand's cheapest, again and again   └───▶ 3 ──▶─┘     way until both ways cost the same

The final prices prove a lower bound for every schedule (bounds/prices.py), so the gap is proven: loads are counted in
whole numbers, and the bound is recomputed exactly from rounded prices. If few chunks share a link, blocks are cut into
more pieces.

A hop's step is its number on the path.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony import _solve
from syntony.base.rows import in_order, pieces
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.demand import block_weights
from syntony.synth.bounds.distance import latency
from syntony.synth.bounds.prices import proven_by
from syntony.synth.engines.engine import EngineError
from syntony.synth.model.bound import Bounds, Throughput
from syntony.synth.model.collective import MOST_WEIGHT, ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import Values

PIECES = 256
"""Least number of pieces on the tightest link, so that one piece more or less hardly matters."""
MOST_PIECES = 2_000_000
"""Most pieces in all."""
TOLERANCE = 2e-3
"""Gap at which the search ends."""

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Hops:
    """The paths that chunks have so far, H hops in any order.

    chunk   (H,)    -1: of none of the chunks in question
    step    (H,)    orders the hops of a chunk
    offset  (H+1,)  hop h takes link[offset[h]:offset[h + 1]] of the topology; -1: lost, and with it the path
    """

    chunk: Integers
    step: Integers
    offset: Integers
    link: Integers

    @staticmethod
    def none() -> Hops:
        """No chunk has a path yet."""
        empty = np.zeros(0, np.int32)
        return Hops(empty, empty, np.zeros(1, np.int64), empty)


def whole_paths(network: Network, bounds: Bounds, engine: str, seconds: float) -> Schedule:
    """A schedule of an all_to_all, with the bounds that it came with or better ones. Raises EngineError."""
    arcs = Arcs.of(network)
    cut = _cut(network, arcs, bounds.throughput.seconds_per_byte)
    ranks = cut.ranks
    sender, receiver = cut.chunks.block // ranks, cut.chunks.block % ranks
    moved = np.flatnonzero(sender != receiver)
    aim = bounds.throughput.seconds_per_byte
    network_cut = Network(network.topology, cut)
    paths = balanced(network_cut, arcs, sender[moved], receiver[moved], moved, Hops.none(), aim, seconds)
    transfers = transfers_along(network, moved[paths.demand], paths.offset, np.asarray(arcs.links)[paths.link])
    count = len(cut.chunks)
    values = Values(np.arange(count), sender, np.zeros(count + 1, np.int64), np.zeros(0, np.int64))
    throughput = bounds.throughput
    priced = proven_by(network, arcs, paths.prices)
    if priced is not None and priced.share / priced.bandwidth > throughput.seconds_per_byte:
        throughput = Throughput.by(priced, "prices that balanced paths ended with")
    better = Bounds(latency(network_cut, arcs), throughput)
    return Schedule(network.topology, cut, values, transfers, engine=engine, bounds=better)


def balanced(
    network: Network,
    arcs: Arcs,
    sender: Integers,
    receiver: Integers,
    chunks: Integers,
    before: Hops,
    aim: Fraction,
    seconds: float,
    tolerance: float = TOLERANCE,
) -> _solve.BalancedPaths:
    """A path over the arcs for each of the chunks, from sender to receiver (ranks of the collective).

    Returns those that are not the chunk's path so far; `demand` counts the given chunks.

    chunks  ascending by sender
    aim     seconds per byte below which nothing can be; the search ends within `tolerance` of it
    """
    collective, members = network.collective, np.asarray(network.collective.members)
    fastest = max(arcs.capacity)
    arc_of = np.full(len(network.topology.links) + 1, -1, np.int32)
    arc_of[list(arcs.links)] = np.arange(len(arcs.links))
    demand_of = np.full(len(collective.chunks) + 1, -1, np.int32)
    demand_of[chunks] = np.arange(len(chunks))
    return _solve.balanced_paths(
        arcs.nodes,
        arcs.tails,
        arcs.heads,
        np.asarray([float(Fraction(capacity, fastest)) for capacity in arcs.capacity]),
        members[sender].astype(np.int32),
        members[receiver].astype(np.int32),
        collective.chunks.weight[chunks].astype(np.int64),
        demand_of[before.chunk],
        before.step,
        before.offset,
        arc_of[before.link],
        float(aim / collective.unit * arcs.unit * fastest),
        tolerance,
        seconds,
    )


def _cut(network: Network, arcs: Arcs, seconds_per_byte: Fraction) -> Collective:
    """The collective with blocks in near-equal pieces, none of which is much on any link. Raises EngineError."""
    collective = network.collective
    table = block_weights(collective)
    in_time = float(seconds_per_byte / collective.unit * arcs.unit * min(arcs.capacity))
    parts = np.clip(np.ceil(table * (PIECES / in_time)), 1, max(1, MOST_PIECES // table.size)).astype(np.int64)
    np.fill_diagonal(parts, 1)
    scale = int(parts.max())
    if int(table.max()) * scale > MOST_WEIGHT:
        raise EngineError(f"blocks of weight {int(table.max())} are too uneven to be cut into {scale} pieces each")
    count, whole = parts.reshape(-1), table.reshape(-1) * scale
    block = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(block)) - np.repeat(np.cumsum(count) - count, count)
    weight = whole[block] // count[block] + (within < (whole % count)[block])
    return replace(collective, chunks=ChunkTable(block, weight))


def transfers_along(network: Network, chunks: Integers, offset: Integers, link: Integers) -> Transfers:
    """Transfers that take chunk i (value i too) along link[offset[i]:offset[i + 1]], a hop from rank to rank each."""
    topology, collective = network.topology, network.collective
    tails, heads = topology.ends
    is_rank = np.asarray([node.kind == "rank" for node in topology.nodes])
    position = np.full(len(is_rank), -1)
    position[list(collective.members)] = np.arange(collective.ranks)
    path = np.repeat(np.arange(len(chunks)), np.diff(offset))
    ends = np.flatnonzero(is_rank[heads[link]])
    starts = np.concatenate(([0], ends + 1))[:-1]
    of_path = path[ends]
    first = np.flatnonzero(np.diff(of_path, prepend=-1))
    step = np.arange(len(ends)) - np.repeat(first, np.diff(first, append=len(ends)))
    order = in_order(step)
    hops = (ends + 1 - starts)[order]
    value = chunks[of_path][order]
    return Transfers(
        value,
        value,
        position[tails[link[starts]]][order],
        position[heads[link[ends]]][order],
        step[order],
        np.concatenate(([0], np.cumsum(hops))),
        pieces(link, starts[order], hops),
    )
