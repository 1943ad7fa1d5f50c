"""Ranks and pairs that are slower than their peers: a check before a long job starts.

The peers of a pair are the pairs whose ranks are equally near each other (the same depth in the tree of locality.py),
so they should be equally fast. A pair that is slower than their median by more than the tolerance is a finding. If most
pairs of one rank are slow, or its total bandwidth is low, the rank is named instead of each pair (MegaScale, Jiang et
al., NSDI'24, and IBM's Vela have similar checks before a job, with traffic of their own).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from syntony.base.wording import rate, time
from syntony.topologies.probed.locality import Cluster
from syntony.topologies.probed.measurements import Measurements

TOLERANCE = 0.75
"""A bandwidth below this fraction of its peers' median is slow."""

_LATE = 4.0  # a latency above this multiple of its peers' median is late,
_LEAST_DELAY = 100e-6  # if it also exceeds the median by this many seconds: smaller differences are scheduler noise
_FEWEST_PEERS = 3  # with fewer peers, it cannot be decided which of them is slow

Pair = tuple[int, int]


@dataclass(frozen=True)
class Finding:
    """Something slower than its peers. `ranks`: a pair (sender, receiver), or a single rank."""

    ranks: tuple[int, ...]
    sentence: str


def examine(measurements: Measurements, root: Cluster, tolerance: float = TOLERANCE) -> tuple[Finding, ...]:
    """The findings, whole ranks first; empty if nothing is slow."""
    usual_rate = _usual(measurements.bandwidth, root)
    usual_alpha = _usual(measurements.alpha, root)
    slow = _slow(measurements, usual_rate, tolerance)
    late = _late(measurements, usual_alpha)
    findings = _slow_ranks(measurements, root, slow, tolerance)
    blamed = {finding.ranks[0] for finding in findings}
    for pair in sorted(slow | late):
        if blamed & set(pair):
            continue
        problems = []
        if pair in slow:
            problems.append(f"{rate(float(measurements.bandwidth[pair]))}, its peers have {rate(usual_rate[pair])}")
        if pair in late:
            problems.append(f"latency {time(float(measurements.alpha[pair]))}, its peers' is {time(usual_alpha[pair])}")
        ends = " -> ".join(measurements.name(rank) for rank in pair)
        findings.append(Finding(pair, f"{ends}: {'; '.join(problems)}"))
    return tuple(findings)


def suspects(measurements: Measurements, root: Cluster, tolerance: float = TOLERANCE) -> list[Pair]:
    """The pairs that are slower or later than their peers, worth measuring again before anyone is blamed; sorted."""
    slow = _slow(measurements, _usual(measurements.bandwidth, root), tolerance)
    return sorted(slow | _late(measurements, _usual(measurements.alpha, root)))


def _usual(matrix: NDArray[np.float64], root: Cluster) -> dict[Pair, float]:
    """Of each pair with enough peers: their median."""
    usual: dict[Pair, float] = {}
    for pairs in _peers(root).values():
        if len(pairs) > _FEWEST_PEERS:
            usual |= dict.fromkeys(pairs, float(np.median([matrix[pair] for pair in pairs])))
    return usual


def _slow(measurements: Measurements, usual: dict[Pair, float], tolerance: float) -> set[Pair]:
    return {pair for pair, rate in usual.items() if measurements.bandwidth[pair] < tolerance * rate}


def _late(measurements: Measurements, usual: dict[Pair, float]) -> set[Pair]:
    return {
        pair for pair, alpha in usual.items() if measurements.alpha[pair] > max(_LATE * alpha, alpha + _LEAST_DELAY)
    }


def _peers(root: Cluster) -> dict[int, list[Pair]]:
    """The pairs, grouped by the depth of the smallest cluster that contains both ranks."""
    depth: dict[tuple[int, ...], int] = {root.ranks: 0}
    for cluster in root.walk():
        for part in cluster.parts:
            depth[part.ranks] = depth[cluster.ranks] + 1
    peers: defaultdict[int, list[Pair]] = defaultdict(list)
    for a, b in permutations(root.ranks, 2):
        peers[depth[root.around(a, b).ranks]].append((a, b))
    return peers


def _slow_ranks(measurements: Measurements, root: Cluster, slow: set[Pair], tolerance: float) -> list[Finding]:
    findings = []
    others = measurements.ranks - 1
    single = {ranks[0]: crossing for ranks, crossing in measurements.crossings.items() if len(ranks) == 1}
    for verb, towards, end in (("sends", "to", 0), ("receives", "from", 1)):
        wires = measurements.bandwidth.T if end else measurements.bandwidth
        moved = {rank: (crossing.out, crossing.into)[end] for rank, crossing in single.items()}
        eased = {rank: moved[rank] / crossing.alone for rank, crossing in single.items()}
        wire = {rank: float(np.nanmedian(wires[rank])) for rank in single}
        usual, usual_ease, usual_wire = (float(np.median(list(values.values()))) for values in (moved, eased, wire))
        for rank in root.ranks:
            mine = sum(pair[end] == rank for pair in slow)
            # The rank is named if most of its pairs are slow or share a slow link; otherwise the pairs are named.
            little = rank in moved and moved[rank] < tolerance * usual
            all_over = little and (eased[rank] < tolerance * usual_ease or wire[rank] < tolerance * usual_wire)
            if all_over and len(moved) > _FEWEST_PEERS:
                what = f"{rate(moved[rank])} {towards} all its neighbours together, its peers {rate(usual)}"
            elif others >= _FEWEST_PEERS and 2 * mine > others:
                what = f"slowly {towards} {mine} of {others} ranks"
            else:
                continue
            findings.append(Finding((rank,), f"{measurements.name(rank)} {verb} {what}"))
    return findings
