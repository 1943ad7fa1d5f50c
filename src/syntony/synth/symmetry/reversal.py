"""Sums from copies: builds schedules of reducing collectives from schedules of their duals.

Run a schedule backwards on reversed links, and every tree that spreads a chunk from one rank sums it into that rank
(Cai et al., PPoPP'21, section 3.5):

        spread, forwards                      summed, backwards
        step 0:  0 ──▶ 1                      step 1:  1 ──▶ 0    0 holds (0 + 2) + (1 + 3)
        step 1:  0 ──▶ 2,  1 ──▶ 3            step 0:  2 ──▶ 0,  3 ──▶ 1

A rank adds arriving values to what it has, in order of arrival step: sums are chains of two operands. all_reduce is
reduce_scatter, then all_gather of the sums. For a symmetric schedule, the listed chunks are run backwards if everything
that moves them is listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import ascending, pieces
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import Values
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.link_loads import free_order
from syntony.topologies.topology import Topology


@dataclass(frozen=True)
class _Sums:
    """A reducing schedule under construction: its values, transfers, and per chunk the value at its destination."""

    values: Values
    transfers: Transfers
    whole: NDArray[np.signedinteger]


def summed(dual: Schedule, topology: Topology) -> Schedule:
    """The schedule of `dual.collective.dual()` on `topology`, from `dual`, which is a schedule on the reversed links.

    `dual` must bring each chunk to every rank exactly once: all_gather or broadcast. Bounds and proof are dropped.
    """
    dual = _alone(dual)
    sums = _backwards(dual)
    return Schedule(
        topology,
        dual.collective.dual(),
        sums.values,
        sums.transfers,
        dual.rounds[::-1],
        dual.engine,
        symmetry=dual.symmetry,
    )


def summed_and_spread(dual: Schedule, spread: Schedule, collective: Collective) -> Schedule:
    """all_reduce: `dual`, an all_gather on the reversed links, backwards; then `spread`, one of the same chunks."""
    dual, spread = _alone(dual), _alone(spread)
    if dual.symmetry != spread.symmetry or not np.array_equal(
        ascending(dual.values.chunk), ascending(spread.values.chunk)
    ):
        dual, spread = expand(dual), expand(spread)
    sums = _backwards(dual)
    delay = max(dual.steps, len(dual.rounds))
    one, two = sums.transfers, spread.transfers
    value = sums.whole[spread.values.chunk[two.value]]
    both = Transfers(
        np.concatenate((one.value, value)),
        np.concatenate((one.result, value)),
        np.concatenate((one.src, two.src)),
        np.concatenate((one.dst, two.dst)),
        np.concatenate((one.step, two.step + delay)),
        np.concatenate((one.offset, one.offset[-1] + two.offset[1:])),
        np.concatenate((one.link, two.link)),
    )
    return Schedule(
        spread.topology,
        collective,
        sums.values,
        both,
        np.concatenate((dual.rounds[::-1], spread.rounds)) if len(spread.rounds) else spread.rounds,
        spread.engine,
        symmetry=spread.symmetry,
    )


def in_owned_chunks(collective: Collective) -> tuple[Collective, Collective]:
    """An all_reduce with equally many chunks per rank, and the all_gather in which rank r owns the r-th group of them.

    If the chunks do not divide evenly, each is cut into as many as there are ranks.
    """
    weight = collective.chunks.weight
    if len(weight) % collective.ranks:
        weight = np.repeat(weight, collective.ranks)
    owner = np.arange(len(weight)) // (len(weight) // collective.ranks)
    cut = replace(collective, chunks=ChunkTable(np.zeros(len(weight), np.int32), weight))
    return cut, replace(collective, kind="all_gather", chunks=ChunkTable(owner, weight))


def _alone(schedule: Schedule) -> Schedule:
    """The schedule, expanded unless everything that moves a listed chunk is listed."""
    alone = schedule.symmetry and free_order(schedule) is not None
    listed = ascending(schedule.values.chunk[schedule.transfers.value])
    return schedule if alone and np.array_equal(listed, ascending(schedule.values.chunk)) else expand(schedule)


def _backwards(dual: Schedule) -> _Sums:
    """Values: the contributions, chunk by chunk, then the sums, one per transfer, in the order of transfers."""
    moved, ranks = dual.transfers, dual.collective.ranks
    all_chunks = len(dual.collective.chunks)
    chunks = ascending(dual.values.chunk) if dual.symmetry else np.arange(all_chunks)
    order = np.argsort(-moved.step[::-1].astype(np.int64), kind="stable")
    rows = len(moved) - 1 - order
    count = len(rows)
    number = np.full(all_chunks, -1, np.int64)
    number[chunks] = np.arange(len(chunks))
    chunk = dual.values.chunk[moved.value[rows]]
    first = number[chunk] * ranks  # first contribution of the chunk
    src, dst = moved.dst[rows].astype(np.int64), moved.src[rows].astype(np.int64)

    # A sum adds the arriving value to what its place (a chunk at a rank) held so far.
    sum_at = np.sort((first + dst) * count + np.arange(count))

    def held(place: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
        """The last of the first `before` sums made at the place, else the place's contribution."""
        if not count:
            return place
        earlier = np.searchsorted(sum_at, place * count + before)
        last = sum_at[earlier - 1]
        return np.where((earlier > 0) & (last // count == place), len(chunks) * ranks + last % count, place)

    here, arriving = (held(first + end, np.arange(count)) for end in (dst, src))
    made = len(chunks) * ranks + np.arange(count)
    values = Values(
        np.concatenate((np.repeat(chunks, ranks), chunk)),
        np.concatenate((np.tile(np.arange(ranks), len(chunks)), np.full(count, -1))),
        np.concatenate((np.zeros(len(chunks) * ranks, np.int64), 2 * np.arange(count + 1))),
        np.stack((here, arriving), axis=1).reshape(-1),
    )
    lengths = np.diff(moved.offset)[rows]
    link = pieces(moved.link, moved.offset[:-1][rows], lengths)
    last_link = np.cumsum(lengths) - 1
    link = link[np.repeat(2 * last_link - lengths + 1, lengths) - np.arange(len(link))]
    last = max(dual.steps, len(dual.rounds)) - 1
    offset = np.concatenate(([0], np.cumsum(lengths)))
    transfers = Transfers(arriving, made, src, dst, last - moved.step[rows], offset, link)
    whole = np.full(all_chunks, -1, np.int64)
    owner = np.asarray([min(dual.collective.pre(int(one))) for one in chunks], np.int64)
    place = number[chunks] * ranks + owner
    whole[chunks] = held(place, np.full(len(chunks), count))
    return _Sums(values, transfers, whole)
