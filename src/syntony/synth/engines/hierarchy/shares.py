"""Shares: the part of every block that passes the levels in each order, so that all levels are equally busy.

In an all_gather, the last level moves the most: all that the levels before it have gathered. Over levels of n
and m ranks, whose lines need a and b seconds for a block per rank, if part x of each block takes one order and 1 - x
the other, the busiest links need

        max( x a + (1 - x) m a,   x n b + (1 - x) b )          a linear program over all orders

Rashidi et al., Themis (ISCA'22), let chunks choose their order at run time; here the loads are known in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from syntony.synth.engines.hierarchy.compositions import Composition
from syntony.synth.engines.hierarchy.stages import Group
from syntony.synth.symmetry.levels import Levels

MOST_PARTS = 24
"""The most parts that shares are divided into: each chunk is cut into up to this many."""
WORTH = 0.02
"""Reduction of the busiest wires' load that justifies more parts."""


def groups_of(kind: str, levels: Levels, composition: Composition, seconds: Sequence[Fraction]) -> tuple[Group, ...]:
    """The orders, with their shares; `seconds` is what a level's busiest line needs per byte of a rank's block.

    Across first for what gathers, inside first for what is sent apart; rotated: see the top of the file.
    """
    outer_first = tuple(range(len(levels)))
    inner_first = outer_first[::-1]
    if not composition.rotated or kind == "broadcast":
        return (Group(inner_first if kind in ("all_to_all", "scatter") else outer_first, 1),)
    if kind != "all_gather":  # every order moves as much, and in rotations each wire has something to do
        return tuple(Group(order, 1) for order in _rotations(len(levels)))
    return _balanced(levels.shape, [float(one) for one in seconds])


def _balanced(shape: Sequence[int], seconds: Sequence[float]) -> tuple[Group, ...]:
    from scipy.optimize import linprog

    orders = list(permutations(range(len(shape))))
    busy = np.asarray(
        [
            [seconds[level] * prod(shape[before] for before in order[: order.index(level)]) for order in orders]
            for level in range(len(shape))
        ]
    )
    count = len(orders)
    busy /= busy.max()
    found = linprog(
        np.r_[np.zeros(count), 1.0],
        A_ub=np.c_[busy, -np.ones(len(shape))],
        b_ub=np.zeros(len(shape)),
        A_eq=np.r_[np.ones(count), 0.0][None],
        b_eq=[1.0],
        method="highs",
    )
    rotations = np.asarray([float(order in _rotations(len(shape))) for order in orders])
    if (busy @ rotations).max() / len(shape) <= found.fun * (1 + 1e-9):  # levels that are alike: all orders' best
        return tuple(Group(order, 1) for order in _rotations(len(shape)))
    parts = [_rounded(found.x[:count], number) for number in range(1, MOST_PARTS + 1)]
    load = [float((busy @ part).max() / part.sum()) for part in parts]
    best = next(part for part, busiest in zip(parts, load, strict=True) if busiest <= min(load) * (1 + WORTH))
    common = gcd(*best.tolist())
    return tuple(Group(order, part // common) for order, part in zip(orders, best.tolist(), strict=True) if part)


def _rotations(levels: int) -> list[tuple[int, ...]]:
    """For each level, an order that begins with it; the rest in turn, inside first."""
    inner_first = tuple(range(levels))[::-1]
    return [inner_first[turn:] + inner_first[:turn] for turn in range(levels)]


def _rounded(shares: NDArray[np.float64], parts: int) -> NDArray[np.int64]:
    """Whole numbers that sum to `parts`, approximately in these shares."""
    wanted = shares * parts
    whole = np.floor(wanted + 1e-9).astype(np.int64)
    whole[np.argsort(whole - wanted, kind="stable")[: parts - int(whole.sum())]] += 1
    return whole
