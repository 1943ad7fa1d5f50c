"""The bundled trainer as a contender: its own ranks, plan and lanes, one `Rank.step` a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from collectives.overlap.bounds import bounds
from collectives.overlap.cost import Cost
from collectives.overlap.plan import Plan
from collectives.overlap.policies import policy as policy_named
from collectives.overlap.simulation import simulate
from collectives.trainer.config import Config, Data, Model, Optimizer, Parallel, Run
from collectives.trainer.mesh import Mesh
from collectives.trainer.profile import profiled
from collectives.trainer.rank import Rank, World

_RATE = 1e-5


class Trainer:
    """`model`, `parallel`, .. are sections of the trainer's configuration. A policy of "" is the recorded order.

    Tells the plan's simulated seconds, its bound, and the seconds of computing and of communication that it was
    planned with.
    """

    def __init__(
        self,
        backend: str,
        policy: str,
        model: Mapping[str, Any],
        parallel: Mapping[str, Any],
        data: Mapping[str, Any],
        optimizer: Mapping[str, Any] | None = None,
        run: Mapping[str, Any] | None = None,
        knobs: Mapping[str, Any] | None = None,
        profile: int = 3,
    ) -> None:
        config = Config(
            Model(**model),
            Data(**data),
            Optimizer(**(optimizer or {"clip": "off"})),
            Parallel(**parallel),
            run=replace(Run(**(run or {})), backend=backend),
        )
        mesh = Mesh(config.parallel, dist.get_rank())
        self.rank = Rank(config, mesh, World(mesh, 120.0, backend))
        turns = config.data.microbatches // config.parallel.dp
        shape = config.data.rows, config.model.context // config.parallel.cp
        generator = torch.Generator().manual_seed(dist.get_rank())
        self.batch: list[tuple[Tensor, Tensor]] = [
            (tokens, tokens) for tokens in (torch.randint(0, 256, shape, generator=generator) for _ in range(turns))
        ]
        self.cost: Cost = profiled(self.rank, profile, lambda step: self.batch, _RATE)
        made = ""
        if dist.get_rank() == 0:
            made = policy_named(policy, **(knobs or {})).plan(self.rank.recorded(), self.cost).text
        self.rank.begin(Plan.from_text(self.rank.world.tell(made)))

    def step(self) -> None:
        self.rank.step(self.batch, _RATE)

    def finish(self) -> Mapping[str, Any]:
        self.rank.rest()
        plan = self.rank.plan
        timeline = simulate(plan, self.cost)
        return {
            "simulated": timeline.seconds,
            "bound": bounds(plan, self.cost)[0].seconds,
            "compute": max(seconds for (_, lane), seconds in timeline.busy.items() if lane == "compute"),
            "policy": plan.policy,
        }

    def close(self) -> None:
        self.rank.close()
