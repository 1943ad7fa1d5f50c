"""The cost model of an algorithm on this machine: seconds as a function of bytes, fitted to measurements.

Two models are fitted for each collective and algorithm, and the one that better predicts unseen points is taken:

    line     seconds = alpha + bytes * beta               both at least 0; least squares of relative errors
    points   piecewise linear between the measured points  on log-log axes; beyond them proportional to the
                                                         last slope, before them like the first

The unseen points are the measured ones, left out one at a time, except for the two ends, since no range lies outside
them. So three points are needed; with fewer the prediction cannot be tested, and `points` is taken. Errors are factors,
so that too low is as wrong as too high.
(A gamma for sums cannot be told from beta by bytes alone: for reductions, beta includes both.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

_Times = NDArray[np.float64]
Model = Callable[[ArrayLike], _Times]  # bytes -> seconds
_SWITCH = 0.2  # octaves x relative gain that justify a change of algorithm; measurement noise does not
_PER_OCTAVE = 4
FEWEST_POINTS = 3
"""With fewer, no point lies between two others."""


@dataclass(frozen=True)
class Key:
    """What the costs belong to."""

    collective: str
    algorithm: str


Points = Mapping[int, float]  # bytes -> seconds, measured
Costs = Mapping[Key, Points]


@dataclass(frozen=True)
class Fit:
    """`errors`: by model, its prediction error (`unseen_error`)."""

    name: str
    model: Model
    errors: Mapping[str, float]

    def seconds(self, size: int) -> float:
        return float(self.model(size))


def line(points: Points) -> Model:
    """alpha + bytes * beta."""
    sizes, seconds = _columns(points)
    if len(sizes) == 1:  # does not determine beta
        return lambda size: np.full_like(np.asarray(size, float), seconds[0])
    weights = 1.0 / seconds
    design = np.stack([weights, sizes * weights], axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)
    if alpha < 0 or beta < 0:  # the better of the two corners
        column = 0 if beta < 0 else 1
        one = design[:, column]
        only = float(one.sum() / (one @ one))
        alpha, beta = (only, 0.0) if column == 0 else (0.0, only)
    return lambda size: np.asarray(alpha + np.asarray(size, float) * beta)


def interpolation(points: Points) -> Model:
    """Piecewise linear on log-log axes."""
    sizes, seconds = _columns(points)
    x, y = np.log(np.maximum(sizes, 1.0)), np.log(seconds)
    slope = max(0.0, (y[-1] - y[-2]) / (x[-1] - x[-2])) if len(x) > 1 else 0.0

    def model(size: ArrayLike) -> _Times:
        at = np.log(np.maximum(np.asarray(size, float), 1.0))
        beyond = np.maximum(at - x[-1], 0.0) * slope
        return np.asarray(np.exp(np.interp(at, x, y) + beyond))

    return model


MODELS: Mapping[str, Callable[[Points], Model]] = {"line": line, "points": interpolation}


def fit(points: Points) -> Fit:
    """The model that better predicts left-out points."""
    errors = {name: unseen_error(points, make) for name, make in MODELS.items()}
    known = len(points) >= FEWEST_POINTS
    name = min(MODELS, key=lambda one: (errors[one] if known else 0.0, one != "points"))
    return Fit(name, MODELS[name](points), errors)


def unseen_error(points: Points, make: Callable[[Points], Model]) -> float:
    """0.1 means that measured and predicted times differ by a factor of 1.1 in the geometric mean over the points.

    Inner points are predicted from all others, the ends from all points; nan if there is no inner point.
    """
    if len(points) < FEWEST_POINTS:
        return float("nan")
    whole, ends = make(points), (min(points), max(points))
    factors = []
    for size, seconds in points.items():
        predicted = float(whole(size)) if size in ends else predicted_unseen(points, make, size)
        factors.append(abs(np.log(max(predicted, 1e-12) / seconds)))
    return float(np.expm1(np.mean(factors)))


def predicted_unseen(points: Points, make: Callable[[Points], Model], size: int) -> float:
    """Seconds at `size`, predicted without that point; nan if fewer than two others are left."""
    others = {other: seconds for other, seconds in points.items() if other != size}
    return float(make(others)(size)) if len(others) >= FEWEST_POINTS - 1 else float("nan")


def ranges(fits: Mapping[str, Fit], sizes: Sequence[int]) -> list[tuple[int | None, str]]:
    """(last bytes, algorithm), the last one unbounded: the algorithm predicted fastest at each size.

    `sizes` are the measured ones, and no range is outside them. The result minimizes the loss against the fastest
    algorithm plus a price for each change of algorithm (shortest path over a grid).
    """
    names = sorted(fits)
    smallest, largest = max(min(sizes), 1), max(max(sizes), 2)
    steps = max(1, round(np.log2(largest / smallest) * _PER_OCTAVE))
    grid = np.unique(np.rint(np.geomspace(smallest, largest, steps + 1)).astype(np.int64))
    seconds = np.stack([np.asarray(fits[name].model(grid)) for name in names])
    loss = np.log(seconds / seconds.min(axis=0))
    total = loss[:, 0]
    came_from = []
    for column in loss.T[1:]:
        change = total.min() + _SWITCH * _PER_OCTAVE
        came_from.append(np.where(total <= change, np.arange(len(names)), total.argmin()))
        total = np.minimum(total, change) + column
    path = [int(total.argmin())]
    for back in reversed(came_from):
        path.append(int(back[path[-1]]))
    path.reverse()
    found: list[tuple[int | None, str]] = [
        (int(grid[place]), names[here]) for place, (here, there) in enumerate(pairwise(path)) if here != there
    ]
    return [*found, (None, names[path[-1]])]


def _columns(points: Points) -> tuple[_Times, _Times]:
    sizes = sorted(points)
    return np.asarray(sizes, np.float64), np.asarray([points[size] for size in sizes], np.float64)
