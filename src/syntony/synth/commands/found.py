"""The result of a search: checks and writes the schedule, and reports it with its bounds, gap and proof."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.outputs import wrote
from syntony.base.wording import bar, counted

if TYPE_CHECKING:
    from syntony.synth.model.schedule import Schedule


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Adds --explain to a command that finds schedules."""
    parser.add_argument("--explain", action="store_true", help="show the bounds' witness and the proof in full")


def report_of(schedule: Schedule, output: Path | None, seconds: float, size: int | None = None) -> dict[str, Any]:
    """Checks the schedule, writes it to `output`, if any, and returns the object of `synth --json`.

    `size`: the size that it was made for, to be simulated.
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
    """Its simulated time at a size beside the proven bound; None if a simulation would take long."""
    from syntony.synth.engines.workers import seconds_at
    from syntony.synth.simulation.usual_slice import MOST_MESSAGES

    if len(schedule.transfers) > MOST_MESSAGES or not schedule.bounds:
        return None
    seconds, least = seconds_at(schedule, size), schedule.bounds.seconds(size)
    return {"size": size, "seconds": seconds, "bound_seconds": least, "gap": seconds / least - 1 if least else 0.0}


def story_of(schedule: Schedule, report: dict[str, Any], explain: bool) -> list[str]:
    """The report in sentences; `explain` adds the witness of the bound and the proof in full."""
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
    distance = _percent(gap) if len(schedule.transfers) else "none"
    lines += [f"  gap      {distance}", "  correct  checked", f"  optimal  {_optimal(schedule, gap)}"]
    if explain:
        lines += _explained(schedule, gap)
    if report["file"]:
        folded = f", {counted(len(schedule.symmetry), 'symmetry generator')}" if schedule.symmetry else ""
        listed = f"{counted(len(schedule.transfers), 'transfer')} listed{folded}"
        lines.append(wrote(report["file"], listed))
    return lines


def best_so_far(gap: float | None) -> str:
    """What a progress line says once there is a schedule."""
    return "" if gap is None else f", gap {gap:.1%} so far"


def _percent(gap: Fraction | None) -> str:
    if gap is None:
        return "none known"
    return f"{bar(1 / (1 + float(gap)))} {float(gap):.1%} to the throughput bound"


def _optimal(schedule: Schedule, gap: Fraction | None) -> str:
    """What is proven about its quality, in a few words."""
    from syntony.synth.engines.auto import COMPARED

    proof = schedule.proof
    if not len(schedule.transfers):
        return "proven: nothing moves"
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
