"""`syntony overlap ..`: plan a training step, predict it, ask why it is not faster, and look for a better plan."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from time import process_time
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell, width
from syntony.base.arguments import count, seconds
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.base.wording import unknown
from syntony.overlap.commands import layout
from syntony.overlap.commands.problem import add_problem, plan_of, problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from syntony.overlap.predict.simulation import Timeline
    from syntony.overlap.step.cost import Cost
    from syntony.overlap.step.graph import Graph
    from syntony.overlap.step.plan import Plan


# ---- list -----------------------------------------------------------------------------------------------------------


def _configure_list(parser: argparse.ArgumentParser) -> None:
    """It takes no arguments of its own."""


def _list(options: argparse.Namespace) -> int:
    from syntony.overlap.policies.table import LEFT_OUT, POLICIES
    from syntony.overlap.predict.machine import MACHINES
    from syntony.overlap.step.models import MODELS
    from syntony.overlap.step.pipelines import PIPELINES

    policies = [
        {
            "name": one.name, "standing": one.standing, "missing": one.missing, "paper": one.paper, "about": one.about,
            "knobs": one.values,
        }
        for one in POLICIES.values()
    ]  # fmt: skip
    models = {name: {**vars(model), "parameters": model.parameters} for name, model in MODELS.items()}
    machines = {name: vars(machine) for name, machine in MACHINES.items()}
    lines = [
        "policies (--policy NAME:KNOB=VALUE,..; joined by + they work one after another)",
        "  W: the whole idea of the paper; S: whole, simulated only; P: a part of it",
    ]
    for one in POLICIES.values():
        knobs = ", ".join(f"{name}={value}" for name, value in one.values.items())
        about = " ".join(one.about.split()) + (f" [{knobs}]" if knobs else "")
        told = [one.paper, about, *([f"Missing: {one.missing}."] if one.missing else [])]
        first, *others = [line for text in told for line in wrap(text, width() - 22)]
        lines += [f"{one.standing} {one.name:<18}  {first}", *(f"{'':22}{line}" for line in others)]
    for name, reason in LEFT_OUT.items():
        first, *others = wrap(f"left out: {reason}", width() - 22)
        lines += [f"- {name:<18}  {first}", *(f"{'':22}{line}" for line in others)]
    lines += ["", "models (--model; one's own as gpt:hidden=512,blocks=8)"]
    for name, model in MODELS.items():
        source = wrap(f"{model.parameters / 1e9:.3g} billion parameters; {model.source}", width() - 22)
        lines += [f"{'' if row else '  ' + name:<22}{line}" for row, line in enumerate(source)]
    lines += ["", *wrap(f"pipelines (--layout schedule=..): {', '.join(PIPELINES)}", width())]
    lines += ["", "machines (--machine NAME:network=25e9,..)"]
    for name, machine in MACHINES.items():
        rates = wrap(", ".join(f"{key} {value:g}" for key, value in vars(machine).items()), width() - 22)
        lines += [f"{'' if row else '  ' + name:<22}{line}" for row, line in enumerate(rates)]
    found = {"policies": policies, "models": models, "pipelines": list(PIPELINES), "machines": machines}
    return _tell(options, found, lines)


# ---- plan, simulate, explain ----------------------------------------------------------------------------------------


def _configure_plan(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    add_output(parser, "-o", "--output", type=str, metavar="F.json", help="write the plan")


def _plan(options: argparse.Namespace) -> int:
    plan, timeline, title = _predicted(options)
    if options.output:
        plan.write(options.output)
    lines = [f"{title}: plan of {plan.policy}, {plan.hash[:16]}"]
    for (device, lane), keys in sorted(plan.orders.items()):
        first = ", ".join(map(str, keys[:6])) + (f", .. {len(keys)} ops" if len(keys) > 6 else "")
        lines.append(f"  device {device} {lane:<8} {first}")
    lines += [wrote(options.output)] if options.output else []
    told = {"policy": plan.policy, "hash": plan.hash, "ops": len(plan.graph), "knobs": dict(plan.knobs)}
    return _tell(options, told | {"seconds": timeline.seconds, "file": options.output}, lines)


def _configure_simulate(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)


def _simulate(options: argparse.Namespace) -> int:
    from syntony.base.wording import time
    from syntony.overlap.predict.estimate import estimates

    plan, timeline, title = _predicted(options)
    best = estimates(plan, timeline.cost)[0]
    row = _row(timeline)
    busy = [{"device": device, "lane": lane, "seconds": took} for (device, lane), took in sorted(timeline.busy.items())]
    lines = [
        f"{title}: {plan.policy} (predicted)",
        f"  step        {time(timeline.seconds)}",
        f"  estimate    {time(best.seconds)}: {best.witness}",
        f"  efficiency  {row['efficiency']:.1%}",
        f"  exposed     {time(row['exposed_seconds'])} of communication, on the device that has most",
        f"  memory      {_bytes(row['peak_bytes'])} of activations, gathered weights and sharded gradients at most",
        f"  busy        {', '.join(_busy(timeline))}",
    ]
    return _tell(options, {"title": title, "policy": plan.policy, **row, "busy": busy}, lines)


def _busy(timeline: Timeline) -> list[str]:
    lanes: dict[str, float] = {}
    for (_, lane), took in timeline.busy.items():
        lanes[lane] = max(lanes.get(lane, 0.0), took)
    return [f"{lane} {took / timeline.seconds:.0%}" for lane, took in sorted(lanes.items())]


def _configure_explain(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument("--top", type=count, default=5, metavar="N", help="so many ops and groups of ops (default 5)")


def _explain(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.overlap.predict.explain import Making, describe, explain, report
    from syntony.overlap.predict.simulation import simulate

    with progress("explaining"):
        asked = problem(options)
        plan = plan_of(asked, options.policy)

        def again(step: Graph, cost: Cost) -> Plan:
            return plan_of(replace(asked, graph=step, cost=cost), options.policy)

        # A plan that was read does not say what it was made of.
        made = None if plan is asked.plan else Making(asked.graph, again)
        found = explain(simulate(plan, asked.cost), options.top, made)
    lines = [f"{asked.title}: {plan.policy}", *describe(found)]
    return _tell(options, {"title": asked.title, "policy": plan.policy, **report(found)}, lines)


# ---- compare, search ------------------------------------------------------------------------------------------------


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    add_problem(parser, policy=False)
    parser.add_argument("--policies", metavar="A,B+C,..", help="which (default: all that can plan this step)")


def _compare(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.overlap.policies.search import chain_of, planned
    from syntony.overlap.policies.table import POLICIES
    from syntony.overlap.predict.simulation import simulate

    asked = problem(options)
    named = split_policies(options.policies) if options.policies else list(POLICIES)
    rows, refused = [], {}
    with progress("planning by each policy") as done:
        for number, name in enumerate(named):
            done(number / len(named))
            try:
                timeline = simulate(planned(chain_of(name), asked.graph, asked.cost), asked.cost)
            except UserError as error:
                if options.policies:
                    raise
                refused[name] = str(error)
                continue
            rows.append({"policy": name, **_row(timeline)})
    rows.sort(key=lambda row: row["seconds"])
    lines = [f"{asked.title} (predicted)", *_table(rows)]
    lines += [f"not for this step: {', '.join(refused)}"] if refused else []
    return _tell(options, {"title": asked.title, "policies": rows, "refused": refused}, lines)


def split_policies(text: str) -> list[str]:
    """Policies between commas; a knob's comma is followed by `name=`."""
    found: list[str] = []
    for part in text.split(","):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _row(timeline: Timeline) -> dict[str, Any]:
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


