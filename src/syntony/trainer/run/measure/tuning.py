"""Tunes knobs during training by the times of real steps: a Gaussian process proposes, and all ranks follow.

    [steps as requested] [steps with other knobs] [..] .. [the fastest, to the end]

Weights are bitwise the same whatever is tried, as under any plan.

Peng et al., ByteScheduler (SOSP 2019), section 5.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from statistics import median

from syntony.base.command import UserError
from syntony.overlap.policies.bayes import Bayes
from syntony.overlap.policies.policy import Policy
from syntony.overlap.policies.search import describe, planned
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.plan import Plan
from syntony.trainer.run.rank import Rank

_TRIALS = 12


class Tuning:
    """Tunes the knobs of the last policy of a chain. Every rank has one, and makes the same calls.

    steps    of each setting; the first is not counted, because it starts from an idle state
    """

    def __init__(self, rank: Rank, chain: Sequence[Policy], cost: Cost, steps: int) -> None:
        *self._before, policy = chain
        self._rank, self._cost, self._steps = rank, cost, steps
        self._bayes = Bayes(policy, random.Random(rank.config.run.seed))
        self._now = self._bayes.pick()
        self._took: list[float] = []
        self._trials = 0

    def after(self, seconds: float) -> tuple[str, Plan] | None:
        """Called after every step: the policy to switch to, if any. Collective while it still tries."""
        if self._trials < 0:
            return None
        self._took.append(seconds)
        if len(self._took) < self._steps:
            return None
        world, mine = self._rank.world, median(self._took[1:])
        self._took.clear()
        slowest = max(float(json.loads(blob)) for blob in world.gather(json.dumps(mine).encode()))
        found = ("", "", False)
        if self._rank.mesh.rank == 0:
            found = self._next(slowest)
        said, text, ended = json.loads(world.tell(json.dumps(found)))
        self._trials = -1 if ended else self._trials + 1
        return (said, Plan.from_text(text)) if text else None

    def _next(self, seconds: float) -> tuple[str, str, bool]:
        """The next policy and its plan, both empty to keep this one; and whether that is final."""
        before = self._now
        self._bayes.tell(seconds)
        while self._trials < _TRIALS - 1 and (one := self._bayes.pick()) is not None:
            try:
                plan = self._plan(one)
            except UserError:
                self._bayes.tell(math.inf)
                continue
            self._now = one
            return describe(one), plan.text, False
        best = self._bayes.best
        return ("", "", True) if best is before else (describe(best), self._plan(best).text, True)

    def _plan(self, policy: Policy) -> Plan:
        return planned((*self._before, policy), self._rank.recorded(), self._cost)
