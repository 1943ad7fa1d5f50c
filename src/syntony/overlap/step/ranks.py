"""Ranks: which ones each group of a Layout has.

    rank = ((stage x dp + d) x cp + c) x tp + t           tp innermost, on the fastest wires; stages outermost

`ep` takes neighbours among a stage's dp x cp rows, `edp` the copies of an expert; sharded weights (`dp`) lie on
neighbours too, and `replicas` are their copies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.overlap.step.layout import Parallel

Ranks = NDArray[np.int64]


def members(layout: Parallel, lane: str) -> Ranks:
    """(stages, groups, members): the ranks of every group of the lane. `pp`: (1, groups, stages), a line each."""
    data, tp, pp = layout.dp * layout.cp, layout.tp, layout.pp
    ranks = np.arange(layout.ranks).reshape(pp, data, tp)
    if lane == "pp":
        return ranks.reshape(pp, -1).T[None]
    if lane == "tp":
        return ranks
    size = layout.sizes[{"replicas": "dp", "edp": "ep"}.get(lane, lane)]  # neighbours, and who is at one place of them
    rows = ranks.reshape(pp, data // size, size, tp)
    own = 1 if lane in ("replicas", "edp") else 2  # the axis along which a group lies
    return np.moveaxis(rows, own, -1).reshape(pp, -1, rows.shape[own])
