"""The latency bound: how far data must travel, whatever its size.

A chunk that is not summed must reach each rank of `post` from the nearest of its holders. A summed chunk carries every
rank's contribution, so every rank's distance to every rank of `post` counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synth.bounds.bound import Distance, Latency
from synth.collective import Collective, CollectiveError
from synth.network import Network


def latency(network: Network) -> Latency:
    """Least steps and seconds with witnesses. Raises CollectiveError where some rank cannot be reached."""
    collective = network.collective
    steps, steps_witness = _farthest(collective, network.hops)
    if np.isinf(steps):
        assert steps_witness is not None
        raise CollectiveError(
            f"{network.topology.name}: rank {steps_witness.dst} cannot be reached from rank {steps_witness.src}, "
            f"so no {collective.kind} exists"
        )
    seconds, seconds_witness = _farthest(collective, network.alphas)
    return Latency(int(steps), float(seconds), steps_witness, seconds_witness)


def _farthest(collective: Collective, distance: NDArray[np.float64]) -> tuple[float, Distance | None]:
    """The greatest distance that some chunk must travel, and the first chunk that must."""
    worst, witness = 0.0, None
    done: set[tuple[frozenset[int], frozenset[int]]] = set()
    starts = np.searchsorted(collective.chunks.block, np.arange(collective.blocks))
    for chunk in starts.tolist():
        pre, post = collective.pre(chunk), collective.post(chunk)
        if (pre, post) in done:
            continue
        done.add((pre, post))
        sources, targets = sorted(pre), sorted(post)
        among = distance[np.ix_(sources, targets)]
        if collective.combining:
            src, dst = divmod(int(np.argmax(among)), len(targets))
        else:
            dst = int(np.argmax(among.min(axis=0)))
            src = int(np.argmin(among[:, dst]))
        if among[src, dst] > worst:
            worst = float(among[src, dst])
            witness = Distance(chunk, collective.members[sources[src]], collective.members[targets[dst]])
    return worst, witness
