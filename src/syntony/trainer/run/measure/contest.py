"""Compares policies on real steps, in turns: planned, measured, estimated. One rank's part of `overlap run`.

    profile -> a plan per policy, agreed -> round 0: steps of A, of B, ..  round 1: steps of A, of B, ..  -> a table

The turns make drifts of the machine's speed affect all policies. The last step of every plan is recorded on all ranks:
as a Perfetto trace with the plan above the measurement, and a Chakra trace for `syntony overlap explain`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from syntony.base.answer import show, tell_json
from syntony.base.text_table import aligned
from syntony.base.wording import time as duration
from syntony.overlap.formats.chakra import write_chakra
from syntony.overlap.formats.perfetto import Row, planned, write_trace
from syntony.overlap.predict.estimate import estimates
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan
from syntony.trainer.config import Config
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run import text
from syntony.trainer.run.measure.choosing import chosen, wanted
from syntony.trainer.run.measure.profile import profiled
from syntony.trainer.run.rank import Rank, World

Spans = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Contest:
    """policies: as --policy reads them; steps of each per round; folder: where traces go, "" for none."""

    policies: tuple[str, ...]
    steps: int
    rounds: int
    folder: str = ""
    json: bool = False

    def run(self, config: Config, mesh: Mesh, world: World) -> None:
        """One rank's part. Raises UserError on all ranks alike."""
        data = text.read(config.data, config.model.context)
        rank = Rank(config, mesh, world)
        batch = text.Loader(data, config, mesh)
        rate = config.optimizer.lr
        cost = profiled(rank, max(2, config.overlap.profile), batch, rate)
        plans = {name: chosen(wanted(name), rank, cost, batch, rate) for name in self.policies}
        seconds: dict[str, list[float]] = {name: [] for name in plans}
        kept: dict[str, Spans] = {}
        for _ in range(self.rounds):
            for name, plan in plans.items():
                measured = rank.measure(plan, self.steps, batch, rate)
                seconds[name] += measured.seconds
                kept[name] = {str(key): span for key, span in measured.spans.items()}
        found = [json.loads(blob) for blob in world.gather(json.dumps([seconds, kept]).encode())]
        if mesh.rank == 0:
            slowest = {
                name: [max(row) for row in zip(*(each[0][name] for each in found), strict=True)] for name in plans
            }
            self._tell(plans, cost, slowest)
            if self.folder:
                Path(self.folder).mkdir(parents=True, exist_ok=True)
            for name, plan in plans.items() if self.folder else ():
                self._draw(name, plan, cost, [each[1][name] for each in found], mesh)

    def _tell(self, plans: dict[str, Plan], cost: Cost, seconds: dict[str, list[float]]) -> None:
        rows: list[dict[str, Any]] = [
            {
                "policy": name,
                "planned": simulate(plan, cost).seconds,
                "measured": median(seconds[name]),
                "estimate": estimates(plan, cost)[0].seconds,
                "steps": seconds[name],
            }
            for name, plan in plans.items()
        ]
        rows.sort(key=lambda row: row["measured"])
        if self.json:
            tell_json({"command": "overlap run", "policies": rows})
            return
        steps = f"(medians of {len(rows[0]['steps'])} steps)"
        head = ("policy", "planned", "measured", "estimate", "efficiency", steps)
        cells = [
            (
                row["policy"], duration(row["planned"]), duration(row["measured"]), duration(row["estimate"]),
                f"{row['estimate'] / row['measured']:.1%}",
            )
            for row in rows
        ]  # fmt: skip
        show(aligned([head, *cells], "<>>>><", "  "))

    def _draw(self, name: str, plan: Plan, cost: Cost, spans: list[Spans], mesh: Mesh) -> None:
        stem = Path(self.folder) / name.replace(":", "_").replace(",", "_")
        first = min(begin for each in spans for begin, _ in each.values())
        rows = planned(simulate(plan, cost))
        merged: dict[OpKey, tuple[float, float]] = {}
        for number, each in enumerate(spans):
            device = mesh.place_of(number)["pp"]
            moved = {OpKey.parse(op): (begin - first, end - first) for op, (begin, end) in each.items()}
            rows.append(Row(f"rank {number}, measured", plan, device, moved))
            merged = moved | merged
        write_trace(rows, stem.with_suffix(".json"))
        write_chakra(plan, stem.with_suffix(".et"), merged)