def _table(rows: list[dict[str, Any]]) -> list[str]:
    from syntony.base.wording import time

    wide = max([6, *(len(row["policy"]) for row in rows)])
    slowest = max((row["seconds"] for row in rows), default=0.0)
    lines = [f"  {'policy':<{wide}}      step  estimate  of it   exposed    memory  gain"]
    for row in rows:
        times = " ".join(f"{time(row[key]):>9}" for key in ("seconds", "estimate"))
        lines.append(
            f"  {row['policy']:<{wide}} {times} {row['efficiency']:>6.1%} {time(row['exposed_seconds']):>9} "
            f"{_bytes(row['peak_bytes']):>9} {slowest / row['seconds']:.2f}x"
            + ("  simulated only" if row["simulated_only"] else "")
        )
    return lines


def _configure_search(parser: argparse.ArgumentParser) -> None:
    add_problem(parser, policy=False)
    parser.add_argument("--method", metavar="M,..", help="grid, bayes, mcmc, dp (default: all)")
    parser.add_argument(
        "--seconds", type=seconds, default=10.0, metavar="S", help="of one core, from the start (default 10)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is random (default 0)")
    parser.add_argument("--top", type=count, default=5, metavar="N", help="so many plans (default 5)")
    add_output(parser, "-o", "--output", type=str, metavar="F.json", help="write the best plan")


