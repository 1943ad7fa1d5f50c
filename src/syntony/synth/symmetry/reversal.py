"""Sums from copies: schedules of combining collectives out of schedules of their duals.

Run a schedule backwards on reversed links, and every tree that spread a chunk from one rank sums it into that rank
(Cai et al., PPoPP'21, section 3.5):

        spread, forwards                      summed, backwards
        step 0:  0 ──▶ 1                      step 1:  1 ──▶ 0    0 holds (0 + 2) + (1 + 3)
        step 1:  0 ──▶ 2,  1 ──▶ 3            step 0:  2 ──▶ 0,  3 ──▶ 1

A rank adds what arrives to what it has, in order of arrival step: sums are chains of two operands. all_reduce is
reduce_scatter, then all_gather of the sums. Of symmetric schedules the listed chunks are run backwards, where all that
moves them is listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.link_loads import free_order
from syntony.topologies.topology import Topology


@dataclass(frozen=True)
class _Sums:
    """A summing schedule in the making: its values, its transfers, and per chunk the value at its destination."""

    values: ValueBuilder
    transfers: list[Transfer]
    whole: dict[int, int]


def summed(dual: Schedule, topology: Topology) -> Schedule:
    """The schedule of `dual.collective.dual()` on `topology`, of which `dual` is a schedule on the reversed links.

    `dual` must take each chunk to every rank, and to each once: all_gather or broadcast. Bounds and proof are dropped.
    """
    dual = _alone(dual)
    sums = _backwards(dual)
    return Schedule(
        topology,
        dual.collective.dual(),
        sums.values.build(),
        Transfers.of(sums.transfers),
        dual.rounds[::-1],
        dual.engine,
        symmetry=dual.symmetry,
    )


def summed_and_spread(dual: Schedule, spread: Schedule, collective: Collective) -> Schedule:
    """all_reduce: `dual`, an all_gather on the reversed links, backwards; then `spread`, one of the same chunks."""
    dual, spread = _alone(dual), _alone(spread)
    if dual.symmetry != spread.symmetry or not np.array_equal(
        np.unique(dual.values.chunk), np.unique(spread.values.chunk)
    ):
        dual, spread = expand(dual), expand(spread)
    sums = _backwards(dual)
    delay = max(dual.steps, len(dual.rounds))
    copies = []
    for copy in spread.transfers.rows():
        value = sums.whole[int(spread.values.chunk[copy.value])]
        copies.append(replace(copy, value=value, result=value, step=copy.step + delay))
    return Schedule(
        spread.topology,
        collective,
        sums.values.build(),
        Transfers.of(sums.transfers + copies),
        np.concatenate((dual.rounds[::-1], spread.rounds)) if len(spread.rounds) else spread.rounds,
        spread.engine,
        symmetry=spread.symmetry,
    )


def in_owned_chunks(collective: Collective) -> tuple[Collective, Collective]:
    """An all_reduce with equally many chunks per rank, and the all_gather in which rank r owns the r-th of those lots.

    Where the chunks do not divide evenly, each is cut into as many as there are ranks.
    """
    weight = collective.chunks.weight
    if len(weight) % collective.ranks:
        weight = np.repeat(weight, collective.ranks)
    owner = np.arange(len(weight)) // (len(weight) // collective.ranks)
    cut = replace(collective, chunks=ChunkTable(np.zeros(len(weight), np.int32), weight))
    return cut, replace(collective, kind="all_gather", chunks=ChunkTable(owner, weight))


def _alone(schedule: Schedule) -> Schedule:
    """The schedule, expanded where what is listed for a chunk is not all that moves it."""
    alone = schedule.symmetry and free_order(schedule) is not None
    listed = np.unique(schedule.values.chunk[schedule.transfers.value])
    return schedule if alone and np.array_equal(listed, np.unique(schedule.values.chunk)) else expand(schedule)


def _backwards(dual: Schedule) -> _Sums:
    builder = ValueBuilder()
    ranks = range(dual.collective.ranks)
    chunk_of = dual.values.chunk.tolist()
    chunks = np.unique(dual.values.chunk).tolist() if dual.symmetry else range(len(dual.collective.chunks))
    held = {chunk: [builder.contribution(chunk, rank) for rank in ranks] for chunk in chunks}
    last = max(dual.steps, len(dual.rounds)) - 1
    transfers = []
    backwards = reversed(dual.transfers.rows())
    for row in sorted(backwards, key=lambda row: -row.step):
        at = held[chunk_of[row.value]]
        moved, src, dst = at[row.dst], row.dst, row.src
        at[dst] = builder.sum((at[dst], moved))
        transfers.append(Transfer(moved, at[dst], src, dst, last - row.step, row.route[::-1]))
    whole = {chunk: at[min(dual.collective.pre(chunk))] for chunk, at in held.items()}
    return _Sums(builder, transfers, whole)
