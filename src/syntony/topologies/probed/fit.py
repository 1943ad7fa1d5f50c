"""The alpha and bandwidth of a link, from the seconds that messages of several sizes took.

      seconds                              / ·      the time of s bytes is latency + s / bandwidth,
        │                        ·     /            and noise only ever adds to it: of equal sizes
        │                        /                  the fastest counts. The slope is the weighted
        │     ·      /  ·                           median of the slopes between all points (Theil and
latency ┤─ · ─ /                                    Sen; weights are the distances, Jaeckel 1972), which
        └──────────────────────────── bytes         a quarter of wild points cannot bend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

_SMALL = 4  # the latency is taken from messages of up to this many times the smallest size
_FAR = 16  # slopes are taken between sizes within this factor below the largest


@dataclass(frozen=True)
class Line:
    """A message of s bytes takes `latency + s / bandwidth` seconds; bytes/s."""

    latency: float
    bandwidth: float

    def seconds(self, size: float) -> float:
        return self.latency + size / self.bandwidth


def fit(times: Mapping[int, Sequence[float]]) -> Line:
    """The line through `times`: bytes -> seconds of each repetition. At least two sizes, each with a repetition.

    If time does not grow with size (a clock too coarse), the bandwidth is the largest message's own rate.
    """
    sizes = np.asarray(sorted(times), float)
    if len(sizes) < 2:
        raise ValueError(f"a fit needs messages of at least two sizes; there are {len(sizes)}")
    fastest = np.asarray([min(times[int(size)]) for size in sizes])
    reach = [i for i, size in enumerate(sizes) if size * _FAR >= sizes[-1]]
    if len(reach) < 2:
        reach = [len(sizes) - 2, len(sizes) - 1]
    pairs = list(combinations(reach, 2))
    run = np.asarray([sizes[j] - sizes[i] for i, j in pairs])
    slope = _weighted_median(np.asarray([fastest[j] - fastest[i] for i, j in pairs]) / run, run)
    if slope <= 0:
        slope = fastest[-1] / sizes[-1]
    small = sizes <= _SMALL * sizes[0]
    latency = float(np.median(fastest[small] - slope * sizes[small]))
    return Line(max(latency, 0.0), 1.0 / float(slope))


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
