"""The problem on the command line: a step (a model under a layout, or a file), a machine, a policy."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.arguments import count, exponent, pairs
from syntony.base.command import UserError
from syntony.base.wording import unknown
from syntony.overlap.predict.machine import MACHINES, machine_of, wires_of_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from syntony.overlap.step.cost import Cost
    from syntony.overlap.step.graph import Graph
    from syntony.overlap.step.layout import Layout
    from syntony.overlap.step.op_key import OpKey
    from syntony.overlap.step.plan import Plan

THIN = "--model thin --layout dp=4 --machine cpu:network=250e6"
"""A step for examples."""


@dataclass(frozen=True)
class Problem:
    """A step to plan or with a plan (`plan`), and the costs of its Ops."""

    title: str
    graph: Graph
    cost: Cost
    plan: Plan | None = None

    @property
    def layout(self) -> Layout:
        """The graph's layout. Raises UserError if it has none."""
        if self.graph.layout is None:
            raise UserError(f"{self.title} does not say how its ranks lie; a plan made with --model does")
        return self.graph.layout


def add_problem(parser: argparse.ArgumentParser, policy: bool = True) -> None:
    """Adds the arguments that describe the problem."""
    parser.add_argument("file", nargs="?", metavar="FILE", help="a plan (.json) or a trace (.et), instead of --model")
    parser.add_argument("--model", metavar="NAME", help="such as thin or gpt3-6.7b; `overlap list` lists all")
    parser.add_argument(
        "--layout",
        metavar="K=V,..",
        default="",
        help="sizes of parallelism, such as tp=8,pp=4,dp=4,zero=1,microbatches=8",
    )
    parser.add_argument("--batch", type=count, default=1, metavar="N", help="sequences per microbatch (default 1)")
    parser.add_argument("--speeds", type=_speeds, default=(), metavar="S,..",
                        help="of data ranks, relative to --machine: sequences are dealt to them by these")  # fmt: skip
    parser.add_argument(
        "--element",
        type=count,
        metavar="BYTES",
        help="bytes per element of weights and activations (default 2; on cpu 4)",
    )
    parser.add_argument("--skew", type=exponent, default=0.0, metavar="S",
                        help="tokens choose experts by Zipf's law, 1/k^S (default 0: uniformly)")  # fmt: skip
    parser.add_argument("--follow", action="store_true", help="experts have been placed by their demand (--skew)")
    add_machine(parser)
    if policy:
        parser.add_argument("--policy", metavar="NAME[:K=V,..][+..]",
                            help="policy that makes the plan (default: the file's own plan, else fifo)")  # fmt: skip


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the devices and their wires."""
    parser.add_argument("--machine", default="cpu", metavar="NAME[:K=V,..]",
                        help=f"{', '.join(MACHINES)}; override values with network=25e9 (default cpu)")  # fmt: skip
    parser.add_argument("--on", metavar="TOPOLOGY", help="take the cost of moving from its wires, such as dgx-a100:16")


def problem(options: argparse.Namespace) -> Problem:
    """The problem that the options describe. Raises UserError."""
    from syntony.overlap.step.cost import Cost

    machine = machine_of(options.machine)
    if (options.file is None) == (options.model is None):
        raise UserError("say what to plan: --model NAME --layout K=V,.. (see `syntony overlap list`), or a file")
    measured: Mapping[OpKey, float] = {}
    plan = None
    if options.file is not None:
        path = Path(options.file)
        if options.layout:
            raise UserError(f"--layout {options.layout}: {path} has its own")
        plan, measured = _planned(path)
        graph, title = plan.graph, str(path)
    else:
        graph, title = _generated(options)
    layout, size = graph.layout, _usual(graph)
    if layout is None:
        if options.on:
            raise UserError(f"--on {options.on}: {options.file} does not say how its ranks lie")
        return Problem(title, graph, Cost(machine.flops, {}, machine.update, measured), plan)
    level = cache(lambda layout: wires_of_layout(machine, layout, options.on, size))
    speed = options.speeds[_shares(options, layout)[1]] if options.speeds else 1.0
    cost = Cost(machine.flops * speed, level(layout), machine.update, measured, level=level)
    return Problem(title, graph, cost, plan)


def plan_of(asked: Problem, policy: str | None) -> Plan:
    """The plan in the file, or the one that the policy makes."""
    if policy is None and asked.plan is not None:
        return asked.plan
    from syntony.overlap.policies.search import chain_of, planned

    return planned(chain_of(policy or "fifo"), asked.graph, asked.cost)


def layout_of(text: str, option: str = "--layout") -> Layout:
    """`tp=8,pp=4,dp=4`, the value of an option. Raises UserError that lists the valid keys."""
    from syntony.overlap.step.layout import Clip, Layout

    kinds = {one.name: str(one.type) for one in fields(Layout)}
    found: dict[str, object] = {}
    for key, value in pairs(text, f"{option} {text}").items():
        kind = kinds.get(key)
        if kind is None:
            raise UserError(f"{option} {text}: {unknown('key', key, kinds)}")
        if kind == "int" and not (value.isascii() and value.isdecimal() and len(value) < 7):
            raise UserError(f"{option} {text}: {key} is {value!r}; it must be a whole number")
        if kind == "bool" and value not in ("on", "off"):
            raise UserError(f"{option} {text}: {key} is {value!r}; it must be on or off")
        if kind.startswith("tuple"):
            found[key] = _speeds_of(value, ":", f"{option} {text}: {key} is")
            continue
        if kind == "Clip" and value not in tuple(Clip):
            raise UserError(f"{option} {text}: {key} is {value!r}; it must be {', '.join(Clip)}")
        found[key] = {"int": int, "bool": "on".__eq__, "Clip": Clip}.get(kind, str)(value)  # type: ignore[operator]
    return Layout(**found)  # type: ignore[arg-type]


def _planned(path: Path) -> tuple[Plan, Mapping[OpKey, float]]:
    if path.suffix == ".et":
        from syntony.overlap.formats.chakra import read_chakra

        recorded = read_chakra(path)
        return recorded.plan, recorded.seconds
    from syntony.overlap.step.plan import Plan

    return Plan.read(path), {}


def _generated(options: argparse.Namespace) -> tuple[Graph, str]:
    from syntony.overlap.step.generate import generate
    from syntony.overlap.step.model_spec import model_named
    from syntony.overlap.step.models import Form, layers_of

    layout, batch, dealt = layout_of(options.layout), options.batch, ""
    if options.speeds:
        shares, busiest = _shares(options, layout)
        batch, dealt = shares[busiest], f", sequences {'+'.join(map(str, shares))}"
    layers = layers_of(
        model_named(options.model), layout, Form(batch, element_of(options), skew=options.skew, follow=options.follow)
    )
    return generate(layers, layout), f"{options.model}, {options.layout or 'one rank'}{dealt}"


def _shares(options: argparse.Namespace, layout: Layout) -> tuple[tuple[int, ...], int]:
    """Sequences of a microbatch for each data rank, and the slowest rank, whose step is planned."""
    from syntony.overlap.step.shares import last, shares_by_speed

    speeds = options.speeds
    if len(speeds) != layout.dp or layout.ep > 1 or layout.batch_parts > 1:
        said = ",".join(f"{speed:g}" for speed in speeds)
        raise UserError(
            f"--speeds {said}: there must be one for each of dp={layout.dp} data ranks, and no ep, grid or rotate"
        )
    shares = shares_by_speed(options.batch * layout.dp, speeds)
    return shares, last(shares, speeds)


def _speeds(text: str) -> tuple[float, ...]:
    try:
        return _speeds_of(text, ",", "")
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error).strip()) from None


def _speeds_of(text: str, between: str, what: str) -> tuple[float, ...]:
    """`1,1,0.5`. Raises UserError."""
    try:
        found = tuple(map(float, text.split(between)))
    except ValueError:
        found = ()
    if not found or not all(0 < speed < float("inf") for speed in found):
        raise UserError(f"{what} {text!r}; it must be numbers above 0, such as {between.join(('1', '1', '0.5'))}")
    return found


def element_of(options: argparse.Namespace) -> int:
    """Bytes of a weight: as given, else the machine's usual type."""
    return int(options.element or (4 if options.machine.startswith("cpu") else 2))


def _usual(graph: Graph) -> int:
    """The bytes of the median communication Op."""
    sizes = sorted(op.amount for op in graph if op.kind.moves)
    return max(2048, int(sizes[len(sizes) // 2])) if sizes else 1 << 20
