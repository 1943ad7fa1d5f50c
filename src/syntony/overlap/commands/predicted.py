"""Predictions of steps: the requested plan, and policies as rows of a table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from syntony.base.text_table import aligned
from syntony.base.wording import rounded_size, time
from syntony.overlap.commands.problem import plan_of, problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syntony.overlap.predict.simulation import Timeline
    from syntony.overlap.step.plan import Plan


def predicted(options: argparse.Namespace) -> tuple[Plan, Timeline, str]:
    """The plan of the requested step, its prediction, and its name."""
    from syntony.base.progress import progress
    from syntony.overlap.predict.simulation import simulate

    with progress("planning"):
        asked = problem(options)
        plan = plan_of(asked, options.policy)
        return plan, simulate(plan, asked.cost), asked.title


def row_of(timeline: Timeline) -> dict[str, Any]:
    """The reported figures of a plan: seconds, bytes, and why it can only be simulated."""
    from syntony.overlap.predict.estimate import estimates
    from syntony.overlap.step.op import COMPUTE

    estimate = estimates(timeline.plan, timeline.cost)[0].seconds
    device = {op.key: op.device for op in timeline.plan.graph}
    exposed = dict.fromkeys(timeline.plan.graph.devices, 0.0)
    for key, took in timeline.exposed.items():
        exposed[device[key]] += took
    moved = any(lane != COMPUTE for _, lane in timeline.busy)
    return {
        "seconds": timeline.seconds,
        "estimate": estimate,
        "efficiency": estimate / timeline.seconds if timeline.seconds else 1.0,
        "exposed_seconds": max(exposed.values()) if moved else 0.0,
        "peak_bytes": max(timeline.peak.values(), default=0.0),
        "simulated_only": timeline.plan.simulated,
    }


def policy_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows of `row_of`, each with its `policy`; `gain` is over the slowest."""
    slowest = max((row["seconds"] for row in rows), default=0.0)
    cells = [
        (
            row["policy"], time(row["seconds"]), time(row["estimate"]), f"{row['efficiency']:.1%}",
            time(row["exposed_seconds"]), rounded_size(row["peak_bytes"]), f"{slowest / row['seconds']:.2f}x",
            "simulated only" if row["simulated_only"] else "",
        )
        for row in rows
    ]  # fmt: skip
    head = ("policy", "step", "estimate", "efficiency", "exposed", "memory", "gain")
    return aligned([head, *cells], "<>>>>>><", "  ")
