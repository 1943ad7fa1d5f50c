"""Decomposes flows into paths, and gives the paths whole weights.

A flow out of one source is a sum of paths to its destinations (Ahuja, Magnanti and Orlin, Network Flows, 1993, section
3.5). Each destination traces its share back to the source, each time over the link on which most is left:

    source ══3══▶ a ══2══▶ b      b wants 2: takes 2 by a         paths   a: 1    (source, a)
                  a wants 1       a wants 1: takes the rest               b: 2    (source, a), (a, b)

The flows come from a solver and are not exact; the weights are whole numbers, D for every unit that a destination
wants. Vertices of flow programs usually are fractions with a small common denominator, which is tried as D; if none
fits, D is large. The loads of links are then counted in whole numbers, so a bad D costs rate, but the result is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

SMALL = 1 << 12
"""Largest denominator that a vertex is expected to have."""
GRAIN = 1 << 16
"""What is tried as D after these."""
_NOTHING = 1e-7
"""Parts of what a destination wants that are below this are rounding of the solver."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Path:
    """What flows from source number `source` to the node `end` over `arcs`, in units of what is wanted."""

    source: int
    end: int
    arcs: tuple[int, ...]
    amount: float


def paths_of(source: int, start: int, wanted: dict[int, int], flow: Floats, ends: list[tuple[int, int]]) -> list[Path]:
    """The flow of one source, from node `start`, as paths. `ends` are the arcs' tails and heads."""
    left = flow.copy()
    into: dict[int, list[int]] = {}
    for arc in np.flatnonzero(left > _NOTHING).tolist():
        into.setdefault(ends[arc][1], []).append(arc)
    found = []
    for end, amount in wanted.items():
        missing = float(amount)
        while missing > _NOTHING * amount:
            arcs: list[int] = []
            node, width = end, missing
            while node != start:
                # If rounding has left nothing, the link with the largest flow still leads to the source.
                arc = max(into[node], key=lambda arc: (left[arc], flow[arc]))
                arcs.append(arc)
                width = min(width, float(left[arc]))
                node = ends[arc][0]
                assert len(arcs) <= len(ends), "shortest flows have no circles"
            if width <= _NOTHING * amount:
                width = missing
            left[arcs] -= width
            missing -= width
            found.append(Path(source, end, tuple(reversed(arcs)), width))
    return found


def denominators(paths: list[Path], most: int) -> Iterator[int]:
    """Candidates for D, the likeliest first; at most `most`."""
    common = 1
    for path in paths:
        common = lcm(common, Fraction(path.amount).limit_denominator(SMALL).denominator)
        if common > most:
            break
    else:
        yield common
    yield min(GRAIN, most)


def whole_weights(paths: list[Path], wanted: list[dict[int, int]], denominator: int) -> NDArray[np.int64]:
    """Weight per path; those of one source and end add up to `denominator` times what is wanted. 0: not worth it."""
    exact = np.asarray([path.amount for path in paths]) * denominator
    weights = np.floor(exact + 1e-6).astype(np.int64)
    groups: dict[tuple[int, int], list[int]] = {}
    for number, path in enumerate(paths):
        groups.setdefault((path.source, path.end), []).append(number)
    for (source, end), numbers in groups.items():
        rest = wanted[source][end] * denominator - int(weights[numbers].sum())
        # The largest remainders get one more each; a solver's rounding may leave more than that, or less.
        numbers.sort(key=lambda number: weights[number] - exact[number])
        for turn in range(abs(rest)):
            weights[numbers[turn % len(numbers)] if rest > 0 else max(numbers, key=lambda n: weights[n])] += (
                1 if rest > 0 else -1
            )
    return weights
