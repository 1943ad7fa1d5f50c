"""Bound: a limit that no schedule can beat, and the witness from which anyone can recompute it.

Two bounds for a collective on a topology:

- latency: some chunk must get from where it starts to where it must end, and that takes `steps` hops of messages and
  `seconds` of link latency, whatever the size. Witness: the chunk and the two ranks.
- throughput: `share` of the size must pass through links of `bandwidth` bytes/s together, so it takes
  `seconds_per_byte` of the size at least. Witness: a node set and links around it (`Cut`), or a generalization of it.

Both are lower bounds on any schedule's time. The time is at least their maximum, not their sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Distance:
    """A chunk that starts at topology rank `src` (the nearest of its holders) and must reach topology rank `dst`."""

    chunk: int
    src: int
    dst: int


@dataclass(frozen=True)
class Latency:
    """`steps`: consecutive messages (forwarding by switches is part of one message); `seconds`: alphas along the way.

    Different chunks may reach the two maxima, so each has its own witness.
    """

    steps: int
    seconds: float
    steps_witness: Distance | None = None
    seconds_witness: Distance | None = None


@dataclass(frozen=True)
class Cut:
    """A node set: `share` of the collective's size must leave it (enter it, if `entering`) over `links`."""

    nodes: tuple[int, ...]
    links: tuple[int, ...]
    share: Fraction
    bandwidth: Fraction
    entering: bool = False


@dataclass(frozen=True)
class Partition:
    """k node sets that hold all members. A message from part to part leaves one of them, over one of `links`.

    For all_reduce, each byte needs k-1 such messages before any part can know the whole sum, and k-1 more until all do:
    share = 2 (k-1). bounds/partition.py has the proof, and where switches that copy or add must be. `links` are listed
    part by part. `entering`: messages are counted at the links that enter the parts instead. `adders` are nodes whose
    aggregator's rate counts as bandwidth, for the messages saved by their adding.
    """

    parts: tuple[tuple[int, ...], ...]
    links: tuple[int, ...]
    share: Fraction
    bandwidth: Fraction
    entering: bool = False
    adders: tuple[int, ...] = ()


@dataclass(frozen=True)
class Prices:
    """A price per byte on each link; a demand costs at least its bytes times the cheapest path. The dual of a flow LP.

    share      sum over demands of (share of the size) * (price of the cheapest path)
    bandwidth  sum over links of price * bandwidth: what the network can earn per second
    """

    links: tuple[int, ...]
    prices: tuple[Fraction, ...]
    share: Fraction
    bandwidth: Fraction


Witness = Cut | Partition | Prices


@dataclass(frozen=True)
class Throughput:
    """At least `seconds_per_byte` of the collective's size: the witness's share / bandwidth; 0 if nothing moves.

    `searched`: the witnesses among which this one is the best, in words; not stored in files.
    """

    seconds_per_byte: Fraction
    witness: Witness | None = None
    searched: str = field(default="", compare=False)

    @staticmethod
    def by(witness: Witness, searched: str = "") -> Throughput:
        """The bound that the witness proves."""
        return Throughput(witness.share / witness.bandwidth, witness, searched)

    @property
    def algbw(self) -> float:
        """Upper bound on bytes of the collective's size per second; infinite if nothing must move."""
        return float(1 / self.seconds_per_byte) if self.seconds_per_byte else float("inf")


@dataclass(frozen=True)
class Window:
    """Latency and bandwidth together: `share` of the size must move, and within T seconds at most the sum of
    rates[i] * max(0, T - delays[i]) bytes can (bounds/windows.py). Delays ascend.
    """

    share: float
    delays: tuple[float, ...]
    rates: tuple[float, ...]

    @staticmethod
    def of(share: float, delays: NDArray[np.float64], rates: NDArray[np.float64]) -> Window:
        """Merges equal delays."""
        apart, which = np.unique(delays, return_inverse=True)
        return Window(share, tuple(apart.tolist()), tuple(np.bincount(which, rates, len(apart)).tolist()))

    def seconds(self, size: int) -> float:
        """The least T, rounded down to allow for rounding errors."""
        owed, rate, weighted = self.share * size, 0.0, 0.0
        seconds = float("inf")
        for delay, more in zip(self.delays, self.rates, strict=True):
            if seconds <= delay:
                break
            rate += more
            weighted += more * delay
            seconds = (owed + weighted) / rate if rate else float("inf")
        return seconds * (1 - 1e-12) if owed and self.rates else 0.0


@dataclass(frozen=True)
class Bounds:
    """The two bounds of one collective on one topology.

    windows  what both prove together at a size; not stored in files, since topology and witness determine them
    """

    latency: Latency
    throughput: Throughput
    windows: tuple[Window, ...] = field(default=(), compare=False)

    def seconds(self, size: int) -> float:
        """The largest of the bounds: no schedule moves `size` bytes in less time."""
        moving = float(size * self.throughput.seconds_per_byte)
        return max(self.latency.seconds, moving, *(window.seconds(size) for window in self.windows))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `syntony bound --json` and of the schedule file."""
        rate = self.throughput.seconds_per_byte
        return {
            "latency": {
                "steps": self.latency.steps,
                "seconds": self.latency.seconds,
                "witness": {
                    "steps": _distance_dict(self.latency.steps_witness),
                    "seconds": _distance_dict(self.latency.seconds_witness),
                },
            },
            "throughput": {
                "algbw": self.throughput.algbw if rate else None,
                "seconds_per_byte": fraction_text(rate),
                "witness": _witness_dict(self.throughput.witness),
            },
        }


def fraction_text(value: Fraction) -> str:
    """An exact fraction as written in files: "p/q"."""
    return f"{value.numerator}/{value.denominator}"


def _distance_dict(witness: Distance | None) -> dict[str, int] | None:
    return None if witness is None else {"chunk": witness.chunk, "src": witness.src, "dst": witness.dst}


def _witness_dict(witness: Witness | None) -> dict[str, Any] | None:
    what: dict[str, Any]
    match witness:
        case None:
            return None
        case Cut():
            what = {"kind": "cut", "nodes": list(witness.nodes), "direction": _direction(witness.entering)}
        case Partition():
            parts = [list(part) for part in witness.parts]
            what = {"kind": "partition", "parts": parts, "direction": _direction(witness.entering)}
            what |= {"adders": list(witness.adders)} if witness.adders else {}
        case Prices():
            what = {"kind": "prices", "prices": [fraction_text(price) for price in witness.prices]}
    return what | {
        "links": list(witness.links),
        "share": fraction_text(witness.share),
        "bandwidth": fraction_text(witness.bandwidth),
    }


def _direction(entering: bool) -> str:
    return "entering" if entering else "leaving"
