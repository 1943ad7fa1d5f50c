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

from dataclasses import replace
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
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import Values

PIECES = 256
"""Least number of pieces on the tightest link, so that one piece more or less hardly matters."""
MOST_PIECES = 2_000_000
"""Most pieces in all."""
TOLERANCE = 2e-3
"""Gap at which the search ends."""
_MOST_WEIGHT = 2**31 - 1

Integers = NDArray[np.signedinteger]


def whole_paths(network: Network, bounds: Bounds, engine: str, seconds: float) -> Schedule:
    """A schedule of an all_to_all, with the bounds that it came with or better ones. Raises EngineError."""
    arcs = Arcs.of(network)
    cut = _cut(network, arcs, bounds.throughput.seconds_per_byte)
    ranks = cut.ranks
    sender, receiver = cut.chunks.block // ranks, cut.chunks.block % ranks
    moved = np.flatnonzero(sender != receiver)
    none = (np.zeros(len(moved) + 1, np.int64), np.zeros(0, np.int64))
    aim = bounds.throughput.seconds_per_byte
    network_cut = Network(network.topology, cut)
    paths = balanced(network_cut, arcs, sender[moved], receiver[moved], moved, none, aim, seconds)
    transfers = transfers_along(network, moved, paths.offset, np.asarray(arcs.links)[paths.link])
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
    before: tuple[Integers, Integers],
    aim: Fraction,
    seconds: float,
    tolerance: float = TOLERANCE,
) -> _solve.BalancedPaths:
    """A path over the arcs for each of the chunks, from sender to receiver (ranks of the collective).

    chunks  ascending by sender
    before  the paths so far, as offsets and links of the topology; empty where a chunk has none
    aim     seconds per byte below which nothing can be; the search ends within `tolerance` of it
    """
    collective, members = network.collective, np.asarray(network.collective.members)
    fastest = max(arcs.capacity)
    arc_of = np.full(len(network.topology.links), -1)
    arc_of[list(arcs.links)] = np.arange(len(arcs.links))
    return _solve.balanced_paths(
        arcs.nodes,
        arcs.tails,
        arcs.heads,
        np.asarray([float(Fraction(capacity, fastest)) for capacity in arcs.capacity]),
        members[sender].astype(np.int32),
        members[receiver].astype(np.int32),
        collective.chunks.weight[chunks].astype(np.int64),
        before[0].astype(np.int64),
        arc_of[before[1]].astype(np.int64),
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
    if int(table.max()) * scale > _MOST_WEIGHT:
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
    starts = np.concatenate(([0], ends[:-1] + 1))
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
