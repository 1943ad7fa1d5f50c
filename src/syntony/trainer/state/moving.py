"""Moves a state into a layout: every element that a rank needs and lacks is sent once by a rank that has it.

    an element is needed by     2 3 5
    read from a checkpoint by   3, once            then 3 sends it to 2 and 5: only ranks that need and lack it
    in the memory of            3                  receive it, which is the minimum

If all ranks can read, one reads and the others get it from there (Jiang et al. 2024, "MegaScale", NSDI), balanced so
that ranks read equally much. All compute the same plan from the same messages, layer by layer, so the memory needed is
that of a layer.
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
"""Sends a tensor to each rank, and receives the given number of elements from each. Collective."""


class Source(Protocol):
    """Where a state is stored."""

    everybody: bool
    """Whether all ranks can read all of it."""

    def kinds(self, label: str) -> Sequence[str]:
        """The available kinds of a weight: "" for the weight itself, and the names of the optimizer's state."""

    def having(self, label: str, kind: str) -> Sequence[Runs]:
        """By rank, the elements that it can read, and their position in its memory."""

    def read(self, label: str, kind: str, places: Integers) -> Tensor:
        """Rows of place and size in this rank's memory, side by side."""


def givers(having: NDArray[np.bool_], sizes: Integers, given: Integers) -> Integers:
    """By part: the rank that sends it, among those that have it, balanced; -1: nobody has it.

    having    [rank, part]
    given     by rank, the elements that it already sends; those of these parts are added
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
    """One rank's part of the move.

    every    by rank, the elements that it needs
    moved    elements moved between ranks so far, over all ranks
    read     elements that were already in place, or were read there
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
        """Layers of this rank, with flat buffers by kind that hold what this rank needs in place. Collective.

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
        """Copies this rank's own elements into place, and those for others to `out`; records arrivals in `into`."""
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
    """Copies values from `at` on into a flat buffer; returns where they end."""
    for place, size in rows.tolist():
        flat[place : place + size] = values[at : at + size]
        at += size
    return at
