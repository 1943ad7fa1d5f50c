"""The commands `syntony bound`, `synth` and `repair`; the other commands are in the other files of this folder."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.answer import answer_text, show, tell, tell_json
from syntony.base.arguments import count, size
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, require_output, require_series, wrote
from syntony.base.wording import bar, counted
from syntony.synth.commands.files import COMMANDS as FILE_COMMANDS
from syntony.synth.commands.place import COMMANDS as PLACE_COMMANDS
from syntony.synth.commands.portfolio import COMMANDS as PORTFOLIO_COMMANDS
from syntony.synth.commands.problem import add_limits, add_problem, add_timeout, problem
from syntony.synth.commands.simulate import COMMANDS as SIMULATE_COMMANDS
from syntony.synth.commands.traffic import COMMANDS as TRAFFIC_COMMANDS

if TYPE_CHECKING:
    from syntony.synth.bounds.references import References
    from syntony.synth.model.bound import Bounds
    from syntony.synth.model.collective import Collective
    from syntony.synth.model.schedule import Schedule
    from syntony.topologies.topology import Topology


# bound ------------------------------------------------------------------------------------------------------------


def _configure_bound(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument("--size", type=size, metavar="BYTES", help="also the bound at this size, latencies included")
    add_timeout(parser, 60.0)


def _run_bound(options: argparse.Namespace) -> int:
    from syntony.base.deadline import Deadline
    from syntony.base.progress import progress
    from syntony.synth.bounds.references import all_reduce_references
    from syntony.synth.bounds.throughput import bounds_of
    from syntony.synth.model.network import Network

    deadline = Deadline(options.timeout)
    topology, collective = problem(options)
    cheap = bounds_of(topology, collective, Deadline(0.0))
    note = "the exact bound was not finished; this one is valid, too"
    options.standby.answer(_bounds_told(options, topology, collective, cheap, None), note)
    with progress("bounds", options.timeout):
        bounds = bounds_of(topology, collective, deadline)
    references = None
    if collective.kind == "all_reduce" and collective.ranks > 1:
        told = _bounds_told(options, topology, collective, bounds, None)
        options.standby.answer(told, "the reference rates were not finished")
        with progress("reference rates", options.timeout):
            references = all_reduce_references(Network(topology, collective), deadline)
    print(_bounds_told(options, topology, collective, bounds, references), end="")
    return 0


def _bounds_told(
    options: argparse.Namespace,
    topology: Topology,
    collective: Collective,
    bounds: Bounds,
    references: References | None,
) -> str:
    """What `syntony bound` prints."""
    from syntony.synth.bounds.throughput import rounds_per_chunk
    from syntony.synth.bounds.wording import describe
    from syntony.synth.model.bound import fraction_text
    from syntony.synth.model.network import Network

    latency, throughput, names = bounds.latency, bounds.throughput, topology.nodes
    per_chunk = rounds_per_chunk(throughput, topology, collective)
    words = describe(Network(topology, collective), throughput.witness) if throughput.witness else "nothing must move"
    more: dict[str, Any] = {
        "rounds_per_chunk": fraction_text(per_chunk),
        "searched": throughput.searched,
        "words": words,
    }
    if options.size is not None:
        more["at_size"] = {"size": options.size, "seconds": bounds.seconds(options.size)}
    told = bounds.to_dict() | more | ({"references": references.to_dict()} if references else {})
    far = latency.steps_witness
    why = f"   {names[far.src].name} to {names[far.dst].name}, chunk {far.chunk}" if far else ""
    lines = [
        f"{collective.kind} on {topology.name}, {counted(collective.ranks, 'rank')}: no schedule does better than",
        f"  latency     {counted(latency.steps, 'step')}, {latency.seconds:g} s{why}",
    ]
    if throughput.witness is None:
        return answer_text(options, told, [*lines, f"  throughput  {words}"])
    rate = fraction_text(throughput.seconds_per_byte)
    lines += [
        f"  throughput  {throughput.algbw / 1e9:g} GB/s ({rate} s/byte; {counted(per_chunk, 'round')} per chunk)",
        f"  witness     {words}",
        f"  best of     {throughput.searched}",
        *([_at_size_told(bounds, options.size)] if options.size is not None else ()),
        *(_references_told(references, throughput.algbw) if references else ()),
    ]
    return answer_text(options, told, lines)


def _at_size_told(bounds: Bounds, size: int) -> str:
    seconds = bounds.seconds(size)
    return (
        f"  at size     {counted(size, 'byte')}: {seconds:.6g} s, {size / seconds / 1e9:.4g} GB/s, latencies included"
    )


def _references_told(references: References, bound: float) -> Iterator[str]:
    """Reference rates, apart from the bounds."""
    composed = float(references.composition)
    yield "for reference (these are not bounds): what two constructions reach"
    if references.trees is None:
        yield "  trees       the linear program of the best trees is too large here"
    else:
        trees = f"the best trees to sum up and spread, both at once ({_of(references.trees, bound)})"
        yield f"  trees       {references.trees / 1e9:g} GB/s   {trees}"
    yield f"  RS + AG     {composed / 1e9:g} GB/s   reduce_scatter, then all_gather ({_of(composed, bound)})"


def _of(rate: float, bound: float) -> str:
    return "meets the bound" if rate >= bound * (1 - 1e-9) else f"{rate / bound:.1%} of the bound"


# synth ------------------------------------------------------------------------------------------------------------


def _configure_synth(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument("--steps", type=count, metavar="S", help="most steps")
    parser.add_argument("--rounds", type=count, metavar="R", help="most rounds")
    parser.add_argument("--chunks", type=count, metavar="C", help="chunks per block (all_to_all: per rank's buffer)")
    parser.add_argument(
        "--pareto", action="store_true", help="find all schedules on the frontier of latency against bandwidth"
    )
    add_limits(parser, 60.0)
    add_explain(parser)
    add_output(parser, "-o", "--output", metavar="F.json", help="schedule file to write (--pareto: one per point)")


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Adds --explain to a command that finds schedules."""
    parser.add_argument("--explain", action="store_true", help="show the bounds' witness and the proof in full")


