"""Islands: groups of ranks with slow links between them, which train apart and exchange what they have changed.

    island 0   step step step  d0 ─┐        step step step ..          d    what its weights have changed by since the
    island 1   step step step  d1 ─┴─ sum ─▶ use            ..              last exchange
                                             `- at once (delay 0), or so many exchanges later, while training goes on

An island's weights are always those that all islands have agreed on, plus what it has changed itself and not exchanged
yet. So of other islands it misses at most the last `delay` exchanges, always as many, which makes results reproducible
(Wave Synchronous Parallel of Park et al., HetPipe, USENIX ATC 2020, where a wave is the microbatches of a step). With
`nesterov`, the agreed weights change with momentum (Douillard et al., DiLoCo, arXiv 2311.08105).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from syntony.overlap.run.plan_runner import PlanRunner
from syntony.overlap.step.layout import Parallel
from syntony.overlap.step.op_key import OpKey
from syntony.trainer.config import Optimizer
from syntony.trainer.parallel.data_parallel.sharded_layer import Shard


@dataclass
class _Exchanged:
    """What one op exchanges: of these shards the part that this rank updates.

    agreed      weights that all islands have
    own         by exchange under way, what this island has changed, and
    sums        the memory in which changes of all islands are summed
    momentum    of `agreed`; None: no exchange has ended, or there is none
    """

    shards: Sequence[Shard]
    agreed: Tensor
    own: deque[Tensor] = field(default_factory=deque)
    sums: deque[Tensor] = field(default_factory=deque)
    momentum: Tensor | None = None

    def weights(self) -> Tensor:
        """The agreed ones, and what this island has changed in exchanges under way."""
        found = self.agreed.clone()
        for own in self.own:
            found += own
        return found

    def set(self, weights: Tensor) -> None:
        """Replaces this rank's weights."""
        for shard, part in zip(
            self.shards, torch.split(weights, [len(shard.updated) for shard in self.shards]), strict=True
        ):
            shard.updated.copy_(part)


class Islands:
    """One rank's exchanges with the ranks at its place in the other islands.

    place    of its island among them
    share    of its island in the step's data: how much its changes count
    """

    def __init__(self, layout: Parallel, place: int, share: float, runner: PlanRunner, optimizer: Optimizer) -> None:
        self.delay, self._local, self._count = layout.delay, layout.local, layout.sizes["islands"]
        self._place, self._share, self._runner = place, share, runner
        self._rate = optimizer.outer_lr
        self._momentum = optimizer.outer_momentum if layout.outer == "nesterov" else 0.0
        self._average = layout.outer == "average"
        self._exchanged: dict[OpKey, _Exchanged] = {}
        self._alone = 0  # steps since the last exchange

    def watch(self, key: OpKey, shards: Sequence[Shard]) -> None:
        """This op will exchange these shards, whose weights all islands have."""
        self._exchanged[key] = _Exchanged(shards, torch.cat([shard.updated for shard in shards]))

    def step(self) -> bool:
        """Called when a step begins that will change weights: whether an exchange follows it."""
        self._alone = (self._alone + 1) % self._local
        return not self._alone

    def send(self, key: OpKey) -> None:
        """Begins an exchange of what has changed. With a delay, uses the one so many before."""
        one = self._exchanged[key]
        changed = torch.cat([shard.updated for shard in one.shards]) - one.weights()
        if self.delay and len(one.own) == self.delay:
            self._runner.wait(key, behind=self.delay - 1)
            self._use(one)
            one.set(one.weights() + changed)
        one.own.append(changed)
        one.sums.append(changed * self._share)
        self._runner.ready(key, one.sums[-1], one.sums[-1].view(self._count, -1)[self._place])

    def came(self, key: OpKey) -> None:
        """The oldest exchange under way has ended: uses it at once."""
        one = self._exchanged[key]
        self._use(one)
        one.set(one.weights())

    def rest(self) -> None:
        """Makes all islands' weights the same: exchanges what is left, and uses everything. Collective."""
        if self._alone:
            self._alone = 0
            for key in self._exchanged:
                self.send(key)
        for key, one in self._exchanged.items():
            self._runner.wait(key)
            while one.own:
                self.came(key)

    def _use(self, one: _Exchanged) -> None:
        mean = one.sums.popleft()
        one.own.popleft()
        if self._average:
            one.agreed += mean
            return
        one.momentum = mean.clone() if one.momentum is None else one.momentum.mul_(self._momentum).add_(mean)
        one.agreed.add_(mean, alpha=self._rate).add_(one.momentum, alpha=self._rate * self._momentum)
