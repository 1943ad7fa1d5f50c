"""A simulation as a Chrome trace: one row per link, one box per message on it (chrome://tracing, Perfetto)."""

from __future__ import annotations

from pathlib import Path

from syntony.base.chrome_trace import ChromeTrace
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.result import Simulation


def write_trace(simulation: Simulation, path: str | Path) -> None:
    """Writes the trace. Raises UserError when it cannot be written; then there is no new file."""
    nodes = simulation.topology.nodes
    trace = ChromeTrace()
    for link in simulation.topology.links:
        name = f"link {link.id}: {nodes[link.src].name} -> {nodes[link.dst].name}"
        trace.name_row(0, link.id, name)
    source, messages = simulation.source, simulation.messages
    columns = (messages.row, messages.slice, messages.route, messages.start, messages.left)
    for row, slice_, route, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        if isinstance(source, Schedule):
            name, told = _of_schedule(source, row)
        else:
            name, told = f"{source.where(row)}, slice {slice_}", {"row": row}
        for link in simulation.routes[route]:
            trace.box(0, link, name, begin, end, **told, slice=slice_)
    trace.write(path)


def _of_schedule(schedule: Schedule, row: int) -> tuple[str, dict[str, int]]:
    moved = schedule.transfers
    names = ("value", "result", "step", "src", "dst")
    what = {name: int(getattr(moved, name)[row]) for name in names}
    verb = "reduce" if what["value"] != what["result"] else "copy"
    return f"{verb} chunk {schedule.values.chunk[what['value']]}", what
