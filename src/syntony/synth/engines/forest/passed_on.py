"""Trees of a broadcast where every two ranks have a link: each rank gets a share, and passes it on to all others.

    root ──▶ 1 ──▶ 2, 3 .. n           as many trees as there are other ranks; every link carries one of them,
    root ──▶ 2 ──▶ 1, 3 .. n           and no trees of two hops fill the network better

An exact packing comes to the same trees, but takes a minute for 200 ranks. Where links differ, a rank's share is what
the slowest of the links of its tree allows.
"""

from __future__ import annotations

from math import gcd, lcm

import numpy as np

from syntony.synth.engines.forest.trees import Trees
from syntony.synth.model.network import Network


def passed_on(network: Network) -> Trees | None:
    """The trees; None if some ranks have no link, or there are only two. They may be slower than others."""
    topology, collective = network.topology, network.collective
    ranks, root = collective.ranks, collective.root
    position = np.full(len(topology.nodes), -1)
    position[list(collective.members)] = np.arange(ranks)
    src, dst = (position[ends] for ends in topology.ends)
    between = np.flatnonzero((src >= 0) & (dst >= 0))
    if ranks < 3 or len(between) < (ranks - 1) ** 2:
        return None
    _, first, speed = np.unique(topology.speeds, return_index=True, return_inverse=True)
    bandwidths = [topology.links[link].bandwidth for link in first]
    values = sorted(set(bandwidths))
    slowness = np.asarray([values.index(bandwidth) for bandwidth in bandwidths])[speed]
    link = np.full((ranks, ranks), -1)
    by_speed = between[np.argsort(slowness[between], kind="stable")]
    link[src[by_speed], dst[by_speed]] = by_speed  # of parallel ones, the fastest

    others = np.flatnonzero(np.arange(ranks) != root)
    heads = np.asarray([[one, *others[others != one]] for one in others])
    tails = np.repeat(others[:, None], ranks - 1, axis=1)
    tails[:, 0] = root
    taken = link[tails, heads]
    if (taken < 0).any():
        return None
    shares = [values[least] for least in slowness[taken].min(axis=1).tolist()]
    whole = lcm(*(share.denominator for share in shares))
    weights = [int(share * whole) for share in shares]
    return Trees(
        np.full(ranks - 1, root),
        np.asarray(weights, np.int64) // gcd(*weights),
        tails,
        heads,
        np.arange(taken.size).reshape(taken.shape),
        np.arange(taken.size + 1),
        taken.reshape(-1),
    )
