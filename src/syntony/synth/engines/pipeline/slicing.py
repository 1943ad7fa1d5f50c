"""Cuts the chunks of a Schedule into slices; each slice is one step behind the one before.

    slice 0   step 0 ──▶ 1 ──▶ 2 ──▶ 3
    slice 1          1 ──▶ 2 ──▶ 3 ──▶ 4

The simulator (simulation/moves.py) and Programs (csrc/core/program/program.hpp) slice long messages themselves. Here
messages of any length are cut, and each slice may get steps of its own afterwards
(engines/pipeline/list_scheduling.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from syntony.base.rows import pieces
from syntony.synth.model.collective import ChunkTable
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import Values
from syntony.synth.symmetry.groups import expand


def in_slices(schedule: Schedule, slices: int) -> Schedule:
    """The whole schedule with every chunk cut into `slices` equal ones. Bounds and proof are dropped.

    A rank holds a value through transfers of smaller steps only, in each slice as in the whole.
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
