"""A simulation as a Chrome trace: one row per link, one box per message on it (chrome://tracing, Perfetto)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.result import Simulation
from syntony.topologies.file_format import write_text


def write_trace(simulation: Simulation, path: str | Path) -> None:
    """Writes the trace. Raises UserError when it cannot be written; then there is no new file."""
    nodes = simulation.topology.nodes
    events: list[dict[str, Any]] = []
    for link in simulation.topology.links:
        name = f"link {link.id}: {nodes[link.src].name} -> {nodes[link.dst].name}"
        events.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": link.id, "args": {"name": name}})
    source, messages = simulation.source, simulation.messages
    columns = (messages.row, messages.slice, messages.route, messages.start * 1e6, messages.left * 1e6)
    for row, slice_, route, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        what = _of_schedule(source, row, slice_) if isinstance(source, Schedule) else _of_program(source, row, slice_)
        box = what | {"ph": "X", "pid": 0, "ts": begin, "dur": end - begin}
        events += [box | {"tid": link} for link in simulation.routes[route]]
    write_text(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))


def _of_schedule(schedule: Schedule, row: int, slice_: int) -> dict[str, Any]:
    moved = schedule.transfers
    names = ("value", "result", "step", "src", "dst")
    what = {name: int(getattr(moved, name)[row]) for name in names}
    verb = "reduce" if what["value"] != what["result"] else "copy"
    return {"name": f"{verb} chunk {schedule.values.chunk[what['value']]}", "args": what | {"slice": slice_}}


def _of_program(program: Program, row: int, slice_: int) -> dict[str, Any]:
    return {"name": f"{program.where(row)}, slice {slice_}", "args": {"row": row, "slice": slice_}}