def _run_synth(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.engines.engine import Budget
    from syntony.synth.engines.registry import engine_named

    engine = engine_named(options.engine)
    output = options.output
    topology, collective = problem(options, options.chunks)
    begin = time.monotonic()

    def better(schedule: Schedule) -> None:
        report = _report(schedule, output, time.monotonic() - begin)
        where = f"the best so far is in {output}" if output else "without -o F.json, the best so far is in no file"
        options.standby.answer(answer_text(options, report, _story(schedule, report, options.explain)), where)

    budget = Budget(options.timeout, options.steps, options.rounds, better)
    if options.pareto:
        return _run_pareto(options, topology, collective, budget, output)
    with progress(f"{engine.name}: {collective.kind} on {topology.name}", options.timeout):
        schedule = engine.run(topology, collective, options.size, budget)
    report = _report(schedule, output, time.monotonic() - begin, options.size)
    tell(options, report, _story(schedule, report, options.explain))
    return 0


def _run_pareto(
    options: argparse.Namespace, topology: Topology, collective: Collective, budget: Any, output: Path | None
) -> int:
    from syntony.base.progress import progress
    from syntony.synth.engines.engine import UndecidedError
    from syntony.synth.engines.sccl.frontier import pareto

    if options.engine not in ("auto", "sccl") or options.steps or options.rounds or options.chunks:
        raise UserError("--pareto walks the frontier of engine sccl: no other engine, --steps, --rounds or --chunks")
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
        reports.append(_report(point.schedule, place, time.monotonic() - begin))
        if not options.json:
            show(_story(point.schedule, reports[-1], options.explain))
    if options.json:
        complete = {"points": reports, "complete": not stopped, "stopped": stopped or None}
        tell_json({"command": options.command, **complete})
    elif stopped:
        show([f"stopped: {stopped}"])
    return 0


# repair -----------------------------------------------------------------------------------------------------------


def _configure_repair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="OLD.json", help="schedule file for the whole machine")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="WHAT",
        help="what is lost: a node (rank5, nic0.3, or a rank's number), a wire (0-1, rank0-nvswitch0), one way of it "
        "(0->1); again for more",
    )
    parser.add_argument(
        "--slowed",
        action="append",
        default=[],
        metavar="WIRE@PART",
        help="a wire that runs at a part of its bandwidth (0-1@50%%); again for more",
    )
    add_timeout(parser, 60.0)
    add_explain(parser)
    add_output(parser, "-o", "--output", metavar="NEW.json", help="schedule file to write")


def _run_repair(options: argparse.Namespace) -> int:
    from syntony.base.progress import progress
    from syntony.synth.engines.engine import Budget
    from syntony.synth.engines.repair import repair
    from syntony.synth.formats.loading import read
    from syntony.synth.model.schedule import Schedule

    if not options.without and not options.slowed:
        raise UserError("say what is lost or slow with --without or --slowed")
    old = read(options.file).content
    if not isinstance(old, Schedule):
        raise UserError(f"{options.file}: it is a program, which does not name links; repair needs a schedule")
    begin = time.monotonic()
    with progress(f"repair of {old.collective.kind} on {old.topology.name}", options.timeout):
        schedule = repair(old, options.without, options.slowed, Budget(options.timeout))
    report = _report(schedule, options.output, time.monotonic() - begin)
    tell(options, report, _story(schedule, report, options.explain))
    return 0


