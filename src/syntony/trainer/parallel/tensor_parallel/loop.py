"""Gathers and scatters split into shifts (overlap/step/shards.py): which part of a sequence is where, what a rank sends
in each round, and what it makes from what it receives.

Parts are numbered in the order in which they are computed: part 0 is the rank's own shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from syntony.overlap.step.shards import offsets
from syntony.trainer.model.crossing import Load
from syntony.trainer.model.layer import Move, Transfer


@dataclass(frozen=True)
class Loop(Transfer):
    """The parts as rank `rank` of `ranks` sees them, with rounds in one or both directions (`ways`)."""

    rank: int
    ranks: int
    ways: int

    @cached_property
    def rounds(self) -> tuple[tuple[int, ...], ...]:
        """By round, the distances of the owners of its shards before this rank."""
        return offsets(self.ranks, self.ways)

    @cached_property
    def _offsets(self) -> tuple[int, ...]:
        return tuple(by for one in self.rounds for by in one)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """By part, the rank whose shard it is."""
        return tuple((self.rank - by) % self.ranks for by in self._offsets)

    def parts(self, number: int) -> tuple[int, ...]:
        """The parts computed in a round."""
        return tuple(self._offsets.index(by) for by in self.rounds[number])

    def cut(self, x: Tensor, kept: tuple[Tensor, ...], index: int, count: int) -> Tensor:
        """The shard of the sequence that part `index` is."""
        return x.chunk(count, 1)[self.owners[index]]

    def join(self, parts: Sequence[Tensor], kept: Sequence[tuple[Tensor, ...]]) -> Tensor:
        """The whole sequence."""
        return torch.cat([parts[self.owners.index(rank)] for rank in range(self.ranks)], 1)

    def cut_kept(self, kept: tuple[Tensor, ...], index: int, count: int) -> tuple[Tensor, ...]:
        """Data that stays on the rank belongs to its own shard."""
        return kept if index == 0 else tuple(tensor[:0] for tensor in kept)

    def join_kept(self, parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        return parts[0]

    def gathers(self, load: Load, number: int) -> tuple[Move, Iterator[tuple[int, Load]]]:
        """Sends the own shard to all ranks of this round; yields by part what has arrived."""
        move = self._exchange([load.x] * len(self.rounds[number]), number, 1)
        rest, kept = (self.cut_kept(tensors, 1, self.ranks) for tensors in (load.rest, load.kept))
        return move, ((part, Load(x, rest, kept)) for part, x in self._came(move, number, 1))

    def scatters(self, loads: Sequence[Load], number: int) -> tuple[Move, Iterator[tuple[int, Load]]]:
        """Sends the round's partial products to the owners of their shards; yields what has arrived, by the part whose
        owner is as far away in the opposite direction."""
        move = self._exchange([load.x for load in loads], number, -1)
        first = loads[0]
        return move, ((part, replace(first, x=x)) for part, x in self._came(move, number, -1))

    def _exchange(self, outgoing: Sequence[Tensor], number: int, way: int) -> Move:
        sizes: tuple[list[int], list[int]] = ([0] * self.ranks, [0] * self.ranks)
        rows = len(outgoing[0])
        to = {(self.rank + way * by) % self.ranks: x for by, x in zip(self.rounds[number], outgoing, strict=True)}
        for by in self.rounds[number]:
            sizes[0][(self.rank + way * by) % self.ranks] = rows
            sizes[1][(self.rank - way * by) % self.ranks] = rows
        sent = torch.cat([to[rank] for rank in sorted(to)]) if len(to) > 1 else outgoing[0].contiguous()
        return Move(sent, torch.empty_like(sent), input_sizes=sizes[0], output_sizes=sizes[1])

    def _came(self, move: Move, number: int, way: int) -> Iterator[tuple[int, Tensor]]:
        sources = sorted((self.rank - way * by) % self.ranks for by in self.rounds[number])
        for source, x in zip(sources, move.output.chunk(len(sources)), strict=True):
            yield self._offsets.index(way * (self.rank - source) % self.ranks), x


@dataclass(frozen=True)
class SumLoop(Loop):
    """Parts are partial sums of the rank's own shard, part by part from the ranks behind it."""

    def join(self, parts: Sequence[Tensor], kept: Sequence[tuple[Tensor, ...]]) -> Tensor:
        """Their sum, in the association of canonical sums over ranks: ((0 + 1) + (2 + 3))."""
        by_rank = {(self.rank + by) % self.ranks: part for by, part in zip(self._offsets, parts, strict=True)}
        level = [by_rank[rank] for rank in range(self.ranks)]
        while len(level) > 1:
            pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
            level = [pair[0] + pair[1] if len(pair) > 1 else pair[0] for pair in pairs]
        return level[0]
