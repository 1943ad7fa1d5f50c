"""Several groups that run the same at the same time, as nccl-tests' NCCL_TESTS_SPLIT makes them.

Tensor-parallel groups of a job, say, share the machine with each other:

    --split "DIV 2"     ranks 0 1 | 2 3 | 4 5 | 6 7     neighbours
    --split "MOD 2"     ranks 0 2 4 6 | 1 3 5 7         every second one

Each group has ranks of its own from 0. Rows show one group's bandwidth; times are over the ranks of all groups.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syntony.base.command import UserError
from syntony.collectives.bootstrap.launch import Exchange

_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "AND": operator.and_,
    "OR": operator.or_,
    "MOD": operator.mod,
    "DIV": operator.floordiv,
}


@dataclass(frozen=True)
class Split:
    """Ranks for which `rank OPERATOR number` is the same are a group."""

    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator} {self.number}"

    def color(self, rank: int) -> int:
        return _OPERATORS[self.operator](rank, self.number)


def read(text: str | None, environment: Mapping[str, str]) -> Split | None:
    """The split that the option asks for, or else nccl-tests' variables; None for one group. Raises UserError."""
    if text is not None:
        return _parse("--split", text)
    if mask := environment.get("NCCL_TESTS_SPLIT_MASK"):
        return _parse("NCCL_TESTS_SPLIT_MASK", f"AND 0x{mask.lower().removeprefix('0x')}")
    if words := environment.get("NCCL_TESTS_SPLIT"):
        return _parse("NCCL_TESTS_SPLIT", words)
    return None


def _parse(source: str, text: str) -> Split | None:
    name, _, number = text.strip().replace(":", " ").partition(" ")
    try:
        split = Split(name.upper(), int(number, 0))
    except ValueError:
        split = Split(name.upper(), -1)
    least = 1 if split.operator in ("MOD", "DIV") else 0
    if split.operator not in _OPERATORS or split.number < least:
        raise UserError(f"{source}: {text!r} should be AND, OR, MOD or DIV and a number, such as 'DIV 2'")
    return None if split == Split("AND", 0) else split


class Part:
    """One group's ranks, which meet through all of them. Groups are of one size. Making one is collective."""

    def __init__(self, everybody: Exchange, split: Split) -> None:
        """Raises UserError if groups differ in size."""
        colors = [split.color(rank) for rank in range(everybody.size)]
        sizes = sorted({colors.count(color) for color in colors})
        if len(sizes) > 1:
            raise UserError(f"--split {split} makes groups of {sizes[0]} and of {sizes[-1]} ranks; they must be equal")
        self._everybody = everybody
        self._members = [rank for rank, color in enumerate(colors) if color == colors[everybody.rank]]
        self.rank, self.size = self._members.index(everybody.rank), len(self._members)

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        """The blobs of this group. All groups make the same calls."""
        blobs = self._everybody.all_gather(name, blob)
        return [blobs[rank] for rank in self._members]
