"""Values: the data that travels, by name.

A value is a chunk with the contributions already summed into it, in one declared order. It is either

- a contribution: the data of `chunk` with which `rank` starts (if the collective sums nothing: the chunk itself, and
  the rank where it starts); or
- a sum: its operands, earlier values of the same chunk, added from left to right and rounded once.

            value 5 = 4 + 2          operands (4, 2)
             /         \\
       value 4 = 0 + 1  value 2      contributions 0, 1, 2: ranks 0, 1, 2
        /      \\
     value 0  value 1

Operands have smaller ids than their sum, so the table is a forest that records the association order: two ranks that
hold the same value hold the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony.synth.model.collective import Collective, int_column


@dataclass(frozen=True, eq=False)
class Values:
    """Columns, one row per value.

    chunk    int32 (V,)    the chunk that the value is of
    rank     int32 (V,)    a contribution's rank (of the collective); -1 for a sum
    offset   int64 (V+1,)  value v sums operand[offset[v]:offset[v+1]]; empty for a contribution
    operand  int32         operands, flat
    """

    chunk: NDArray[np.signedinteger]
    rank: NDArray[np.signedinteger]
    offset: NDArray[np.signedinteger]
    operand: NDArray[np.signedinteger]

    def __post_init__(self) -> None:
        for name, dtype in (("chunk", np.int32), ("rank", np.int32), ("offset", np.int64), ("operand", np.int32)):
            object.__setattr__(self, name, int_column(getattr(self, name), dtype))

    def __len__(self) -> int:
        return len(self.chunk)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Values):
            return NotImplemented
        mine, theirs = self.columns(), other.columns()
        return all(np.array_equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def columns(self) -> dict[str, NDArray[np.signedinteger]]:
        """The columns by name, as files store them."""
        return {"chunk": self.chunk, "rank": self.rank, "offset": self.offset, "operand": self.operand}

    def operands(self, value: int) -> tuple[int, ...]:
        """The values that a sum adds, from left to right; empty for a contribution."""
        return tuple(self.operand[self.offset[value] : self.offset[value + 1]].tolist())

    def contributions(self, value: int) -> frozenset[int]:
        """The ranks whose contributions are summed into the value."""
        return self._contributions[value]

    @cached_property
    def _contributions(self) -> tuple[frozenset[int], ...]:
        sets: list[frozenset[int]] = []
        for value, rank in enumerate(self.rank.tolist()):
            if rank >= 0:
                sets.append(frozenset({rank}))
            else:
                sets.append(frozenset().union(*(sets[operand] for operand in self.operands(value))))
        return tuple(sets)


class ValueBuilder:
    """Collects values and numbers them; equal values get the same number."""

    def __init__(self) -> None:
        self._chunk: list[int] = []
        self._rank: list[int] = []
        self._operands: list[tuple[int, ...]] = []
        self._ids: dict[tuple[int, int, tuple[int, ...]], int] = {}

    @staticmethod
    def of_chunks(collective: Collective) -> ValueBuilder:
        """A builder in which value k is chunk k of a collective without sums."""
        builder = ValueBuilder()
        for chunk in range(len(collective.chunks)):
            (holder,) = collective.pre(chunk)
            builder.contribution(chunk, holder)
        return builder

    def contribution(self, chunk: int, rank: int) -> int:
        """The data of `chunk` with which `rank` starts."""
        return self._intern(chunk, rank, ())

    def sum(self, operands: Sequence[int]) -> int:
        """The operands (at least two, of one chunk) added from left to right."""
        chunks = {self._chunk[operand] for operand in operands}
        if len(operands) < 2 or len(chunks) != 1:
            raise ValueError(f"a sum has two or more operands of one chunk, not {list(operands)} of {sorted(chunks)}")
        return self._intern(chunks.pop(), -1, tuple(operands))

    def build(self) -> Values:
        """The table of all values so far."""
        lengths = [len(operands) for operands in self._operands]
        return Values(
            np.asarray(self._chunk, np.int32),
            np.asarray(self._rank, np.int32),
            np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))),
            np.asarray([operand for operands in self._operands for operand in operands], np.int32),
        )

    def _intern(self, chunk: int, rank: int, operands: tuple[int, ...]) -> int:
        key = (chunk, rank, operands)
        value = self._ids.setdefault(key, len(self._chunk))
        if value == len(self._chunk):
            self._chunk.append(chunk)
            self._rank.append(rank)
            self._operands.append(operands)
        return value
