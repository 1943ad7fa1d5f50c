"""A state that moves between layouts: every rank gets what it needs, and no element moves that need not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from syntony.trainer.elastic.held import Held, Version, placed
from syntony.trainer.elastic.meeting import Kept
from syntony.trainer.state.moving import Moving, Source
from syntony.trainer.state.parts import Block, Part
from syntony.trainer.state.runs import Runs, boxes, edges_of, has, runs_of, spans, stretches, within

SHAPES = {"layer.matrix": (12, 16), "layer.experts": (4, 6, 8), "layer.vector": (48,)}
ELEMENTS = 1024
KINDS = ("", "exp_avg")
VALUES = {
    (label, kind): torch.arange(int(np.prod(shape))) + 1000.0 * number + 10_000 * (kind != "")
    for number, (label, shape) in enumerate(SHAPES.items())
    for kind in KINDS
}


def elements_of(runs: Runs) -> list[tuple[int, int]]:
    return [(at, place + at - begin) for begin, end, place in runs.tolist() for at in range(begin, end)]


@pytest.mark.parametrize("seed", range(20))
def test_runs_are_the_elements_of_a_block(seed: int) -> None:
    chance = random.Random(seed)
    shape = tuple(chance.randint(1, 5) for _ in range(chance.randint(1, 4)))
    begins = tuple(chance.randrange(size) for size in shape)
    sizes = tuple(chance.randint(1, size - begin) for size, begin in zip(shape, begins, strict=True))
    runs = runs_of(shape, (begins, sizes), 7)
    block = np.arange(np.prod(shape)).reshape(shape)[tuple(slice(b, b + s) for b, s in zip(begins, sizes, strict=True))]
    assert elements_of(runs) == [(at, 7 + place) for place, at in enumerate(block.ravel().tolist())], seed
    begin, end = sorted(chance.choices(range(7, 8 + block.size), k=2))
    some = within(runs, [(begin, end)])
    assert elements_of(some) == [pair for pair in elements_of(runs) if begin <= pair[1] < end], seed
    edges = edges_of([runs, some])
    which = has(some, edges)
    assert [at for b, e in spans(edges, which) for at in range(b, e)] == [at for at, _ in elements_of(some)], seed
    places = stretches(runs, edges, which).tolist()
    assert [i for at, size in places for i in range(at, at + size)] == [at for _, at in elements_of(some)], seed
    whole = np.arange(np.prod(shape)).reshape(shape)
    found = boxes(shape, spans(edges, which))
    cut = [whole[tuple(slice(b, b + s) for b, s in zip(*box, strict=True))].ravel().tolist() for box in found]
    assert [at for box in cut for at in box] == [at for at, _ in elements_of(some)], seed
    if (begin, end) == (7, 7 + block.size):
        assert found == [(begins, sizes)], seed


def test_a_block_is_one_box() -> None:
    shape, box = (4, 6, 8), ((1, 2, 3), (2, 3, 4))
    runs = runs_of(shape, box)
    assert boxes(shape, [(begin, end) for begin, end, _ in runs.tolist()]) == [box]


def layout(data: int, tp: int, zero: int) -> list[list[Part]]:
    """By rank, tp innermost: one layer, cut by tensor parallelism along different axes, and by ZeRO."""
    found = []
    for rank, t in product(range(data), range(tp)):
        blocks, at = [], 0
        for (label, shape), axis in zip(SHAPES.items(), (1, 2, None), strict=True):
            place = [(0, size) for size in shape]
            if axis is not None:
                place[axis] = (t * shape[axis] // tp, (t + 1) * shape[axis] // tp)
            elements = int(np.prod([end - begin for begin, end in place]))
            blocks.append(Block(label, shape, tuple(place), at, elements))
            at += -(-elements // 64) * 64
        share = ELEMENTS // 64 // data * 64 if zero else ELEMENTS
        last = ELEMENTS if not zero or rank == data - 1 else (rank + 1) * share
        span = (rank * share if zero else 0, last)
        found.append([Part(0, tuple(blocks), (span,), (span if zero == 3 else (0, ELEMENTS),))])
    return found


def needs(part: Part, label: str, kind: str) -> set[int]:
    return {at for at, _ in elements_of(part.runs(label, kind))}


class Everywhere(Source):
    """A file that all can read."""

    everybody = True

    def __init__(self, ranks: int) -> None:
        self.ranks, self.reads = ranks, 0

    def kinds(self, label: str) -> Sequence[str]:
        return KINDS

    def having(self, label: str, kind: str) -> Sequence[Runs]:
        return [runs_of((len(VALUES[label, kind]),), ((0,), (len(VALUES[label, kind]),)))] * self.ranks

    def read(self, label: str, kind: str, places: Any) -> Tensor:
        found = torch.cat([VALUES[label, kind][at : at + size] for at, size in places.tolist()])
        self.reads += len(found)
        return found


def moved(new: list[list[Part]], sources: Sequence[Source]) -> int:
    """All ranks side by side; how many elements moved. What they have then is checked."""
    ranks = len(new)
    boxes_of: list[list[SimpleQueue[Tensor]]] = [[SimpleQueue() for _ in new] for _ in new]

    def run(me: int) -> int:
        def swap(parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
            for to, part in enumerate(parts):
                boxes_of[to][me].put(part)
            came = [boxes_of[me][source].get(timeout=20) for source in range(ranks)]
            assert [len(part) for part in came] == list(sizes)
            return came

        moving = Moving(me, new, sources[me], swap)
        for _, flats in moving.layers({0: ELEMENTS} if new[me] else {}):
            (part,) = new[me]
            for (label, kind), values in VALUES.items():
                for at, place in elements_of(part.runs(label, kind)):
                    assert flats[kind][place] == values[at], (me, label, kind, at)
        return moving.moved

    with ThreadPoolExecutor(ranks) as threads:
        found = set(threads.map(run, range(ranks)))
    assert len(found) == 1
    return found.pop()


LAYOUTS = [(4, 1, 0), (6, 1, 1), (6, 1, 3), (2, 2, 2), (3, 2, 3), (1, 4, 0), (1, 1, 0)]


@pytest.mark.parametrize("new", LAYOUTS)
def test_what_all_can_read_is_read_once_and_moves_to_the_others_who_need_it(new: tuple[int, int, int]) -> None:
    parts = layout(*new)
    sources = [Everywhere(len(parts)) for _ in parts]
    count = moved(parts, sources)
    least = sum(
        sum(sum(at in needs(part, label, kind) for (part,) in parts) - 1 for at in range(len(values)))
        for (label, kind), values in VALUES.items()
    )
    assert count == least
    if new[2] == 3 and new[1] == 1:
        assert count == 0


def kept(old: list[list[Part]], ranks: int, copies: int, gone: set[int]) -> list[Kept]:
    """By the rank that it has now: what the ranks of an old layout that are left kept, copies of others' too."""
    live = [[(part.cut, *span) for part in parts for span in part.spans] for parts in old]
    table = placed(live, [0] * len(old), copies, KINDS[1:])
    left = [rank for rank in range(len(old)) if rank not in gone]
    helds = []
    for rank in left:
        held = Held(table, rank, 1)
        held.open(5)
        for bundle in held.bundles:
            at = 0
            for piece in bundle.pieces:
                for kind in KINDS:
                    buffer = held.buffer(bundle)[at : at + piece.size]
                    for block in table.cuts[piece.cut]:
                        for where, place in elements_of(within(block.runs, [(piece.begin, piece.end)])):
                            buffer[place - piece.begin] = VALUES[block.label, kind][where]
                    at += piece.size
            held.mark(bundle)
        helds.append(held)
    shown = [[left.index(rank) for rank in bundle.keepers if rank in left] for bundle in table.bundles]
    return [Kept(me, ranks, table, Version(5, 1), shown, held, True) for me, held in enumerate(helds)]


@pytest.mark.parametrize(
    ("old", "new"), [((8, 1, 3), (6, 1, 3)), ((8, 1, 0), (6, 1, 3)), ((4, 2, 2), (3, 2, 1)), ((8, 1, 1), (2, 2, 3))]
)
def test_eight_ranks_become_six_and_only_what_they_lack_moves(
    old: tuple[int, int, int], new: tuple[int, int, int]
) -> None:
    gone = {2, 7}
    before, after = layout(*old), layout(*new)
    after += [[] for _ in range(6 - len(after))]  # who watches
    sources = kept(before, 6, 1, gone)
    count = moved(after, sources)
    left = [rank for rank in range(8) if rank not in gone]
    assert len(sources) == len(left)
    lacking = 0
    for me, parts in enumerate(after):
        for (label, kind), part in product(VALUES, parts):
            has_now = {at for at, _ in elements_of(sources[me].having(label, kind)[me])}
            lacking += len(needs(part, label, kind) - has_now)
    assert count == lacking
