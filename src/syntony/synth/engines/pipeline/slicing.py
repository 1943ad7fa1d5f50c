"""Cuts the chunks of a Schedule into slices; each slice is one step behind the one before.

    slice 0   step 0 ──▶ 1 ──▶ 2 ──▶ 3
    slice 1          1 ──▶ 2 ──▶ 3 ──▶ 4

The simulator (simulation/moves.py) and Programs (csrc/core/program/program.hpp) slice long messages themselves. Here
messages of any length are cut, and each slice may get separate steps afterwards (engines/pipeline/list_scheduling.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from syntony.base.rows import pieces
from syntony.synth.bounds.distance import latency
from syntony.synth.engines.pipeline.list_scheduling import at_pace, by_urgency
from syntony.synth.model.collective import ChunkTable
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import Values
from syntony.synth.symmetry.groups import expand

SLICES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of slices per chunk that are tried, up to"""
BEYOND = 16
"""this times the number that is best so far, and"""
LEAST_BYTES = 1024
"""bytes in a slice, if there are at most"""
MOST_TRANSFERS = 40_000
"""transfers in total. Longer messages stream anyway (skews, csrc/core/program/program.hpp)."""


def streamed(schedule: Schedule, size: int, stages: int = 1) -> Iterator[tuple[int, Schedule]]:
    """The schedule in several numbers of slices for `size` bytes, with its bounds but no proof, each in some orders.

    Numbers ascend, and so does what a simulation costs: more than BEYOND times the best number are hardly worth it.

    `stages`: groups of this many chunks of the schedule follow each other, as slices do.
    """
    if len(schedule.transfers) <= MOST_TRANSFERS:
        whole = expand(schedule)
        for slices in _numbers(whole, size, MOST_TRANSFERS):
            cut = _cut(whole, slices)
            for _, ordered in _orders(cut, size, slices, stages):
                yield slices, ordered
            yield slices, by_urgency(cut, size)


def glanced(
    schedule: Schedule, size: int, stages: int, transfers: int, without: Collection[str] = ()
) -> Iterator[tuple[str, Schedule]]:
    """The schedule in about `transfers` transfers, in the orders that are most often the best, with their names.

    `without` these.
    """
    whole = expand(schedule)
    slices = _numbers(whole, size, transfers)[-1]
    yield from _orders(_cut(whole, slices), size, slices, stages, without)


def _orders(
    cut: Schedule, size: int, slices: int, stages: int, without: Collection[str] = ()
) -> Iterator[tuple[str, Schedule]]:
    """Trees that share no link stream best at pace, one slice behind the other; if they share links, ordering by
    urgency is better."""
    if "as cut" not in without:
        yield "as cut", cut
    if slices > 1 and "at pace" not in without:
        yield "at pace", at_pace(cut, size, slices)
    for name, each in (("slices by urgency", slices), ("slices and stages by urgency", slices * stages)):
        if name not in without and each > 1 and (each == slices or stages > 1):
            yield name, by_urgency(cut, size, each)


def _numbers(whole: Schedule, size: int, transfers: int) -> list[int]:
    """The numbers of slices that are not too short, with at most so many transfers; whole chunks always."""
    most = min(
        float(whole.collective.bytes_of_chunks(size).min()) / LEAST_BYTES, transfers / max(1, len(whole.transfers))
    )
    return [slices for slices in SLICES if slices <= max(1, most)]


def _cut(whole: Schedule, slices: int) -> Schedule:
    """In slices, with its bounds."""
    cut = in_slices(whole, slices)
    if whole.bounds is None:
        return cut
    farthest = latency(Network(cut.topology, cut.collective))
    return replace(cut, bounds=replace(whole.bounds, latency=farthest))


def in_slices(schedule: Schedule, slices: int) -> Schedule:
    """The whole schedule with every chunk cut into `slices` equal ones. Bounds and proof are dropped.

    A rank gets a value through transfers of smaller steps only, in each slice as in the whole.
    """
    whole = expand(schedule)
    chunks, values, moved = whole.collective.chunks, whole.values, whole.transfers
    piece = np.arange(slices)
    step = (moved.step[:, None].astype(np.int64) + piece).reshape(-1)
    order = np.argsort(step, kind="stable")
    row = np.repeat(np.arange(len(moved)), slices)[order]
    hops = np.diff(moved.offset)[row]

    def numbered(column: np.ndarray) -> np.ndarray:
        return (column[:, None].astype(np.int64) * slices + piece).reshape(-1)

    lengths = np.repeat(np.diff(values.offset), slices)
    owner = np.repeat(np.arange(len(values)), slices)
    operand = pieces(values.operand.astype(np.int64), values.offset[owner], lengths) * slices
    return Schedule(
        whole.topology,
        replace(whole.collective, chunks=ChunkTable(np.repeat(chunks.block, slices), np.repeat(chunks.weight, slices))),
        Values(
            numbered(values.chunk),
            np.repeat(values.rank, slices),
            np.r_[0, np.cumsum(lengths)],
            operand + np.repeat(np.tile(piece, len(values)), lengths),
        ),
        Transfers(
            numbered(moved.value)[order],
            numbered(moved.result)[order],
            np.repeat(moved.src, slices)[order],
            np.repeat(moved.dst, slices)[order],
            step[order],
            np.r_[0, np.cumsum(hops)],
            pieces(moved.link, moved.offset[row], hops),
        ),
        engine=whole.engine,
        number_format=whole.number_format,
    )
