"""Assigns sequences to data ranks by their measured speeds (overlap/step/shares.py)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from syntony.overlap.step.shares import shares_by_speed
from syntony.trainer.config import Config
from syntony.trainer.run.measure.profile import plain
from syntony.trainer.run.rank import Rank
from syntony.trainer.run.text import Microbatches

_STEPS = 2


def by_speed(rank: Rank, batch: Callable[[int], Microbatches]) -> Config:
    """The rank's configuration, with shares for which all finish together, after some steps with equal shares whose
    weights are discarded. Among ranks that compute the same microbatches, the slowest counts. Collective."""
    config = rank.config
    measured = rank.measure(plain(rank.recorded()), _STEPS, batch, config.optimizer.lr)
    spent = sum(span.end - span.begin for span in measured.computed if span.key.microbatch >= 0)  # no meetings
    seconds: dict[int, float] = defaultdict(float)
    for blob in rank.world.gather(json.dumps([rank.mesh.place["dp"], spent]).encode()):
        place, found = json.loads(blob)
        seconds[place] = max(seconds[place], found)
    shares = shares_by_speed(config.data.rows * len(seconds), [1 / seconds[place] for place in sorted(seconds)])
    return replace(config, data=replace(config.data, shares=shares))