def _report(schedule: Schedule, output: Path | None, seconds: float, size: int | None = None) -> dict[str, Any]:
    """Checks the schedule, writes it to `output`, if any, and returns the object of `synth --json`.

    `size`: for which it was made, to be simulated.
    """
    from syntony.synth.engines.engine import checked
    from syntony.synth.engines.sccl.exact import chunk_count
    from syntony.synth.formats.schedule_file import write
    from syntony.synth.symmetry.throughput import gap_of

    checked(schedule)
    if output is not None:
        write(schedule, output)
    gap = gap_of(schedule)
    return {
        "file": str(output) if output is not None else None,
        "engine": schedule.engine,
        "steps": schedule.steps,
        "rounds": int(schedule.rounds.sum()) if len(schedule.rounds) else None,
        "chunks": chunk_count(schedule.collective),
        "bounds": schedule.bounds.to_dict() if schedule.bounds else None,
        "gap": None if gap is None else float(gap),
        "simulated": None if size is None else _simulated(schedule, size),
        "proof": schedule.proof,
        "seconds": round(seconds, 3),
    }


def _simulated(schedule: Schedule, size: int) -> dict[str, Any] | None:
    """Its time at a size beside what is proven to be needed there; None where a simulation would take long."""
    from syntony.synth.engines.workers import seconds_at
    from syntony.synth.simulation.usual_slice import MOST_MESSAGES

    if len(schedule.transfers) > MOST_MESSAGES or not schedule.bounds:
        return None
    seconds, least = seconds_at(schedule, size), schedule.bounds.seconds(size)
    return {"size": size, "seconds": seconds, "bound_seconds": least, "gap": seconds / least - 1 if least else 0.0}


def _story(schedule: Schedule, report: dict[str, Any], explain: bool) -> list[str]:
    from syntony.synth.symmetry.throughput import gap_of

    collective = schedule.collective
    steps = counted(report["steps"], "step")
    rounds = f", {counted(report['rounds'], 'round')}" if report["rounds"] is not None else ""
    gap = gap_of(schedule)
    lines = [
        f"{collective.kind} on {schedule.topology.name}: {steps}{rounds}, {counted(report['chunks'], 'chunk')} "
        f"(engine {schedule.engine}, {report['seconds']:.2f} s)"
    ]
    if schedule.bounds:
        latency, throughput = schedule.bounds.latency, schedule.bounds.throughput
        rate = f"{throughput.algbw / 1e9:g} GB/s" if throughput.seconds_per_byte else "nothing must move"
        lines.append(f"  bound    {counted(latency.steps, 'step')}, {latency.seconds:g} s; {rate}")
    told = report["simulated"]
    if told:
        there = f"{told['gap']:.1%} above the bound there, {told['bound_seconds']:.4g} s"
        lines.append(f"  time     {told['seconds']:.4g} s at {counted(told['size'], 'byte')}, simulated; {there}")
    lines += [f"  gap      {_percent(gap)}", "  correct  checked", f"  optimal  {_optimal(gap, schedule.proof)}"]
    if explain:
        lines += _explained(schedule, gap)
    if report["file"]:
        folded = f", {counted(len(schedule.symmetry), 'symmetry generator')}" if schedule.symmetry else ""
        listed = f"{counted(len(schedule.transfers), 'transfer')} listed{folded}"
        lines.append(wrote(report["file"], listed))
    return lines


def _percent(gap: Fraction | None) -> str:
    if gap is None:
        return "none known"
    return f"{bar(1 / (1 + float(gap)))} {float(gap):.1%} to the throughput bound"


def _optimal(gap: Fraction | None, proof: str | None) -> str:
    """What is proven about how good it is, in a few words."""
    from syntony.synth.engines.auto import COMPARED

    if gap == 0:
        return "proven: no schedule moves more bytes per second"
    if proof and proof.startswith(COMPARED):
        return "not proven (--explain says what was tried)"
    if proof:
        return "in part: --explain says what is proven"
    return "not proven"


def _explained(schedule: Schedule, gap: Fraction | None) -> Iterator[str]:
    """The witness of the bound, the exact gap and the proof, in full."""
    from syntony.synth.bounds.wording import describe
    from syntony.synth.model.network import Network

    if schedule.bounds and schedule.bounds.throughput.witness:
        network = Network(schedule.topology, schedule.collective)
        yield f"  witness  {describe(network, schedule.bounds.throughput.witness)}"
    if gap is not None:
        yield f"  exactly  {gap} over the bound"
    yield f"  proof    {schedule.proof or 'none'}"


COMMANDS = (
    Command(
        ("bound",),
        "what no schedule can beat on a network: latency and throughput, with witnesses",
        "syntony bound dgx1 all_gather",
        _configure_bound,
        _run_bound,
        limited=True,
    ),
    Command(
        ("synth",),
        "find a schedule for a collective on a network, with its bounds, gap and proof",
        "syntony synth dgx1 all_gather --steps 2 --rounds 3 --chunks 2 -o allgather.json",
        _configure_synth,
        _run_synth,
        limited=True,
    ),
    Command(
        ("repair",),
        "mend a schedule after a wire, NIC or rank was lost or became slower",
        "syntony repair allgather.json --without 0-1 -o mended.json",
        _configure_repair,
        _run_repair,
        limited=True,
    ),
    *PORTFOLIO_COMMANDS,
    *PLACE_COMMANDS,
    *SIMULATE_COMMANDS,
    *TRAFFIC_COMMANDS,
    *FILE_COMMANDS,
)
