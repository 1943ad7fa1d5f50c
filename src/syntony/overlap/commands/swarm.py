"""`syntony overlap swarm`: stages of a pipeline that are served by several devices of unlike speed, simulated."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.arguments import count
from syntony.base.command import Command, UserError
from syntony.base.text_table import aligned
from syntony.base.wording import time
from syntony.overlap.commands.problem import add_machine, element_of

if TYPE_CHECKING:
    from syntony.overlap.step.swarm import Swarm


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="NAME", help="such as gpt2; `overlap list` lists all")
    about = "by stage, the relative speeds of its devices, such as 3:1,1:1"
    parser.add_argument("--stages", required=True, metavar="S:S:..,..", help=about)
    parser.add_argument("--microbatches", type=count, default=16, metavar="N", help="of a step (default 16)")
    parser.add_argument("--batch", type=count, default=1, metavar="N", help="sequences per microbatch (default 1)")
    parser.add_argument("--element", type=count, metavar="BYTES", help="bytes per element (default 2; on cpu 4)")
    add_machine(parser)


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.overlap.predict.machine import machine_of
    from syntony.overlap.predict.swarm import predicted
    from syntony.overlap.step.layout import Layout
    from syntony.overlap.step.model_spec import model_named
    from syntony.overlap.step.models import Form, layers_of

    if options.on:
        raise UserError(f"--on {options.on}: the devices of a swarm reach each other at the machine's network rate")
    machine, swarm = machine_of(options.machine), _swarm(options.stages)
    layers = layers_of(model_named(options.model), Layout(), Form(options.batch, element_of(options)))
    with progress("simulating"):
        rows = predicted(layers, swarm, options.microbatches, machine)
    cells = [
        (row.name, str(row.swarm), time(row.seconds), time(row.bound), f"{row.bound / row.seconds:.1%}") for row in rows
    ]
    first = rows[0]
    lines = [
        f"{options.model}, {options.microbatches} microbatches (simulated)",
        *aligned([("microbatches", "stages", "step", "bound", "efficiency"), *cells], "<<>>>", "  "),
        f"a microbatch computes {time(first.computing)} in a stage, and moves in {time(first.moving)} to the next one",
    ]
    told = [{**vars(row), "swarm": str(row.swarm)} for row in rows]
    tell(options, {"title": options.model, "rows": told}, lines)
    return 0


def _swarm(text: str) -> Swarm:
    """`3:1,1:1`. Raises UserError."""
    from syntony.overlap.step.swarm import Swarm

    try:
        return Swarm(tuple(tuple(float(speed) for speed in stage.split(":")) for stage in text.split(",")))
    except ValueError:
        raise UserError(f"--stages {text}: it must be speeds above 0, such as 3:1,1:1") from None


COMMAND = Command(
    ("overlap", "swarm"),
    "simulate stages that are served by several devices of unlike speed",
    "syntony overlap swarm --model thin --stages 3:1,1:1:1 --machine cpu:network=250e6",
    _configure,
    _run,
)
