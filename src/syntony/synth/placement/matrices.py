r"""Matrices: the ways to map axes of parallelism onto the levels of a machine.

    2 boxes of 4 GPUs, dp4xtp2        box  gpu            every column multiplies to its level,
                                 dp  [ 2    2 ]           every row to its axis
    or  dp [1 4], tp [2 1]       tp  [ 1    2 ]

    box 0: dp0tp0 dp0tp1 dp1tp0 dp1tp1     box 1: dp2tp0 dp2tp1 dp3tp0 dp3tp1

Xie et al., P2 (MLSys'22), section 3: all placements that treat equal parts of a level alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.synth.symmetry.levels import Levels

_AXIS = r"(dp|tp|pp|ep|cp|row|column)([1-9][0-9]{0,5})"


@dataclass(frozen=True)
class Axis:
    """One kind of parallelism, and how many parts it has."""

    name: str
    size: int


def read_axes(text: str, ranks: int) -> tuple[Axis, ...]:
    """The axes in `text`, such as dp4xtp8. Raises UserError."""
    parts = [re.fullmatch(_AXIS, part) for part in text.split("x")]
    if None in parts:
        raise UserError(
            f"'{text}' are not axes; write dp, tp, pp, ep, cp, row or column (of tp's grid) with sizes, such as dp4xtp8"
        )
    axes = tuple(Axis(part[1], int(part[2])) for part in parts if part)
    if len({axis.name for axis in axes}) < len(axes):
        raise UserError(f"axes {text} name one axis twice")
    total = math.prod(axis.size for axis in axes)
    if total != ranks:
        raise UserError(f"axes {text} are {total} ranks, but the topology has {ranks}")
    return axes


@dataclass(frozen=True)
class Placement:
    """factors[a][l]: the number of parts of axis a on level l."""

    levels: Levels
    axes: tuple[Axis, ...]
    factors: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        rows = zip(self.axes, self.factors, strict=True)
        return " ".join(f"{axis.name}[{' '.join(map(str, row))}]" for axis, row in rows)

    def groups(self, reduced: Sequence[str]) -> NDArray[np.int64]:
        """(groups, f1, f2, ..): the ranks that reduce over the named axes, by the axes' parts, outermost first."""
        count, depth = len(self.axes), len(self.levels)
        shape = [self.factors[axis][level] for level in range(depth) for axis in range(count)]
        summed = [self.axes[place % count].name in reduced for place in range(len(shape))]
        order = [p for p, own in enumerate(summed) if not own] + [p for p, own in enumerate(summed) if own]
        parts = [shape[place] for place, own in enumerate(summed) if own and shape[place] > 1]
        return self.levels.grid.reshape(shape).transpose(order).reshape(-1, *parts)

    @property
    def coordinates(self) -> NDArray[np.int64]:
        """(ranks, axes): each rank's coordinate on every axis."""
        places = np.empty((self.levels.grid.size, len(self.axes)), np.int64)
        for column, axis in enumerate(self.axes):
            line = self.groups([axis.name]).reshape(-1, axis.size)
            places[line, column] = np.arange(axis.size)
        return places


def placements(levels: Levels, axes: Sequence[Axis]) -> Iterator[Placement]:
    """All placements of the axes over the levels; their sizes must multiply to the ranks."""
    columns = [list(_splits(size, len(axes))) for size in levels.shape]
    for chosen in product(*columns):
        rows = tuple(zip(*chosen, strict=True))
        if all(math.prod(row) == axis.size for row, axis in zip(rows, axes, strict=True)):
            yield Placement(levels, tuple(axes), rows)


def _splits(size: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as an ordered product of this many factors."""
    if parts == 1:
        yield (size,)
        return
    for factor in range(1, size + 1):
        if size % factor == 0:
            for rest in _splits(size // factor, parts - 1):
                yield (factor, *rest)
