"""`syntony overlap plan`: the order of operations in a training step."""

from __future__ import annotations

import argparse

from syntony.base.answer import tell
from syntony.base.command import Command
from syntony.base.outputs import add_output, wrote
from syntony.overlap.commands.predicted import predicted
from syntony.overlap.commands.problem import THIN, add_problem


def _configure(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    add_output(parser, "-o", "--output", type=str, metavar="F.json", help="write the plan")


def _run(options: argparse.Namespace) -> int:
    plan, timeline, title = predicted(options)
    if options.output:
        plan.write(options.output)
    lines = [f"{title}: plan of {plan.policy}, {plan.hash[:16]}"]
    for (device, lane), keys in sorted(plan.orders.items()):
        first = ", ".join(map(str, keys[:6])) + (f", .. {len(keys)} ops" if len(keys) > 6 else "")
        lines.append(f"  device {device} {lane:<8} {first}")
    lines += [wrote(options.output)] if options.output else []
    told = {"policy": plan.policy, "hash": plan.hash, "ops": len(plan.graph), "knobs": dict(plan.knobs)}
    tell(options, told | {"seconds": timeline.seconds, "file": options.output}, lines)
    return 0


COMMAND = Command(
    ("overlap", "plan"),
    "show what each device does in a training step, in order",
    f"syntony overlap plan {THIN} --policy bytescheduler:slice=1M -o plan.json",
    _configure,
    _run,
)
