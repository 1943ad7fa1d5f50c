"""`syntony overlap simulate`: predicts a step."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.command import Command
from syntony.base.wording import rounded_size, time
from syntony.overlap.commands.predicted import predicted, row_of
from syntony.overlap.commands.problem import add_problem

if TYPE_CHECKING:
    from syntony.overlap.predict.simulation import Timeline


def _configure(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)


def _run(options: argparse.Namespace) -> int:
    from syntony.overlap.predict.estimate import estimates

    plan, timeline, title = predicted(options)
    best = estimates(plan, timeline.cost)[0]
    row = row_of(timeline)
    busy = [{"device": device, "lane": lane, "seconds": took} for (device, lane), took in sorted(timeline.busy.items())]
    lines = [
        f"{title}: {plan.policy} (predicted)",
        f"  step        {time(timeline.seconds)}",
        f"  estimate    {time(best.seconds)}: {best.witness}",
        f"  efficiency  {row['efficiency']:.1%}",
        f"  exposed     {time(row['exposed_seconds'])} of communication, on the device that has most",
        f"  memory      {rounded_size(row['peak_bytes'])} of activations, gathered weights and sharded gradients at "
        "most",
        f"  busy        {', '.join(_busy(timeline))}",
    ]
    differs = plan.graph.differs
    lines += [f"  {differs}"] if differs else []
    tell(options, {"title": title, "policy": plan.policy, **row, "busy": busy, "differs": differs}, lines)
    return 0


def _busy(timeline: Timeline) -> list[str]:
    lanes: dict[str, float] = {}
    for (_, lane), took in timeline.busy.items():
        lanes[lane] = max(lanes.get(lane, 0.0), took)
    return [f"{lane} {took / timeline.seconds:.0%}" for lane, took in sorted(lanes.items())]


_GPT = "--model gpt3-6.7b --layout tp=8,pp=4,dp=4,zero=1,microbatches=8 --on dgx-a100:16 --machine a100"

COMMAND = Command(
    ("overlap", "simulate"),
    "predict a step's time, the least it could take, and its memory",
    f"syntony overlap simulate {_GPT}",
    _configure,
    _run,
)