def _search(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.overlap.policies.search import METHODS, search
    from syntony.overlap.predict.simulation import simulate

    asked = problem(options)
    methods = tuple(options.method.split(",")) if options.method else METHODS
    with progress("searching"):
        left = max(1.0, 0.9 * options.seconds - process_time())  # what was read has taken some, what is told will
        found = search(asked.graph, asked.cost, left, methods, options.seed)
    if not found.candidates:
        raise UserError(f"no policy can plan {asked.title}: {next(iter(found.refused.values()), 'there is none')}")
    best = found.candidates[: options.top]
    if options.output:
        best[0].plan.write(options.output)
    rows = [{"policy": one.maker, **_row(simulate(one.plan, asked.cost))} for one in best]
    lines = [f"{asked.title}: {found.tried} plans simulated, the best (predicted)", *_table(rows)]
    if found.small:
        lines += [
            f"  looked for in a step of {found.small} ops with fewer, heavier layers; those shown are of all layers"
        ]
    lines += [wrote(options.output, "the best plan")] if options.output else []
    return _tell(options, {"title": asked.title, "plans": rows, "tried": found.tried, "file": options.output}, lines)


# ---- trace, traffic -------------------------------------------------------------------------------------------------


def _configure_trace(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument(
        "--real", nargs="+", default=[], metavar="R.et", help="steps as they were recorded, drawn below"
    )
    add_output(parser, "-o", "--output", type=str, required=True, metavar="F", endings=(".json", ".et"),
               what="a trace is JSON (Perfetto) or Chakra's",
               help="F.json for Perfetto, F.et for Chakra")  # fmt: skip


def _trace(options: argparse.Namespace) -> int:
    from syntony.overlap.formats.chakra import read_chakra, write_chakra
    from syntony.overlap.formats.perfetto import Row, planned, write_trace

    plan, timeline, _ = _predicted(options)
    path = Path(options.output)
    if path.suffix == ".et":
        spans = zip(timeline.start.tolist(), timeline.end.tolist(), strict=True)
        written = write_chakra(plan, path, dict(zip(timeline.row, spans, strict=True)))
    else:
        rows = planned(timeline)
        for name in options.real:
            real = read_chakra(name)
            rows += [
                Row(f"device {device}, measured ({Path(name).stem})", real.plan, device, real.times)
                for device in real.plan.graph.devices
            ]
        write_trace(rows, path)
        written = [path]
    return _tell(options, {"files": [str(file) for file in written]}, [wrote(file) for file in written])


def _configure_traffic(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument("--algorithm", metavar="C=A,..", default="",
                        help="such as all_reduce=ring (default: slices exchanged directly)")  # fmt: skip
    add_output(parser, "-o", "--output", type=str, metavar="F.png", endings=(".png", ".svg", ".pdf"),
               what="it is drawn as PNG, SVG or PDF",
               help="draw it: .png, .svg or .pdf")  # fmt: skip


def _traffic(options: argparse.Namespace) -> int:
    from syntony.overlap.predict.machine import pairs
    from syntony.overlap.predict.traffic import CANONICAL, draw, report, traffic

    chosen = pairs(options.algorithm, f"--algorithm {options.algorithm}")
    for kind in chosen:
        if kind not in CANONICAL:
            raise UserError(f"--algorithm {options.algorithm}: {unknown('collective', kind, CANONICAL)}")
    asked = problem(options)
    found = traffic(plan_of(asked, options.policy), asked.layout, {**CANONICAL, **chosen})
    if options.output:
        draw(found, asked.title, options.output)
    told = report(found)
    lines = [f"{asked.title}: bytes that ranks send in a step"]
    for lane, total in sorted(told["bytes"].items(), key=lambda item: -item[1]):
        most = found[lane].sum(axis=1).max()
        lines.append(f"  {lane:<9} {_bytes(total):>10}   {most:>16,} by the rank that sends most")
    lines += [] if told["bytes"] else ["  none"]
    lines += [wrote(options.output)] if options.output else []
    return _tell(options, told | {"file": options.output}, lines)


# ---------------------------------------------------------------------------------------------------------------------


def _tell(options: argparse.Namespace, told: Mapping[str, Any], lines: Iterable[str]) -> int:
    tell(options, told, lines)
    return 0


def _predicted(options: argparse.Namespace) -> tuple[Plan, Timeline, str]:
    from syntony.base.progress import progress
    from syntony.overlap.predict.simulation import simulate

    with progress("planning"):
        asked = problem(options)
        plan = plan_of(asked, options.policy)
        return plan, simulate(plan, asked.cost), asked.title


def _bytes(amount: float) -> str:
    from syntony.base.wording import rate

    return rate(amount).removesuffix("/s")


_THIN = "--model thin --layout dp=4 --machine cpu:network=250e6"
_GPT = "--model gpt3-6.7b --layout tp=8,pp=4,dp=4,zero=1,microbatches=8 --on dgx-a100:16 --machine a100"

COMMANDS = (
    Command(("overlap", "list"), "policies, models, pipelines and machines", "syntony overlap list",
            _configure_list, _list),
    Command(("overlap", "plan"), "who does what when in a training step",
            f"syntony overlap plan {_THIN} --policy bytescheduler:slice=1M -o plan.json", _configure_plan, _plan),
    Command(("overlap", "simulate"), "predict a step: its time, the least it could take, its memory",
            f"syntony overlap simulate {_GPT}", _configure_simulate, _simulate),
    Command(("overlap", "compare"), "policies side by side, predicted",
            f"syntony overlap compare {_THIN} --policies fifo,ddp,dear,bytescheduler", _configure_compare, _compare),
    Command(("overlap", "explain"), "did it overlap, and if not, why not",
            f"syntony overlap explain {_THIN} --policy ddp", _configure_explain, _explain),
    Command(("overlap", "search"), "turn the policies' knobs for the best plan",
            f"syntony overlap search {_THIN} --seconds 5 -o best.json", _configure_search, _search),
    Command(("overlap", "layout"), "the fastest dp, tp, pp, cp, ep and schedule that fit the memory",
            "syntony overlap layout --model gpt3-175b --on dgx-a100:128 --machine a100 --sequences 1536",
            layout.configure, layout.run),
    Command(("overlap", "trace"), "a step for Perfetto or Chakra, planned and measured",
            f"syntony overlap trace {_THIN} --policy dear -o trace.json", _configure_trace, _trace),
    Command(("overlap", "traffic"), "which rank sends how many bytes to whom in a step",
            "syntony overlap traffic --model internlm2-102b --layout tp=8,pp=4,dp=4,zero=1 -o heat.png",
            _configure_traffic, _traffic),
)  # fmt: skip
