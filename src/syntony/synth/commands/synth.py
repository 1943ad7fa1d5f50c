"""`syntony synth`: find a schedule."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.answer import answer_text, show, tell, tell_json
from syntony.base.arguments import count, size
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, require_output, require_series
from syntony.synth.commands.found import add_explain, best_so_far, report_of, story_of
from syntony.synth.commands.problem import add_limits, add_problem, problem

if TYPE_CHECKING:
    from syntony.synth.model.collective import Collective
    from syntony.synth.model.schedule import Schedule
    from syntony.topologies.topology import Topology


def _configure(parser: argparse.ArgumentParser) -> None:
    from syntony.synth.engines.registry import ENGINES

    add_problem(parser)
    parser.add_argument(
        "--size",
        type=size,
        default=1 << 20,
        metavar="BYTES",
        help="size for which the schedule should be fast (default 1M)",
    )
    engines = "; ".join(f"{engine.usage}: {engine.purpose}" for engine in ENGINES)
    parser.add_argument("--engine", default="auto", metavar="NAME", help=engines)
    parser.add_argument("--steps", type=count, metavar="S", help="maximum number of steps")
    parser.add_argument("--rounds", type=count, metavar="R", help="maximum number of rounds")
    parser.add_argument("--chunks", type=count, metavar="C", help="chunks per block (all_to_all: per rank's buffer)")
    parser.add_argument(
        "--most-chunks",
        type=count,
        metavar="N",
        help="maximum number of chunks, all blocks together: fewer are slower, but fit formats with short programs, "
        "such as MSCCL XML (256 instructions per thread block)",
    )
    parser.add_argument(
        "--pareto", action="store_true", help="find all schedules on the frontier of latency against bandwidth"
    )
    add_limits(parser, 60.0)
    add_explain(parser)
    add_output(parser, "-o", "--output", metavar="F.json", help="schedule file to write (--pareto: one per point)")


def _run(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.engines.engine import Budget
    from syntony.synth.engines.registry import engine_named

    engine = engine_named(options.engine)
    output = options.output
    topology, collective = problem(options, options.chunks)
    begin = time.monotonic()
    so_far = ""

    def better(schedule: Schedule) -> None:
        nonlocal so_far
        if not budget.allows(schedule):
            return
        report = report_of(schedule, output, time.monotonic() - begin)
        so_far = best_so_far(report["gap"])
        where = f"the best so far is in {output}" if output else "without -o F.json, the best so far is in no file"
        options.standby.answer(answer_text(options, report, story_of(schedule, report, options.explain)), where)

    budget = Budget(options.timeout, options.steps, options.rounds, options.most_chunks, better)
    if options.pareto:
        return _run_pareto(options, topology, collective, budget, output)
    asked = f"{engine.name}: {collective.kind} on {topology.name}"
    with progress(lambda: asked + so_far, options.timeout):
        schedule = engine.run(topology, collective, options.size, budget)
        budget.refuse_more(schedule)
    report = report_of(schedule, output, time.monotonic() - begin, options.size)
    tell(options, report, story_of(schedule, report, options.explain))
    return 0


def _run_pareto(
    options: argparse.Namespace, topology: Topology, collective: Collective, budget: Any, output: Path | None
) -> int:
    from syntony.base.progress import progress
    from syntony.synth.engines.engine import UndecidedError
    from syntony.synth.engines.sccl.frontier import pareto

    limits = (options.steps, options.rounds, options.chunks, options.most_chunks)
    if options.engine not in ("auto", "sccl") or any(limits):
        raise UserError("--pareto walks the frontier of engine sccl: no other engine, and no limits but --timeout")
    require_series(output, r"\d+-\d+-\d+", options.force)
    reports: list[dict[str, Any]] = []
    points = pareto(topology, collective, budget, patience=options.timeout / 4)
    stopped = ""
    while True:
        begin = time.monotonic()
        try:
            with progress(f"frontier of {collective.kind} on {topology.name}", options.timeout):
                point = next(points, None)
        except UndecidedError as error:
            if not reports:
                raise
            stopped = str(error)
            break
        if point is None:
            break
        name = f"{point.chunks}-{point.steps}-{point.rounds}"
        place = output.with_name(f"{output.stem}.{name}{output.suffix}") if output else None
        if place is not None:
            require_output(place, options.force)
        reports.append(report_of(point.schedule, place, time.monotonic() - begin))
        if not options.json:
            show(story_of(point.schedule, reports[-1], options.explain))
    if options.json:
        complete = {"points": reports, "complete": not stopped, "stopped": stopped or None}
        tell_json({"command": options.command, **complete})
    elif stopped:
        show([f"stopped: {stopped}"])
    return 0


COMMAND = Command(
    ("synth",),
    "find a schedule for a collective on a network, with its bounds, gap and proof",
    "syntony synth dgx1 all_gather --steps 2 --rounds 3 --chunks 2 -o allgather.json",
    _configure,
    _run,
    limited=True,
)
