"""Measurements of networks that are known, as a perfect clock would take them on store-and-forward-free wires."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np

from syntony.topologies.probed.locality import Cluster, clusters
from syntony.topologies.probed.measurements import Crossing, Measurements

Wire = Callable[[int, int], tuple[float, float]]


def measured(
    ranks: int, wire: Wire, hosts: tuple[str, ...] = (), shared: Callable[[tuple[int, ...]], float] | None = None
) -> tuple[Measurements, Cluster]:
    """`wire(a, b)` is alpha and bandwidth; `shared(ranks)` what these ranks move out at once, or all wires' sum."""
    alpha, bandwidth = np.full((ranks, ranks), np.nan), np.full((ranks, ranks), np.nan)
    for a, b in permutations(range(ranks), 2):
        alpha[a, b], bandwidth[a, b] = wire(a, b)
    names = hosts or tuple(f"host{rank}" for rank in range(ranks))
    pairs = Measurements(names, alpha, bandwidth)
    root = clusters(pairs)
    crossings = {}
    for cluster in root.walk():
        for part in cluster.parts:
            outside = [rank for rank in cluster.ranks if rank not in part.ranks]
            alone = sum(float(bandwidth[a, b]) for a in part.ranks for b in outside)
            moved = min(alone, shared(part.ranks)) if shared else alone
            crossings[part.ranks] = Crossing(moved, moved, alone)
    return Measurements(names, alpha, bandwidth, crossings), root


def two_level(a: int, b: int) -> tuple[float, float]:
    """Hosts of four ranks: 10 GB/s and 1 us inside, 25 MB/s and 50 us between."""
    return (1e-6, 10e9) if a // 4 == b // 4 else (50e-6, 25e6)
