"""Replaces many trees by few, which need fewer messages, at a small loss of rate.

Two methods; the one with fewer trees is taken (Wang et al., Blink, MLSys'20, section 3.2.1, for broadcasts; the second
is ours):

    equal trees   K equal trees per root, chosen from the known trees by an integer program, for K = 1, 2, ... until the
                  loss is small enough
    the heaviest  the heaviest trees of each root, as few as possible, with the best weights by a linear program
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.base.deadline import wall
from syntony.synth.engines.blink.packing import Packing, Weights
from syntony.synth.engines.engine import Budget

MOST_INTEGERS = 2_000
"""Most trees that an integer program chooses from; of more, those that the packing uses, then the next ones."""
MOST_EQUAL = 16
"""Most trees per root that are tried."""

_SECONDS = 5.0
"""Time limit of one integer program, in seconds."""


def few(packing: Packing, found: Weights, loss: float, seconds: float) -> Weights:
    """Weights of the fewest trees that reach the rate of `found` less `loss`, found in `seconds`; at worst `found`."""
    budget = Budget(seconds)
    allowed = found.excess / (1 - loss)
    best = _heaviest(packing, found, allowed, budget) if packing.small else found
    if len(packing.forest.root) <= MOST_INTEGERS:
        share = packing.owed // np.gcd.reduce(packing.owed)
        for count in range(1, MOST_EQUAL + 1):
            if count * int(share.sum()) >= best.trees:
                break
            equal = _equal(packing, count * share, allowed, min(_SECONDS, budget.left() / 2))
            if equal is not None and equal.trees < best.trees:
                return equal
    return best


def _heaviest(packing: Packing, found: Weights, allowed: float, budget: Budget) -> Weights:
    """The fewest of the heaviest trees whose best weights are fast enough, by bisection."""
    best = found
    solved = packing.reweighted(np.flatnonzero(found.weight), budget.left())
    if solved is not None and solved[0].excess <= allowed and solved[0].trees <= best.trees:
        best = solved[0]
    kept = np.flatnonzero(best.weight)
    roots = packing.roots[kept]
    part = best.weight[kept] / packing.owed[roots]
    order = np.lexsort((-part, roots))
    place = np.empty(len(kept), np.int64)  # 0 for a root's heaviest tree
    place[order] = np.arange(len(kept)) - np.searchsorted(roots[order], roots[order])
    ranked = kept[np.lexsort((-part, place > 0))]
    low, high = len(np.unique(roots)) - 1, len(kept)
    while high - low > 1 and budget.left():
        middle = (low + high) // 2
        solved = packing.reweighted(ranked[:middle], budget.left())
        if solved is not None and solved[0].excess <= allowed:
            high = middle
            best = min(best, solved[0], key=lambda weights: weights.trees)
        else:
            low = middle
    return best


def _equal(packing: Packing, trees: NDArray[np.int64], allowed: float, seconds: float) -> Weights | None:
    """trees[r] equal trees from every root r; None if no such choice is fast enough or none was found in time."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    known = len(packing.forest.root)
    owing = np.flatnonzero(trees)
    place = np.searchsorted(owing, packing.roots)
    per_root = coo_array((np.ones(known), (place, np.arange(known))), shape=(len(owing), known)).tocsr()
    wanted = trees[owing].astype(np.float64)
    unit = packing.owed[owing[0]] / wanted[0]
    answer = milp(
        np.zeros(known),
        integrality=np.ones(known),
        bounds=Bounds(0, np.inf),
        constraints=[
            LinearConstraint(per_root, wanted, wanted),
            LinearConstraint(packing.uses, -np.inf, packing.room * (allowed / unit)),
        ],
        options={"time_limit": wall(max(seconds, 0.01))},
    )
    if answer.x is None:
        return None
    chosen = packing.weighed(np.rint(answer.x))
    return chosen if chosen.excess <= allowed * (1 + 1e-6) else None
