"""A state moves into a layout: every element that a rank needs and has not comes from one that has it, once.

    an element is needed by     2 3 5
    read from a checkpoint by   3, once            then 3 sends it to 2 and 5: who needs and has not receives, nobody
    in the memory of            3                  else does, and nothing less would do

Where all ranks can read, one reads and the others get it from there (Jiang et al. 2024, "MegaScale", NSDI), dealt so
that ranks read alike. All find the same plan from the same words, layer by layer, so that the memory it takes is that
of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from syntony.trainer.state.parts import Part
from syntony.trainer.state.runs import NOTHING, Integers, Runs, edges_of, has, stretches

Swap = Callable[[Sequence[Tensor], Sequence[int]], Sequence[Tensor]]
"""Sends a tensor to each rank, and takes so many elements from each. Collective."""


class Source(Protocol):
    """Where a state is."""

    everybody: bool
    """All ranks can read all of it."""

    def kinds(self, label: str) -> Sequence[str]:
        """What there is of a weight: "" for the weight, and what an optimizer remembers of it, by its own names."""

    def having(self, label: str, kind: str) -> Sequence[Runs]:
        """By rank, which elements it can read, and where in its memory."""

    def read(self, label: str, kind: str, places: Integers) -> Tensor:
        """Rows of place and size in this rank's memory, side by side."""


def givers(having: NDArray[np.bool_], sizes: Integers, given: Integers) -> Integers:
    """By part: which of the ranks that have it gives it, so that all give alike; -1: nobody has it.

    having    [rank, part]
    given     by rank, the elements that it gives already; those of these parts are added
    """
    found = np.full(having.shape[1], -1, np.int64)
    patterns, which = np.unique(having, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        ranks = np.flatnonzero(pattern)
        if len(ranks):
            parts = which.ravel() == number
            giver = ranks[np.argmin(given[ranks])]
            found[parts] = giver
            given[giver] += int(sizes[parts].sum())
    return found


@dataclass
class Moving:
    """What one rank does of it.

    every    by rank, what it needs
    moved    elements that moved between ranks so far, all ranks together
    read     elements that were where they are needed, or were read there
    """

    me: int
    every: Sequence[Sequence[Part]]
    source: Source
    swap: Swap
    moved: int = 0
    read: int = 0
    _given: Integers = field(init=False)

    def __post_init__(self) -> None:
        self._given = np.zeros(len(self.every), np.int64)

    def layers(self, sizes: Mapping[int, int]) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """Layers of this rank, and their flat buffers by kind, with what this rank needs in its place. Collective.

        sizes    elements of a flat buffer, by layer
        """
        for index in sorted({part.layer for parts in self.every for part in parts}):
            needing = [next((part for part in parts if part.layer == index), None) for parts in self.every]
            flats: dict[str, Tensor] = {}
            out: list[list[Tensor]] = [[] for _ in self.every]
            into: list[list[tuple[str, Integers]]] = [[] for _ in self.every]
            before = self.moved
            for label in sorted({block.label for part in needing if part for block in part.cut}):
                for kind in self.source.kinds(label):
                    if kind not in flats:
                        flats[kind] = torch.zeros(sizes.get(index, 0), device="cpu")
                    self._tensor(needing, label, kind, flats[kind], out, into)
            if self.moved > before:
                nothing = torch.empty(0, device="cpu")
                counts = [sum(int(rows[:, 1].sum()) for _, rows in row) for row in into]
                came = self.swap([torch.cat(row) if row else nothing for row in out], counts)
                for row, buffer in zip(into, came, strict=True):
                    at = 0
                    for kind, rows in row:
                        at = _put(flats[kind], rows, buffer, at)
            if needing[self.me] is not None:
                yield index, flats

    def _tensor(
        self,
        needing: Sequence[Part | None],
        label: str,
        kind: str,
        flat: Tensor,
        out: list[list[Tensor]],
        into: list[list[tuple[str, Integers]]],
    ) -> None:
        """What this rank has itself goes to its place, what others need to `out`; what will come is told in `into`."""
        needed = [part.runs(label, kind) if part is not None else NOTHING for part in needing]
        having = self.source.having(label, kind)
        edges = edges_of([*needed, *having])
        sizes = np.diff(edges)
        needs, can = (np.array([has(runs, edges) for runs in side]) for side in (needed, having))
        if self.source.everybody:
            giver = givers(needs & can, sizes, self._given)
            there = np.arange(len(needs))[:, None] == giver
        else:
            giver, there = givers(can & (needs & ~can).any(axis=0), sizes, self._given), can
        assert there.any(axis=0)[needs.any(axis=0)].all()
        moves = needs & ~there
        self.moved += int((moves * sizes).sum())
        self.read += int((needs & there) @ sizes @ np.ones(len(needs), np.int64))
        me = self.me

        def mine(which: NDArray[np.bool_]) -> Tensor:
            return self.source.read(label, kind, stretches(having[me], edges, which))

        own = needs[me] & there[me]
        if own.any():
            _put(flat, stretches(needed[me], edges, own), mine(own), 0)
        for rank in range(len(needs)):
            given, taken = moves[rank] & (giver == me), moves[me] & (giver == rank)
            if given.any():
                out[rank].append(mine(given))
            if taken.any():
                into[rank].append((kind, stretches(needed[me], edges, taken)))


def _put(flat: Tensor, rows: Integers, values: Tensor, at: int) -> int:
    """Values from `at` on into places of a flat buffer; where they end."""
    for place, size in rows.tolist():
        flat[place : place + size] = values[at : at + size]
        at += size
    return at
