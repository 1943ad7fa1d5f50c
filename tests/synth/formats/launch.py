"""One launch of a foreign plan with random numbers: the memory that it begins with, and what must be there at its end.

`plan_executor.py` and `xml_executor.py` say how the plan itself is performed. Shares nothing with the readers.
"""

from __future__ import annotations

import random
from collections import defaultdict

from tests.synth.random_executor import WrongError

Cell = tuple[int, str, int]
"""(rank, buffer, element)."""

_PARTS = ("reducescatter", "alltoall", "scatter")
"""Of whose inputs each rank gets a part."""


class Launch:
    """`kind` is the collective without its underscores; `block` is how many elements a rank has of its own."""

    def __init__(self, kind: str, ranks: int, block: int, in_place: bool, rng: random.Random) -> None:
        self.kind, self.ranks, self.block, self.in_place, self.rng = kind, ranks, block, in_place, rng
        self.memory: dict[Cell, int] = {}
        self.given: dict[Cell, int] = {}
        for rank in range(ranks):
            if rank == 0 or kind not in ("broadcast", "scatter"):
                for at in range(block * (ranks if kind in _PARTS else 1)):
                    self.memory[self.cell(rank, "i", at)] = self.given[rank, "i", at] = rng.getrandbits(60)

    def cell(self, rank: int, buffer: str, at: int) -> Cell:
        """In place, the output is the input (all_gather: its own part of it; reduce_scatter: a part of it)."""
        if self.in_place:
            if buffer == "o" and self.kind == "reducescatter":
                return rank, "i", at + self.block * rank
            if buffer == "i" and self.kind in ("allgather", "gather"):
                return rank, "o", at + self.block * rank
            if buffer == "o" and self.kind not in ("allgather", "gather"):
                return rank, "i", at
        return rank, buffer, at

    def read(self, cell: Cell) -> int:
        if cell not in self.memory:
            raise WrongError(f"{cell} is read before it is written")
        return self.memory[cell]

    def check(self) -> None:
        """Raises WrongError where an output is not the collective's."""
        wanted: dict[tuple[int, int], int] = defaultdict(int)
        for (rank, _, at), value in self.given.items():
            match self.kind:
                case "allreduce" | "broadcast":
                    ends = [(peer, at) for peer in range(self.ranks)]
                case "reduce":
                    ends = [(0, at)]
                case "allgather":
                    ends = [(peer, rank * self.block + at) for peer in range(self.ranks)]
                case "gather":
                    ends = [(0, rank * self.block + at)]
                case "reducescatter" | "scatter":
                    ends = [(at // self.block, at % self.block)]
                case _:
                    ends = [(at // self.block, rank * self.block + at % self.block)]
            for end in ends:
                wanted[end] += value
        for (rank, at), value in wanted.items():
            if self.read(self.cell(rank, "o", at)) != value:
                raise WrongError(f"output {at} of rank {rank} is wrong")
