"""The table of choices that NCCL's tuner plugins read, from measured times.

    collective,least bytes,most bytes,algorithm,protocol,channels,nodes,ranks,operations,registered

Each algorithm and protocol was timed at some sizes (NCCL_ALGO and NCCL_PROTO set, nccl-tests run). NCCL's own model,
latency + bytes / bandwidth, is fitted to these times; its error at the measured sizes is interpolated between them and
extrapolated beyond. The least time decides at every size, so a line ends where two curves cross.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log
from typing import Protocol

import numpy as np
from scipy.optimize import nnls

from syntony.base.command import UserError
from syntony.base.wording import counted, unknown

COLLECTIVES = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_reduce": "allreduce",
}
"""Our names, and the table's. NCCL does not consult a tuner for other collectives."""
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
RCCL_ALGORITHMS = ("tree", "ring")
PROTOCOLS = ("ll", "ll128", "simple")
MOST_BYTES = 1 << 40
_STEPS_PER_DOUBLING = 8  # resolution of the search for crossings before bisection


@dataclass(frozen=True)
class Way:
    """How a collective can run; `channels` -1 leaves their number to NCCL."""

    algorithm: str
    protocol: str
    channels: int = -1

    def __str__(self) -> str:
        return f"{self.algorithm}/{self.protocol}" + ("" if self.channels < 0 else f"/{self.channels}")


def way_named(text: str, known: Sequence[str] = ALGORITHMS) -> Way:
    """`ring/simple` or `tree/ll128/16`. Raises UserError."""
    algorithm, *rest = text.split("/")
    if algorithm not in known:
        raise UserError(f"{text}: {unknown('algorithm', algorithm, known)}")
    if not 1 <= len(rest) <= 2:
        raise UserError(f"{text}: write algorithm/protocol or algorithm/protocol/channels, such as ring/simple/16")
    if rest[0] not in PROTOCOLS:
        raise UserError(f"{text}: {unknown('protocol', rest[0], PROTOCOLS)}")
    channels = rest[1] if len(rest) == 2 else "-1"
    if channels != "-1" and not (channels.isascii() and channels.isdecimal() and 1 <= int(channels) <= 64):
        raise UserError(f"{text}: '{channels}' is not a number of channels from 1 to 64")
    return Way(algorithm, rest[0], int(channels))


class Curve:
    """Times of one way over sizes (bytes, seconds)."""

    def __init__(self, way: Way, measured: Sequence[tuple[int, float]]) -> None:
        best: dict[int, float] = {}
        for size, seconds in measured:
            if size > 0 and seconds > 0:
                best[size] = min(seconds, best.get(size, inf))
        if len(best) < 2:
            raise UserError(f"{way}: it has {counted(len(best), 'measured size')}; at least two are needed")
        self.way = way
        self.sizes = sorted(best)
        self.seconds = [best[size] for size in self.sizes]
        # Minimizes relative errors, so that small sizes determine the latency.
        sizes, seconds_ = np.array(self.sizes, float), np.array(self.seconds)
        (self.latency, self.per_byte), _ = nnls(np.stack([1 / seconds_, sizes / seconds_], axis=1), np.ones(len(sizes)))

    def at(self, size: float) -> float:
        """Seconds."""
        held = min(max(size, self.sizes[0]), self.sizes[-1])
        place = min(bisect_right(self.sizes, held), len(self.sizes) - 1)
        low, high = self.sizes[place - 1], self.sizes[place]
        part = (log(held) - log(low)) / (log(high) - log(low))
        off = [log(self.seconds[at] / self._model(self.sizes[at])) for at in (place - 1, place)]
        return self._model(size) * exp((1 - part) * off[0] + part * off[1])

    def _model(self, size: float) -> float:
        return float(self.latency + self.per_byte * size) or 1e-12


class Timed(Protocol):
    """Times of one way: measured (Curve), or predicted (cost_model.py)."""

    @property
    def way(self) -> Way: ...

    @property
    def sizes(self) -> Sequence[int]:
        """Sizes at which to look for crossings, bytes."""

    def at(self, size: float) -> float:
        """Seconds."""


@dataclass(frozen=True)
class Choice:
    """The way from `least` to `most` bytes."""

    least: int
    most: int
    way: Way


def choices(curves: Sequence[Timed]) -> list[Choice]:
    """The fastest way at every size, up to MOST_BYTES. Ties go to the one named first."""
    points = _grid(curves)
    chosen = [_best(curves, point) for point in points]
    found: list[Choice] = []
    least = 0
    for place in range(len(points)):
        last = place + 1 == len(points)
        if not last and chosen[place + 1] is chosen[place]:
            continue
        most = MOST_BYTES if last else _crossing(curves, points[place], points[place + 1])
        found.append(Choice(least, most, chosen[place].way))
        least = most + 1
    return found


def _best(curves: Sequence[Timed], size: float) -> Timed:
    return min(curves, key=lambda curve: curve.at(size))


def _grid(curves: Sequence[Timed]) -> list[float]:
    """Sizes to examine, including all measured ones."""
    measured = {float(size) for curve in curves for size in curve.sizes}
    low, high = min(measured), max(measured)
    steps = max(1, round(log(high / low, 2) * _STEPS_PER_DOUBLING))
    return sorted(measured | {low * (high / low) ** (step / steps) for step in range(1, steps)})


def _crossing(curves: Sequence[Timed], low: float, high: float) -> int:
    """The last size between `low` and `high` at which the best way is the one at `low`."""
    before = _best(curves, low)
    least, most = int(low), int(high)
    while most - least > 1:
        middle = (least + most) // 2
        if _best(curves, middle) is before:
            least = middle
        else:
            most = middle
    return least


def table_text(collective: str, found: Sequence[Choice], *, nodes: int = -1, ranks: int = -1, remark: str = "") -> str:
    """The table; -1 for `nodes` or `ranks` matches any number of them."""
    lines = ["# collective,least bytes,most bytes,algorithm,protocol,channels,nodes,ranks,operations,registered"]
    lines += [f"# {remark}"] if remark else []
    lines += [
        f"{COLLECTIVES[collective]},{one.least},{one.most},{one.way.algorithm},{one.way.protocol},{one.way.channels},"
        f"{nodes},{ranks},-1,-1"
        for one in found
    ]
    return "\n".join([*lines, ""])
