"""What a probe measured between the ranks of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

REFERENCE = 1 << 20
"""Bytes of the message whose time is the distance of two ranks."""


@dataclass(frozen=True)
class Crossing:
    """Total rate at which the ranks of a cluster send out of it, and receive from outside, all at once; bytes/s.

    `alone`: the sum of the rates that the same messages have when each is sent alone.
    """

    out: float
    into: float
    alone: float


@dataclass(frozen=True, eq=False)
class Measurements:
    """Seconds and bytes/s; row is the sender, column the receiver, the diagonals are nan.

    hosts      per rank the name of its host
    alpha      float64 (n, n): latency of the smallest message, half a round trip
    bandwidth  float64 (n, n): of one message at a time
    crossings  per cluster (locality.py; single ranks too): its traffic with the rest of the cluster that contains it
    """

    hosts: tuple[str, ...]
    alpha: NDArray[np.float64]
    bandwidth: NDArray[np.float64]
    crossings: Mapping[tuple[int, ...], Crossing] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        return len(self.hosts)

    def name(self, rank: int) -> str:
        """Number and host of a rank, for messages."""
        return f"rank {rank} ({self.hosts[rank]})"

    def distance(self) -> NDArray[np.float64]:
        """(n, n) seconds of a message of REFERENCE bytes between two ranks, in the slower direction; symmetric."""
        one_way = self.alpha + REFERENCE / self.bandwidth
        return np.maximum(one_way, one_way.T)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; null on the diagonals."""

        def rows(matrix: NDArray[np.float64]) -> list[list[float | None]]:
            return [[None if np.isnan(value) else float(value) for value in row] for row in matrix]

        return {
            "hosts": list(self.hosts),
            "alpha": rows(self.alpha),
            "bandwidth": rows(self.bandwidth),
            "crossings": [
                {"ranks": list(ranks), "out": crossing.out, "into": crossing.into}
                for ranks, crossing in self.crossings.items()
            ],
        }
