"""Repair: adapts a schedule to a topology that has lost nodes or links, or has slower links.

A lost link breaks few of the thousands of trees (or paths) of a large schedule. These are repaired over links with
spare capacity, and the others are kept:

    old schedule ──▶ trees ──▶ those over lost links are cut, branches are reattached ──▶ schedule
                               (csrc/solve/trees/regraft.hpp)

    all_gather, broadcast      a tree per chunk
    reduce_scatter, reduce     the same, backwards
    all_reduce                 trees for sums, then trees for copies, which share the links
    all_to_all, gather, ..     a path per chunk; lost ones are rerouted, and those over links that are too full
                               (graph/balanced_paths.hpp)

The exact bound of the degraded network determines how much each link may carry; the gap to it is part of the result. A
schedule that does not consist of trees or paths (because switches add, or sums cross) is synthesized anew by engine
`auto`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from math import gcd

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.base.rows import in_order, pieces
from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.demand import block_weights
from syntony.synth.bounds.distance import latency
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines import auto
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.flow.whole import Hops, balanced, transfers_along, whole_paths
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.forest.grafting import LEAST_SLACK, OWN_SLACK, Standing, best_grafted
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import Values
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.graph.degraded import Degraded, degraded

ENGINE = "repair"
NEAR = 0.01
"""Paths are balanced until they are within this of the bound."""
GOOD = Fraction(2, 100)
"""If the repair leaves a greater gap, the exact engine also runs, which may cut chunks differently."""
ANEW_RANKS = 32
"""For trees, the exact engine runs only up to this many ranks."""

Integers = NDArray[np.signedinteger]


class NotMendableError(UserError):
    """A schedule whose chunks do not travel along trees or paths from rank to rank."""


def repair(old: Schedule, without: Sequence[str], slowed: Sequence[str], budget: Budget) -> Schedule:
    """The schedule for the topology of `old` with this damage (topologies/graph/degraded.py), with its bounds.

    Its collective is that of the remaining ranks, without the blocks of lost ranks. Raises UserError if there are no
    such nodes or links, if some rank is cut off, or if the root is lost.
    """
    damage = degraded(old.topology, without, slowed)
    rank_at = _ranks_left(old.collective, damage)
    collective = _what_is_left(old.collective, rank_at, damage)
    bounds = bounds_of(damage.topology, collective, budget.for_bounds())
    try:
        if old.in_network or collective.ranks == 1:
            raise NotMendableError("there are no trees to mend")
        time = bounds.throughput.seconds_per_byte
        mended, took = _mended(expand(old), damage, rank_at, collective, time, budget)
    except NotMendableError:
        return auto.run(damage.topology, _uncut(collective), 1 << 30, budget)
    bounds = replace(bounds, latency=latency(Network(damage.topology, mended.collective)))
    mended = replace(mended, engine=ENGINE, bounds=bounds)
    paths = collective.kind in flow.KINDS
    if took <= time * (1 + GOOD) or (collective.ranks > ANEW_RANKS and not paths):
        return mended
    anew = mended
    with suppress(EngineError):
        if collective.kind == "all_to_all" and collective.ranks > ANEW_RANKS:
            anew = whole_paths(Network(damage.topology, _uncut(collective)), bounds, flow.ENGINE, budget.left())
        else:
            anew = (flow if paths else forest).run(damage.topology, _uncut(collective), 0, budget)
    return mended if took <= seconds_per_byte(anew) else anew


def _ranks_left(collective: Collective, damage: Degraded) -> Integers:
    """The new number of each rank of the old collective; -1: lost. Raises UserError."""
    left = damage.node_at[list(collective.members)] >= 0
    if not left.any():
        raise UserError(f"{damage.topology.name}: no member of the {collective.kind} is left")
    if collective.rooted and not left[collective.root]:
        raise UserError(
            f"{damage.topology.name}: rank {collective.root}, the root of the {collective.kind}, is lost; "
            "synthesize one with another root"
        )
    return np.where(left, np.cumsum(left) - 1, -1)


def _what_is_left(collective: Collective, rank_at: Integers, damage: Degraded) -> Collective:
    """The collective of the remaining ranks, with the chunks of their blocks."""
    members = tuple(int(node) for node in damage.node_at[list(collective.members)] if node >= 0)
    ranks = len(members)
    block, weight = collective.chunks.block.astype(np.int64), collective.chunks.weight
    if collective.kind == "all_to_all":
        ends = rank_at[block // collective.ranks], rank_at[block % collective.ranks]
        block = np.where((ends[0] >= 0) & (ends[1] >= 0), ends[0] * ranks + ends[1], -1)
    elif collective.blocks > 1:
        block = rank_at[block]
    root = int(rank_at[collective.root]) if collective.rooted else 0
    chunks = ChunkTable(block[block >= 0], weight[block >= 0])
    return Collective(collective.kind, ranks, chunks, root, members)


def _uncut(collective: Collective) -> Collective:
    """The collective with one chunk per block, and blocks of unchanged sizes."""
    weight = block_weights(collective).reshape(-1)
    return replace(collective, chunks=ChunkTable(np.arange(len(weight)), weight // gcd(*weight.tolist())))


def _mended(
    old: Schedule, damage: Degraded, rank_at: Integers, collective: Collective, time: Fraction, budget: Budget
) -> tuple[Schedule, Fraction]:
    """The schedule, and its seconds per byte. Raises NotMendableError."""
    topology = damage.topology
    if collective.kind in flow.KINDS:
        schedule = _rerouted(old, damage, rank_at, collective, time, budget)
        return schedule, seconds_per_byte(schedule)
    standing = Standing.joined(
        [
            _standing(old, damage, rank_at, backwards)
            for backwards in (True, False)
            if (collective.combining if backwards else collective.kind not in ("reduce_scatter", "reduce"))
        ]
    )
    least = LEAST_SLACK
    if collective.kind == "all_reduce" and seconds_per_byte(old) >= time:
        time, least = seconds_per_byte(old), OWN_SLACK
    grafted = best_grafted(topology, collective, standing, time, budget, least)
    if grafted is None:
        raise NotMendableError("the transfers of a chunk form a cycle")
    return grafted, seconds_per_byte(grafted)


# trees --------------------------------------------------------------------------------------------------------------


def _standing(old: Schedule, damage: Degraded, rank_at: Integers, backwards: bool) -> Standing:
    """The trees that spread chunks, or (backwards) that sum them, as trees from the rank of the sum.

    Raises NotMendableError if some chunk's transfers are not a tree.
    """
    moved, ranks = old.transfers, old.collective.ranks
    rows = np.flatnonzero(moved.reduces if backwards else ~moved.reduces)
    chunk, step = old.values.chunk[moved.value[rows]], moved.step[rows]
    order = _by_chunk(chunk, step.max(initial=0) - step if backwards else step)
    rows, chunk = rows[order], chunk[order]
    tail, head = (moved.dst[rows], moved.src[rows]) if backwards else (moved.src[rows], moved.dst[rows])
    shape = (len(old.collective.chunks), ranks - 1)
    whole = len(rows) == shape[0] * shape[1] and bool((np.bincount(chunk, minlength=shape[0]) == shape[1]).all())
    reached = np.zeros(shape[0] * ranks, bool)
    reached[chunk.astype(np.int64) * ranks + head] = True
    if not whole or np.count_nonzero(reached) < len(rows):
        raise NotMendableError("some chunk does not travel along a tree")
    root = ranks * (ranks - 1) // 2 - head.reshape(shape).sum(axis=1, dtype=np.int64)

    lengths = np.diff(moved.offset)[rows]
    link = pieces(moved.link, moved.offset[:-1][rows], lengths)
    if backwards:
        last = np.cumsum(lengths) - 1
        link = link[np.repeat(last + last - lengths + 1, lengths) - np.arange(len(link))]
    link = damage.link_at[link]
    tail, head = rank_at[tail], rank_at[head]
    kept_trees = rank_at[root] >= 0
    kept = np.repeat(kept_trees, shape[1]) & (head >= 0)
    # The children of a lost rank have no parent: the links to them are also lost.
    link, lengths = link[np.repeat(kept, lengths)], lengths[kept]
    offset = np.concatenate(([0], np.cumsum(lengths)))
    weight = old.collective.chunks.weight[kept_trees].astype(np.int64)
    ways = np.full(len(weight), backwards)
    return Standing(rank_at[root[kept_trees]], weight, ways, np.maximum(tail[kept], 0), head[kept], offset, link)


def _by_chunk(chunk: Integers, step: Integers) -> Integers:
    """The order by chunk, then step."""
    order = in_order(step)
    return order[in_order(chunk[order])]


# paths --------------------------------------------------------------------------------------------------------------


def _rerouted(
    old: Schedule, damage: Degraded, rank_at: Integers, collective: Collective, time: Fraction, budget: Budget
) -> Schedule:
    """Chunks on their old paths if these still exist and are not too full. Raises NotMendableError."""
    moved, before = old.transfers, old.collective
    if (old.values.rank < 0).any():
        raise NotMendableError("paths sum nothing")
    kept = _kept_chunks(before, rank_at)
    chunk = np.where(kept, np.cumsum(kept, dtype=np.int32) - 1, -1)[old.values.chunk][moved.value]
    hops = Hops(chunk, moved.step, moved.offset, damage.link_at.astype(np.int32)[moved.link])

    network = Network(damage.topology, collective)
    block, ranks = collective.chunks.block.astype(np.int64), collective.ranks
    root = np.full(len(block), collective.root)
    sender, receiver = {
        "all_to_all": (block // ranks, block % ranks),
        "gather": (block, root),
        "scatter": (root, block),
    }[collective.kind]
    away = np.flatnonzero(sender != receiver)
    arcs = Arcs.of(network)
    paths = balanced(network, arcs, sender[away], receiver[away], away, hops, time, budget.left(), NEAR)
    changed = away[paths.demand]
    anew = transfers_along(network, changed, paths.offset, np.asarray(arcs.links)[paths.link])
    staying = np.ones(len(block) + 1, bool)
    staying[changed] = staying[-1] = False
    rows, lengths, new_rank = staying[chunk], np.diff(moved.offset), rank_at.astype(np.int32)
    value = np.concatenate((chunk[rows], anew.value))
    transfers = Transfers(
        value,
        value,
        np.concatenate((new_rank[moved.src[rows]], anew.src)),
        np.concatenate((new_rank[moved.dst[rows]], anew.dst)),
        np.concatenate((moved.step[rows], anew.step)),
        np.cumsum(np.concatenate(([0], lengths[rows], np.diff(anew.offset)))),
        np.concatenate((hops.link[np.repeat(rows, lengths)], anew.link)),
    )
    count = len(block)
    values = Values(np.arange(count), sender, np.zeros(count + 1, np.int64), np.zeros(0, np.int64))
    return Schedule(damage.topology, collective, values, transfers)


def _kept_chunks(before: Collective, rank_at: Integers) -> NDArray[np.bool_]:
    block = before.chunks.block
    if before.kind == "all_to_all":
        kept: NDArray[np.bool_] = (rank_at[block // before.ranks] >= 0) & (rank_at[block % before.ranks] >= 0)
        return kept
    return np.asarray(rank_at[block] >= 0)
