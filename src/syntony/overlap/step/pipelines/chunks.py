"""Which layers each chunk of a pipeline has: neighbours, in about equal times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.pipelines.pipelines import PIPELINES
from syntony.overlap.step.pipelines.tasks import places


def chunks_of(layers: Sequence[LayerSpec], layout: Layout) -> tuple[range, ...]:
    """The layers of each chunk of a layout's pipeline."""
    row = PIPELINES[layout.schedule]
    return split_over(layers, layout, places(layout.pp, row.chunks(layout.loops), row.valley))


def split_over(layers: Sequence[LayerSpec], layout: Layout, places: Sequence[int]) -> tuple[range, ...]:
    return split(layers, len(places), [layout.speeds[place] for place in places] if layout.speeds else ())


def split(layers: Sequence[LayerSpec], chunks: int, speeds: Sequence[float] = ()) -> tuple[range, ...]:
    """The layers of each chunk: neighbours, such that the longest chunk is as short as possible, and then the chunks'
    times are as equal as possible (least sum of squares). Dynamic programs over where a chunk begins and ends.

    speeds    relative, in operations, of the device of each chunk; empty: all equal
    """
    starts = [i for i, layer in enumerate(layers) if not layer.joined]
    if len(starts) < chunks:
        raise UserError(f"the model can be cut into {len(starts)} parts, which are too few for {chunks} chunks")
    units = [layers[a:b] for a, b in zip(starts, (*starts[1:], len(layers)), strict=True)]
    work = [sum(sum(layer.segments) * (1 + sum(layer.backward)) for layer in unit) + 1e-9 for unit in units]
    done = np.concatenate([[0.0], np.cumsum(work)])
    share = (done[None, :] - done[:, None]) / done[-1]  # of units [row, column)
    share[np.tril_indices(len(done))] = np.inf
    shares = [share / speed for speed in speeds or [1.0] * chunks]  # of the time
    _, most = _cuts(shares, np.maximum)
    cuts, _ = _cuts([np.where(each <= most * (1 + 1e-9), each**2, np.inf) for each in shares], np.add)
    bounds = [*(starts[cut] for cut in cuts), len(layers)]
    return tuple(range(a, b) for a, b in pairwise(bounds))


def _cuts(prices: Sequence[NDArray[np.float64]], join: np.ufunc) -> tuple[list[int], float]:
    """Where chunks begin such that their joined prices are least, and that price; the earliest among equals. `prices`
    of each chunk by where it begins and ends."""
    best, via = prices[0][0], list[NDArray[np.int64]]()
    for price in prices[1:]:
        through = join(best[:, None], price)
        via.append(through.argmin(axis=0))
        best = through.min(axis=0)
    cuts, end = list[int](), len(prices[0]) - 1
    for row in reversed(via):
        end = int(row[end])
        cuts.append(end)
    return [0, *reversed(cuts)], float(best[-1])
