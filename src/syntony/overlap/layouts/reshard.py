r"""Resharding: the messages between ranks when a model's state changes from one layout to another.

    8 ranks    |  0  |  1  |  2  |  3  |  4  |  5  |  6  |  7  |      a layer's state, by its current holders, and
    6 ranks    |   0   |   1   |   2   |   3   |   4   |   5   |      by its new ones; data that a rank has stays there

A layer's state (weights and optimizer state) is a line of bytes: tensor parallelism cuts it into blocks, sharding over
data ranks cuts a block again, and ranks that share nothing hold the same. Every byte that a rank will need and does not
hold must come from another rank, which gives a bound. New ranks are assigned to minimize that sum; among several
holders of a byte, the one that has the least to send sends it.

With equal `tp` this matches the trainer byte for byte; otherwise each layer is treated as one matrix, cut along the
axis that tp cuts. Experts that `ep` distributes are cut as `tp` cuts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.pipelines.chunks import chunks_of
from syntony.overlap.step.pipelines.pipelines import PIPELINES
from syntony.overlap.step.pipelines.tasks import places
from syntony.overlap.step.sharding import Sharding

Integers = NDArray[np.int64]


class Piece(NamedTuple):
    """Bytes [begin, end) of a layer's state."""

    layer: int
    begin: int
    end: int


class Move(NamedTuple):
    """A piece that one place sends to another."""

    source: int
    target: int
    piece: Piece


@dataclass(frozen=True)
class Reshard:
    """moves; place: for each new rank the old rank whose machine it is on, or a higher number: a new machine.

    needed    bytes that the new layout's ranks hold together; bound: least bytes to move for any assignment
    """

    moves: tuple[Move, ...]
    place: tuple[int, ...]
    needed: int
    bound: int

    @property
    def bytes(self) -> int:
        """The number of bytes that move."""
        return sum(move.piece.end - move.piece.begin for move in self.moves)

    @property
    def matrix(self) -> Integers:
        """[source, target] bytes."""
        size = 1 + max((*self.place, *(move.source for move in self.moves)))
        found = np.zeros((size, size), np.int64)
        for source, target, piece in self.moves:
            found[source, target] += piece.end - piece.begin
        return found


def held(sizes: Sequence[int], layers: Sequence[LayerSpec], layout: Layout) -> list[list[Piece]]:
    """By rank: the pieces that it holds of layers with these total sizes of state; in order, none adjacent.

    layers    under the layout: where a pipeline is cut, and which ones `ep` distributes

    Raises UserError for a grid, whose blocks are not contiguous.
    """
    if layout.grid:
        raise UserError("grid cuts matrices along both axes; what moves from or to such a layout is not planned")
    row = PIPELINES[layout.schedule]
    chunks = chunks_of(layers, layout)
    device = places(layout.pp, layout.chunks, row.valley)
    found: list[list[Piece]] = [[] for _ in range(layout.ranks)]
    data, ranks = layout.dp * layout.cp, layout.sizes["dp"]
    for chunk, members in enumerate(chunks):
        stages = {device[chunk], layout.pp - 1 - device[chunk]} if row.twins else {device[chunk]}
        for layer in members:
            one, spread = Sharding.of(layers[layer], layout), layout.ep if layers[layer].expert else 1
            for stage in stages:
                for at in range(data):
                    copy = at * layout.copies + (layout.copies > 1 and 2 * stage >= layout.pp)
                    for t in range(layout.tp):
                        block, blocks = (at % spread) * layout.tp + t, layout.tp * spread
                        shard = at // spread if one.lane == "edp" else copy % ranks
                        part = (shard * one.replicas + copy // ranks % one.replicas) % one.parts
                        begin, end = (
                            sizes[layer] * (block * one.parts + part + k) // (blocks * one.parts) for k in (0, 1)
                        )
                        if end > begin:
                            found[(stage * data + at) * layout.tp + t].append(Piece(layer, begin, end))
    return found


def reshard(old: Sequence[Sequence[Piece]], new: Sequence[Sequence[Piece]], lost: Collection[int] = ()) -> Reshard:
    """The moves from what old ranks hold to what new ranks need. Ranks beyond the new number send and leave.

    lost    old ranks that are gone and cannot send. Raises UserError if nobody else has their data
    """
    from scipy.optimize import linear_sum_assignment

    alive = [rank for rank in range(len(old)) if rank not in set(lost)]
    fresh = max(0, len(new) - len(alive))
    machines = [*alive, *range(len(old), len(old) + fresh)]
    common = np.array([[_common(old[m], mine) if m < len(old) else 0 for m in machines] for mine in new], np.int64)
    rows, columns = linear_sum_assignment(common, maximize=True)
    place = [machines[column] for _, column in sorted(zip(rows.tolist(), columns.tolist(), strict=True))]
    needed = sum(piece.end - piece.begin for mine in new for piece in mine)
    holders = _Holders(old, alive)
    moves = [
        Move(source, target, piece)
        for target, mine in zip(place, new, strict=True)
        for whole in mine
        for source, piece in holders.sources(whole, target)
    ]
    return Reshard(tuple(moves), tuple(place), needed, needed - int(common[rows, columns].sum()))


def _common(one: Sequence[Piece], other: Sequence[Piece]) -> int:
    """The number of bytes in both."""
    mine = {(piece.layer, piece.begin): piece for piece in one}
    by_layer: dict[int, list[Piece]] = {}
    for piece in mine.values():
        by_layer.setdefault(piece.layer, []).append(piece)
    return sum(
        max(0, min(piece.end, there.end) - max(piece.begin, there.begin))
        for piece in other
        for there in by_layer.get(piece.layer, ())
    )


class _Holders:
    """The holders of all data, and the bytes that each has to send so far."""

    def __init__(self, old: Sequence[Sequence[Piece]], alive: Sequence[int]) -> None:
        self._of: dict[int, list[tuple[Piece, int]]] = {}
        for rank in alive:
            for piece in old[rank]:
                self._of.setdefault(piece.layer, []).append((piece, rank))
        self._sent = dict.fromkeys(alive, 0)

    def sources(self, whole: Piece, target: int) -> list[tuple[int, Piece]]:
        """The senders of the parts of a piece that the target does not hold."""
        holders = self._of.get(whole.layer, [])
        cuts = {whole.begin, whole.end}
        cuts |= {edge for piece, _ in holders for edge in piece[1:] if whole.begin < edge < whole.end}
        edges, found = sorted(cuts), list[tuple[int, Piece]]()
        for begin, end in pairwise(edges):
            having = [rank for piece, rank in holders if piece.begin <= begin and end <= piece.end]
            if not having:
                raise UserError(f"bytes {begin} to {end} of layer {whole.layer} are lost: nobody else holds them")
            if target in having:
                continue
            source = min(having, key=lambda rank: (self._sent[rank], rank))
            self._sent[source] += end - begin
            if found and found[-1][0] == source and found[-1][1].end == begin:
                begin = found.pop()[1].begin
            found.append((source, Piece(whole.layer, begin, end)))
        return found
