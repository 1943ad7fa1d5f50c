"""How ranks of a group agree on the step to continue from, and on that step's state.

    rank 0: layers 0, 1 of 57, 58      ──►  all: step 58 is complete, rank 0 has layer 0, rank 2 layer 1, ..
    rank 2: layers 1, 2 of 57, 58            layer by layer, each rank gets what it lacks (trainer/state)

All ranks see all messages and derive the same result, so no rank decides for others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from syntony.collectives.communicator import Communicator
from syntony.trainer.elastic.held import Bundle, Held, Table, Version
from syntony.trainer.state.runs import NOTHING, Integers, Runs, joined, within


def gathered(group: Communicator, blob: bytes) -> list[bytes]:
    """All blobs in rank order. Collective."""
    sizes = np.empty(group.size, np.int64)
    group.all_gather(np.array([len(blob)], np.int64), sizes)
    if not sizes.any():
        return [b""] * group.size
    mine = np.zeros(int(sizes.max()), np.uint8)
    mine[: len(blob)] = np.frombuffer(blob, np.uint8)
    rows = np.empty((group.size, mine.size), np.uint8)
    group.all_gather(mine, rows)
    return [bytes(row[:size]) for row, size in zip(rows, sizes, strict=True)]


def swapped(group: Communicator, parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
    """Sends each rank its part of numbers, and receives `sizes` elements from each. Collective."""
    found = torch.empty(sum(sizes), device="cpu")
    group.all_to_all(torch.cat(list(parts)), found, [len(part) for part in parts], list(sizes))
    return list(torch.split(found, list(sizes)))


class Meeting:
    """Ranks of a group as an Exchange (bootstrap/launch.py)."""

    def __init__(self, group: Communicator) -> None:
        self._group, self.rank, self.size = group, group.rank, group.size

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        return gathered(self._group, blob)


def newest_whole(
    offers: Sequence[Mapping[Version, Iterable[int]]], tables: Mapping[int, Table]
) -> tuple[Version, list[list[int]]] | None:
    """The newest version of which the ranks together have every bundle, and the holders of each; None if there is none.

    offers    by rank: numbers of its complete bundles
    tables    by layout
    """
    known = {version for offer in offers for version in offer if version.layout in tables}
    for version in sorted(known, reverse=True):
        shown: dict[int, list[int]] = {}
        for rank, offer in enumerate(offers):
            for number in offer.get(version, ()):
                shown.setdefault(number, []).append(rank)
        if len(shown) == len(tables[version.layout].bundles):
            return version, [shown[number] for number in range(len(shown))]
    return None


class Kept:
    """A version in its keepers' memory: a flat buffer for each cut (trainer/state/moving.py: a Source).

    shown            by bundle: the ranks that have it
    held             what this rank kept under that layout, if it was present
    with_memories    including the optimizer's state
    """

    everybody = False

    def __init__(
        self,
        rank: int,
        ranks: int,
        table: Table,
        version: Version,
        shown: Sequence[Sequence[int]],
        held: Held | None,
        with_memories: bool,
    ) -> None:
        self._held, self._version = held, version
        self._kinds = ("", *table.kinds) if with_memories else ("",)
        sizes = [max(block.at + block.elements for block in cut) for cut in table.cuts]
        self._begins = np.concatenate([[0], np.cumsum(sizes)])[:-1].tolist()
        spans: list[dict[int, list[tuple[int, int]]]] = [defaultdict(list) for _ in range(ranks)]
        self._mine: list[tuple[int, int, int, Bundle]] = []  # begin and end here, where in a bundle, which
        for bundle, having in zip(table.bundles, shown, strict=True):
            at = 0
            for piece in bundle.pieces:
                for member in having:
                    spans[member][piece.cut].append((piece.begin, piece.end))
                if rank in having:
                    begin = self._begins[piece.cut]
                    self._mine.append((begin + piece.begin, begin + piece.end, at, bundle))
                at += piece.size * (1 + len(table.kinds))
        self._mine.sort(key=lambda row: row[0])
        self._runs: dict[str, list[Runs]] = defaultdict(lambda: [NOTHING] * ranks)
        for number, cut in enumerate(table.cuts):
            for block in cut:
                rows = self._runs[block.label]
                for member, of_cut in enumerate(spans):
                    found = np.add(within(block.runs, of_cut[number]), [0, 0, self._begins[number]])
                    rows[member] = joined([rows[member], found])

    def kinds(self, label: str) -> Sequence[str]:
        return self._kinds

    def having(self, label: str, kind: str) -> Sequence[Runs]:
        return self._runs[label]

    def read(self, label: str, kind: str, places: Integers) -> Tensor:
        assert self._held is not None
        found, number = [], self._kinds.index(kind)
        begins = [row[0] for row in self._mine]
        for place, size in places.tolist():
            while size:
                begin, end, at, bundle = self._mine[bisect_right(begins, place) - 1]
                count = min(size, end - place)
                first = at + number * (end - begin) + place - begin
                found.append(self._held.content(self._version.step, bundle)[first : first + count])
                place, size = place + count, size - count
        return torch.cat(found)
