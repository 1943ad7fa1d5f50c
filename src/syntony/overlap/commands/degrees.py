"""`syntony overlap degrees`: a tensor-parallel degree for each layer, simulated."""

from __future__ import annotations

import argparse

from syntony.base.answer import tell
from syntony.base.arguments import count, size
from syntony.base.command import Command
from syntony.base.text_table import aligned
from syntony.base.wording import rounded_size, time
from syntony.overlap.commands.problem import add_machine, element_of


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="NAME", help="such as gpt2-xl; `overlap list` lists all")
    parser.add_argument("--ranks", type=count, default=8, metavar="N", help="that compute all layers (default 8)")
    parser.add_argument(
        "--sequences", type=count, metavar="N", help="of a sub-batch on all ranks (default: one a rank)"
    )
    parser.add_argument("--batches", type=count, default=2, metavar="N", help="sub-batches of a step (default 2)")
    parser.add_argument(
        "--memory", type=size, metavar="BYTES", help="of a device, such as 24G (default: the machine's)"
    )
    parser.add_argument("--recompute", action="store_true", help="activations are recomputed instead of kept")
    parser.add_argument("--element", type=count, metavar="BYTES", help="bytes per element (default 2; on cpu 4)")
    add_machine(parser)


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.overlap.layouts.degrees import POLICY, Planner, Task
    from syntony.overlap.predict.machine import machine_of, wires_of_layout
    from syntony.overlap.step.cost import Cost
    from syntony.overlap.step.layout import Layout
    from syntony.overlap.step.model_spec import model_named

    machine = machine_of(options.machine)

    def costs(layout: Layout) -> Cost:
        return Cost(machine.flops, wires_of_layout(machine, layout, options.on), machine.update)

    task = Task(
        model_named(options.model), options.ranks, options.sequences or options.ranks, costs,
        float(options.memory or machine.holds), options.batches, element_of(options), options.recompute,
    )  # fmt: skip
    with progress("planning"):
        planner = Planner(task)
        best = planner.chosen()
        others = [one for policy in (POLICY, "fifo") for one in planner.uniform(policy)]
    rows = [
        (str(one), one.policy, time(one.seconds), rounded_size(int(one.memory)), f"{one.seconds / best.seconds:.2f}")
        for one in (best, *others)
    ]
    lines = [
        f"{options.model} on {options.ranks} ranks, degrees by layer, first to last (simulated)",
        *aligned([("degrees", "policy", "step", "memory", "over best"), *rows], "<<>>>", "  "),
        f"degrees {', '.join(map(str, planner.degrees))} can cut the model; those that do not fit into "
        f"{rounded_size(int(task.memory))} are left out",
    ]
    told = [{**vars(one), "degrees": list(one.degrees)} for one in (best, *others)]
    tell(options, {"title": options.model, "rows": told}, lines)
    return 0


COMMAND = Command(
    ("overlap", "degrees"),
    "choose a tensor-parallel degree for each layer, as Oases' planner does",
    "syntony overlap degrees --model gpt2-xl --ranks 5 --machine a100:box=10e9 --memory 12G",
    _configure,
    _run,
)
