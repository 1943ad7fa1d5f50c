"""The bundled trainer as a contender: its own ranks, plan and lanes, one `Rank.step` a step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from syntony.overlap.policies.search import planned
from syntony.overlap.predict.estimate import estimates
from syntony.overlap.predict.explain import Making, explain
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.predict.traffic import traffic
from syntony.overlap.step.cost import Cost
from syntony.trainer.config import Config, Data, Model, Optimizer, Parallel, Run
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run.measure.choosing import Search, chosen, wanted
from syntony.trainer.run.measure.profile import profiled
from syntony.trainer.run.rank import Rank, World
from syntony.trainer.run.text import parts_of

RATE = 1e-5
_PROFILES: dict[str, Cost] = {}  # by configuration: contenders that differ in policy only are planned with equal costs
_OFF = {"clip": "off"}


def configured(
    backend: str,
    model: Mapping[str, Any],
    parallel: Mapping[str, Any],
    data: Mapping[str, Any],
    optimizer: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration that has these sections."""
    made = replace(Run(**(run or {})), backend=backend)
    return Config(Model(**model), Data(**data), Optimizer(**(optimizer or _OFF)), Parallel(**parallel), run=made)


def microbatches(config: Config, mesh: Mesh) -> list[tuple[Tensor, Tensor]]:
    """A rank's tokens and targets of every step: random bytes, the same for every contender and layout."""
    turns, shape = config.data.microbatches // config.parallel.dp, (config.data.rows, config.model.context)
    first = mesh.place["dp"] * turns
    tokens = [torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(first + m)) for m in range(turns)]
    return [(part, part) for each in tokens for part in parts_of(each, config, mesh)]


class Trainer:
    """`model`, `parallel`, .. are sections of the trainer's configuration. `policy`: as --policy reads it.

    Tells the plan's simulated seconds, the bytes that rank 0 sends by it, the estimate, the seconds of computing with
    which it was planned, what changes would save (`explain`), and its last loss.
    """

    def __init__(
        self,
        backend: str,
        policy: str,
        profile: int = 3,
        **sections: Mapping[str, Any],
    ) -> None:
        config = configured(backend, **sections)
        mesh = Mesh(config.parallel, dist.get_rank())
        self.rank = Rank(config, mesh, World(mesh, 120.0, backend))
        self.batch = microbatches(config, mesh)
        self.losses: list[float] = []
        known = repr((config, profile))
        if known not in _PROFILES:
            _PROFILES[known] = profiled(self.rank, profile, lambda step: self.batch, RATE)
        self.cost = _PROFILES[known]
        self.want = wanted(policy)
        self.rank.begin(chosen(self.want, self.rank, self.cost, lambda step: self.batch, RATE))

    def step(self) -> None:
        self.losses = self.rank.step(self.batch, RATE)

    def finish(self) -> Mapping[str, Any]:
        self.rank.rest()
        plan, mine = self.rank.plan, json.dumps(mean(self.losses) if self.losses else None)
        found = [json.loads(blob) for blob in self.rank.world.gather(mine.encode())]  # of pipelines one stage knows it
        timeline = simulate(plan, self.cost)
        made = None
        if not isinstance(self.want, Search):
            made = Making(self.rank.recorded(), partial(planned, self.want))
        return {
            "simulated": timeline.seconds,
            "sends": sum(int(matrix[0].sum()) for matrix in traffic(plan, self.rank.config.layout).values()),
            "estimate": estimates(plan, self.cost)[0].seconds,
            "compute": max(seconds for (_, lane), seconds in timeline.busy.items() if lane == "compute"),
            "policy": plan.policy,
            "changes": {change.what: change.saving for change in explain(timeline, 1, made).changes},
            "loss": next(loss for loss in found if loss is not None),
        }

    def close(self) -> None:
        self.rank.close()
