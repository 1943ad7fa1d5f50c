"""Ranks: the members of each group of a Layout.

    rank = ((stage x dp + d) x cp + c) x tp + t           tp innermost, on the fastest wires; stages outermost

`ep` takes neighbours among a stage's dp x cp rows, `edp` the copies of an expert; sharded weights (`dp`) are also on
neighbours, and `replicas` are their copies. Islands (`Layout.apart`) are blocks of data ranks; all of these are within
one. If each layer has a copy on the device at the other end of the pipeline (Layout.copies), both are in its `dp`, side
by side.
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
    if lane in ("row", "column"):
        grid = ranks.reshape(pp, data, layout.side, layout.side)
        return (grid if lane == "row" else grid.swapaxes(2, 3)).reshape(pp, -1, layout.side)
    if lane == "dp" and layout.copies > 1:
        pairs = np.stack([ranks[: pp // 2], ranks[::-1][: pp // 2]], axis=2)  # (pairs, data, copies, tp)
        return pairs.reshape(pp // 2, 2 * data, tp).swapaxes(1, 2)
    if lane in ("cp", "heads", "outer"):
        sizes = layout.sizes
        grid = ranks.reshape(pp, layout.dp, sizes["outer"], sizes["cp"], sizes["heads"], tp)
        grid = np.moveaxis(grid, ("outer", "cp", "heads").index(lane) + 2, -1)
        return grid.reshape(pp, -1, grid.shape[-1])
    if lane in ("ep_far", "ep_near"):
        boxes = ranks.reshape(pp, data // layout.ep, layout.ep // layout.relay, layout.relay, tp)
        boxes = np.moveaxis(boxes, 2 if lane == "ep_far" else 3, -1)
        return boxes.reshape(pp, -1, boxes.shape[-1])
    islands = layout.sizes["islands"]
    inside = data // islands
    size = inside if lane == "islands" else layout.sizes[{"replicas": "dp", "edp": "ep"}.get(lane, lane)]
    rows = ranks.reshape(pp, islands, inside // size, size, tp)
    own = {"islands": 1, "replicas": 2, "edp": 2}.get(lane, 3)  # the axis of a group: at one place, or neighbours
    return np.moveaxis(rows, own, -1).reshape(pp, -1, rows.shape[own])


def groups_at(layout: Parallel, lane: str, device: int) -> Ranks:
    """(groups, members): the groups that the lane's ops of a device are for. Of a pair of devices with copies, which
    are in the same groups, only the first has them here, so that a sum over devices counts each group once."""
    stages = members(layout, lane)
    found: Ranks = stages[device : device + 1].reshape(-1, stages.shape[-1])
    return found
