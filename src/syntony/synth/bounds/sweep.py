"""Sweep cuts: sparse cuts of regular networks, found by spectral partitioning.

Eigenvectors of the Laplacian with the least eigenvalues vary along the greatest length of a network (Fiedler 1973). So
the nodes are sorted by such a vector, and every cut between two neighbours in this order is tried:

        ─  o─o  o─o  o─o│ o─o  o─o  o─o  ─        a torus 8x32 is cut across its 32, through 8 rings twice
        - ────────────0────────────────── +

One of those cuts is within a square root of the sparsest one (Cheeger's inequality), and on tori it is the best.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.islands import Labels

VECTORS = 3
"""Number of eigenvectors that are used: on a torus several lengths may be equal."""


def sweeps(graph: Arcs, members: NDArray[np.int64], table: NDArray[np.int64]) -> Iterator[Labels]:
    """Per vector the most crowded cut of its sweep, as set 0; `table[s, d]` is what member s sends to member d."""
    nodes = np.flatnonzero(graph.usable)
    for vector in _slowest(graph, nodes):
        order = nodes[np.argsort(vector, kind="stable")]
        place = np.full(graph.nodes, -1)
        place[order] = np.arange(len(order))
        crowding = _demand(place[members], table, len(order)) / _exits(graph, place, len(order))
        labels = np.full(graph.nodes, -1)
        labels[order[: int(np.argmax(crowding)) + 1]] = 0
        yield labels


def _exits(graph: Arcs, place: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Entry k: the capacity that leaves the first k + 1 nodes."""
    tails, heads = place[graph.tails], place[graph.heads]
    forward = tails < heads
    capacity = np.asarray([float(amount) for amount in graph.capacity])[forward]
    steps = np.bincount(tails[forward], capacity, count) - np.bincount(heads[forward], capacity, count)
    return np.maximum(np.cumsum(steps)[:-1], np.finfo(float).tiny)


def _demand(place: NDArray[np.int64], table: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Entry k: what members among the first k + 1 nodes send to members behind them."""
    order = np.argsort(place)
    steps = np.zeros(count)
    for position, member in enumerate(order.tolist()):
        steps[place[member]] = table[member, order[position + 1 :]].sum() - table[order[:position], member].sum()
    return np.cumsum(steps)[:-1]


def _slowest(graph: Arcs, nodes: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """Eigenvectors of the Laplacian between the nodes, without the constant one; deterministic."""
    from scipy.sparse import coo_array, diags_array
    from scipy.sparse.linalg import eigsh

    index = np.full(graph.nodes, -1)
    index[nodes] = np.arange(len(nodes))
    weight = np.asarray([float(amount) for amount in graph.capacity])
    ends, other = index[graph.tails], index[graph.heads]
    one_way = coo_array((weight / weight.max(), (ends, other)), shape=(len(nodes), len(nodes)))
    both = (one_way + one_way.T).tocsr()
    laplacian = diags_array(both.sum(axis=1)) - both
    if len(nodes) <= 3 * VECTORS:
        _, vectors = np.linalg.eigh(laplacian.toarray())
    else:
        start = np.random.default_rng(0).random(len(nodes))
        _, vectors = eigsh(laplacian.tocsc(), k=VECTORS + 1, sigma=-1e-4, v0=start)
    yield from vectors.T[1 : VECTORS + 1]
