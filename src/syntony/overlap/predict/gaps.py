"""Idle time of a step's wires in the prediction of its Plan: room for transfers that may happen at any time.

compute   | forward 0 | forward 1 | backward 1 | backward 0 |
wires                                | reduce 1 |  | reduce 0 |
idle      |~~~~~~~~~~~|~~~~~~~~~~~|~~|             |~|
"""

from __future__ import annotations

import numpy as np

from syntony.overlap.predict.simulation import Timeline
from syntony.overlap.step.cost import Doubles
from syntony.overlap.step.op import COMPUTE
from syntony.overlap.step.op_key import OpKey


def idle_wires(timeline: Timeline, device: int) -> dict[OpKey, float]:
    """By compute op of a device: seconds of it in which nothing of the device's is on a link, in a steady step."""
    rows = [(op, row) for row, op in enumerate(timeline.plan.graph) if op.device == device]
    moving = np.array([row for op, row in rows if op.lane != COMPUTE], np.int64)
    begins, ends = _joined(timeline.start[moving], timeline.end[moving], timeline.seconds)
    found = {}
    for op, row in rows:
        if op.lane == COMPUTE:
            begin, end = float(timeline.start[row]), float(timeline.end[row])
            taken = np.minimum(ends, end) - np.maximum(begins, begin)
            found[op.key] = max(0.0, end - begin - float(taken[taken > 0].sum()))
    return found


def _joined(begins: Doubles, ends: Doubles, period: float) -> tuple[Doubles, Doubles]:
    """Merges overlapping intervals of the step, the previous and the next one."""
    begins, ends = (np.concatenate([times - period, times, times + period]) for times in (begins, ends))
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order]) if len(ends) else ends
    first = np.ones(len(begins), bool)
    first[1:] = begins[1:] > ends[:-1]
    last = np.append(first[1:], True) if len(first) else first
    return begins[first], ends[last]
