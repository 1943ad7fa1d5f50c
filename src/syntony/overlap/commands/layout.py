"""`syntony overlap layout`: finds how to lay out a model on these ranks."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell
from syntony.base.arguments import count, pairs, seconds
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.base.text_table import aligned
from syntony.overlap.commands.problem import add_machine, element_of
from syntony.overlap.predict.machine import cost_of, machine_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from syntony.overlap.layouts.search import Choice, Found, Reason
    from syntony.overlap.layouts.space import Candidate, Question
    from syntony.overlap.layouts.wiring import Round
    from syntony.overlap.predict.machine import Machine
    from syntony.overlap.step.cost import Cost
    from syntony.overlap.step.layout import Layout
    from syntony.topologies.topology import Topology

_ROUNDS = 3  # of wiring and search, among which --timeout is divided
_WIRED = 256  # ranks: more make too many pairs
_SIZES = ("tp", "cp", "pp", "ep", "dp", "zero", "batch")
_PART = {
    "tp": "more moves between its tp ranks",
    "cp": "more moves between its cp ranks",
    "ep": "more moves between its ep ranks",
    "compute": "more is computed by the busiest device",
    "bubble": "devices wait longer for each other",
    "gradients": "sums of gradients are exposed",
    "weights": "gathers of weights are exposed",
    "update": "the optimizer takes longer",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, metavar="NAME", help="such as gpt3-175b; `overlap list` lists all")
    parser.add_argument(
        "--ranks", type=count, metavar="N", help="number of devices (default: all of the topology --on)"
    )
    parser.add_argument("--sequences", type=count, metavar="N",
                        help="sequences per step, over all ranks (default: one per rank)")  # fmt: skip
    parser.add_argument("--memory", type=_bytes, metavar="BYTES",
                        help="memory per device that a step may use, such as 80G (default: the machine's)")  # fmt: skip
    parser.add_argument(
        "--element",
        type=count,
        metavar="BYTES",
        help="bytes per element of weights and activations (default 2; on cpu 4)",
    )
    parser.add_argument("--where", metavar="K=V,..", default="", help="consider only such layouts, such as tp=8,zero=1")
    add_machine(parser)
    parser.add_argument("--wire", type=count, metavar="PORTS",
                        help="also choose the circuits of optical switches with PORTS ports a rank, each as fast as "
                        "the machine's network (TopoOpt)")  # fmt: skip
    parser.add_argument("--timeout", type=seconds, default=60.0, metavar="S",
                        help="time limit, on one core; the best layouts found are shown (default 60)")  # fmt: skip
    parser.add_argument("--top", type=count, default=5, metavar="N", help="number of layouts shown (default 5)")
    add_output(parser, "-o", "--output", type=str, metavar="F.json", help="write the plan of the best layout")


def run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.base.wording import time
    from syntony.overlap.layouts.search import search
    from syntony.overlap.layouts.space import Question
    from syntony.overlap.step.model_spec import model_named
    from syntony.topologies.parse import parse

    machine = machine_of(options.machine)
    ranks = options.ranks or (parse(options.on).ranks if options.on else 0)
    if not ranks:
        raise UserError("say how many ranks there are: --ranks 1024, or a topology: --on dgx-h100:128")
    asked = Question(
        model_named(options.model), ranks, options.sequences or ranks, options.memory or machine.holds,
        element_of(options), box=int(machine.ranks),
    )  # fmt: skip
    if options.wire and options.on:
        raise UserError(f"--on {options.on} is a wiring, and --wire {options.wire} chooses one: give one of the two")
    among = _among(options.where)

    def search_on(topology: Topology | None, timeout: float = options.timeout) -> Found:
        exact = _exact(machine, topology) if topology else None
        return search(asked, lambda layout: cost_of(machine, layout), exact, timeout, among=among)

    rounds: tuple[Round, ...] = ()
    with progress("layouts", options.timeout):
        if options.wire:
            rounds = _alternated(machine, ranks, options.wire, lambda on: search_on(on, options.timeout / _ROUNDS))
        found = rounds[-1].found if rounds else search_on(parse(options.on) if options.on else None)
    if options.output:
        found.choices[0].timeline.plan.write(options.output)
    title = f"{options.model} on {options.on or f'{ranks} x {options.machine}'}, {asked.sequences} sequences a step"
    told = {
        "title": title,
        "tried": found.tried,
        "fitting": found.fitting,
        "layouts": [_told(asked, one) for one in found.choices[: options.top]],
        "reasons": [vars(reason) for reason in found.reasons],
        "file": options.output,
    }
    lines = _lines(title, asked, found, options.top)
    if rounds:
        told["rounds"] = [one.seconds for one in rounds]
        told["circuits"] = [[link.src, link.dst, float(link.bandwidth)] for link in rounds[-1].topology.links]
        lines += ["", f"wired {len(rounds)} times: {', then '.join(time(one.seconds) for one in rounds)} a step"]
    tell(options, told, [*lines, *([wrote(options.output)] if options.output else [])])
    return 0


def _alternated(machine: Machine, ranks: int, ports: int, search_on: Callable[[Topology], Found]) -> tuple[Round, ...]:
    """Layouts and circuits in turn. Raises UserError if the ports cannot be wired."""
    from fractions import Fraction

    from syntony.overlap.layouts.wiring import alternate
    from syntony.topologies.families.optical.optical import wired_for

    if not 2 <= ranks <= _WIRED or ports > 64:
        raise UserError(f"--wire {ports}: it takes 2 to {_WIRED} ranks (here {ranks}) and at most 64 ports")
    rate = Fraction(machine.network)
    return alternate(ranks, lambda demand: wired_for(demand, f"wired:{ranks}", ports, rate, machine.alpha), search_on)


def _exact(machine: Machine, topology: Topology) -> Callable[[Layout], Cost]:
    """Costs on the wires of the topology, for Ops of some megabytes."""
    from syntony.overlap.predict.wires import Known, wires_of

    known: Known = {}
    return lambda layout: replace(
        cost_of(machine, layout), wires=wires_of(topology, layout, 16 << 20, known=known).wires
    )


def _bytes(text: str) -> float:
    """Parses bytes with powers of 1000, as device memory is sold."""
    from syntony.base.arguments import size

    return float(size(text if text[-1:].isdigit() or text[-1:] in "bB" else f"{text}B"))


def _among(text: str) -> Any:
    """A filter of candidates. Raises UserError for a key that layouts do not have."""
    from syntony.base.wording import unknown
    from syntony.overlap.step.layout import Layout

    wanted = pairs(text, f"--where {text}")
    known = [*vars(Layout()), "batch"]
    for key in wanted:
        if key not in known:
            raise UserError(f"--where {text}: {unknown('key', key, known)}")

    def fits(candidate: Candidate) -> bool:
        has = {**vars(candidate.layout), "batch": candidate.batch}
        return all(str(has[key]) == value for key, value in wanted.items())

    return fits


def _told(asked: Question, choice: Choice) -> dict[str, Any]:
    from syntony.overlap.layouts.search import named
    from syntony.overlap.layouts.space import Candidate
    from syntony.overlap.predict.estimate import estimates

    estimate = estimates(choice.timeline.plan, choice.timeline.cost)[0]
    tokens = asked.sequences * asked.model.seq
    return {
        "layout": named(Candidate(choice.layout, choice.batch)),
        "policy": choice.policy,
        "seconds": choice.seconds,
        "estimate": estimate.seconds,
        "witness": estimate.witness,
        "memory": choice.memory,
        "tokens_per_second": tokens / choice.seconds,
        "forecast": choice.forecast.seconds,
        "parts": dict(choice.forecast.parts),
    }


def _lines(title: str, asked: Question, found: Found, top: int) -> list[str]:
    from syntony.base.wording import rounded_size, time
    from syntony.overlap.layouts.search import named
    from syntony.overlap.layouts.space import Candidate

    best = found.choices[0]
    told = _told(asked, best)
    cells: list[tuple[str, ...]] = [(*_SIZES, "schedule", "step", "memory", "policy")]
    for choice in found.choices[:top]:
        layout = choice.layout
        sizes = (str(choice.batch if name == "batch" else getattr(layout, name)) for name in _SIZES)
        schedule = layout.schedule if layout.pp > 1 else "-"
        schedule += f" {layout.loops}" if layout.loops > 1 else ""
        schedule += ", recompute" if layout.recompute else ""
        schedule += ", grid" if layout.grid else ", rotate" if layout.rotate else ""
        schedule += ", dedup" if layout.dedup else ""
        schedule += ", relay" if layout.relay > 1 else ""
        schedule += f", {layout.replicas} replicas" if layout.replicas > 1 else ""
        schedule += f", secondary {layout.secondary}" if layout.secondary > 1 else ""
        cells.append((*sizes, schedule, time(choice.seconds), rounded_size(choice.memory), choice.policy))
    lines = [f"{title} (predicted)", "", *aligned(cells, ">" * len(_SIZES) + "<>><", "  ")]
    lines += [
        "",
        f"  --layout {named(Candidate(best.layout, best.batch))}",
        f"  {told['tokens_per_second']:,.0f} tokens/s; estimate {time(told['estimate'])}: {told['witness']}",
        "  of the step: " + ", ".join(
            f"{part} {took / best.forecast.seconds:.0%}" for part, took in best.forecast.parts.items()
            if took >= 0.005 * best.forecast.seconds
        ),
        f"  {found.tried:,} layouts forecast, {found.fitting:,} of them fit {rounded_size(asked.memory)}",
        "",
        "why not (forecast)",
    ]  # fmt: skip
    return lines + [f"  {line}" for line in map(_why, found.reasons)]


def _why(reason: Reason) -> str:
    from syntony.base.wording import rounded_size, time

    name = f"{reason.knob} {'on' if reason.value is True else 'off' if reason.value is False else reason.value}"
    if reason.memory is not None:
        return f"{name}: does not fit: {rounded_size(reason.memory)} at least"
    change = reason.seconds / reason.chosen - 1
    if change <= 0.001:
        return f"{name}: as fast as this one by the forecast, slower when simulated"
    return f"{name}: {change:+.1%}: {_PART[reason.part]} ({time(reason.more)})"


COMMAND = Command(
    ("overlap", "layout"),
    "find the fastest dp, tp, pp, cp, ep and pipeline schedule that fit the memory",
    "syntony overlap layout --model gpt3-175b --on dgx-a100:128 --machine a100 --sequences 1536",
    configure,
    run,
)
