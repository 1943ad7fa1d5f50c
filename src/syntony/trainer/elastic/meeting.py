"""What ranks of a group tell each other to agree: on the step to go on from, and the state of that step.

    rank 0: layers 0, 1 of 57, 58      ──►  all: step 58 is whole, rank 0 shows layer 0, rank 2 layer 1, ..
    rank 2: layers 1, 2 of 57, 58            layer by layer, who shows it broadcasts it, who needs it takes it

Everybody sees all words and comes to the same answer, so nobody decides for others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from syntony.collectives.communicator import Communicator
from syntony.trainer.elastic.held import Block, Bundle, Held, Table, Version


def gathered(group: Communicator, blob: bytes) -> list[bytes]:
    """Everybody's blob in rank order. Collective."""
    sizes = np.empty(group.size, np.int64)
    group.all_gather(np.array([len(blob)], np.int64), sizes)
    if not sizes.any():
        return [b""] * group.size
    mine = np.zeros(int(sizes.max()), np.uint8)
    mine[: len(blob)] = np.frombuffer(blob, np.uint8)
    rows = np.empty((group.size, mine.size), np.uint8)
    group.all_gather(mine, rows)
    return [bytes(row[:size]) for row, size in zip(rows, sizes, strict=True)]


class Meeting:
    """Ranks of a group as an Exchange (bootstrap/launch.py)."""

    def __init__(self, group: Communicator) -> None:
        self._group, self.rank, self.size = group, group.rank, group.size

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        return gathered(self._group, blob)


def newest_whole(
    offers: Sequence[Mapping[Version, Iterable[int]]], tables: Mapping[int, Table]
) -> tuple[Version, list[int]] | None:
    """The newest version of which ranks together have every bundle, and which rank shows each; None: there is none.

    offers    by rank: numbers of the bundles that it has whole
    tables    by layout
    """
    known = {version for offer in offers for version in offer if version.layout in tables}
    for version in sorted(known, reverse=True):
        shown: dict[int, int] = {}
        for rank, offer in enumerate(offers):
            for number in offer.get(version, ()):
                shown.setdefault(number, rank)
        if len(shown) == len(tables[version.layout].bundles):
            return version, [shown[number] for number in range(len(shown))]
    return None


def tensors_of(
    group: Communicator, table: Table, version: Version, shown: Sequence[int], held: Held | None, with_memories: bool
) -> Iterator[dict[str, Tensor]]:
    """The whole tensors of a version, by their names in a checkpoint, some at a time. Collective: all take all of them.

    shown            by bundle: the rank that shows it
    held             what this rank kept under that layout, if it was there
    with_memories    of the optimizer too
    """
    kinds = ("", *table.kinds) if with_memories else ("",)
    left = Counter(block.label for cut in table.cuts for block in cut)
    tensors: dict[str, Tensor] = {}
    for number, cut in enumerate(table.cuts):
        size = max(end for bundle in table.bundles for at, _, end in bundle.pieces if at == number)
        flats = {kind: torch.zeros(size) for kind in kinds}
        for place, bundle in enumerate(table.bundles):
            if bundle.pieces[0].cut == number:
                _put(_shown(group, table, version, bundle, shown[place], held), bundle, flats)
        for block in cut:
            left[block.label] -= 1
            for kind, flat in flats.items():
                _place(tensors, f"{block.label}.{kind}" if kind else block.label, block, flat)
        names = {f"{label}.{kind}" if kind else label for label in left if not left[label] for kind in kinds}
        yield {name: tensors.pop(name) for name in names if name in tensors}


def _shown(group: Communicator, table: Table, version: Version, bundle: Bundle, root: int, held: Held | None) -> Tensor:
    if root == group.rank:
        assert held is not None
        buffer = held.content(version.step, bundle)
    else:
        buffer = torch.empty(bundle.elements(len(table.kinds)))
    group.broadcast(buffer, root)
    return buffer


def _put(buffer: Tensor, bundle: Bundle, flats: Mapping[str, Tensor]) -> None:
    """A bundle's pieces into the flat buffers of their cut, by kind."""
    at, row = 0, (len(buffer) - 2) // sum(piece.size for piece in bundle.pieces)
    for piece in bundle.pieces:
        for number, flat in enumerate(flats.values()):
            flat[piece.begin : piece.end] = buffer[at + number * piece.size :][: piece.size]
        at += row * piece.size


def _place(tensors: dict[str, Tensor], name: str, block: Block, flat: Tensor) -> None:
    shape = [stop - start for start, stop in block.place]
    whole = tensors.get(name)
    if whole is None:
        whole = tensors[name] = torch.empty(block.shape)
    whole[tuple(slice(*part) for part in block.place)] = flat[block.at : block.at + math.prod(shape)].view(shape)
