"""A simulation as a Chrome trace: one row per link, one box per message on it (chrome://tracing, Perfetto).

Viewers can handle some hundred thousand boxes. If there are more, consecutive slices of a message become one box, from
the first one's start to the last one's end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from syntony.base.files.chrome_trace import ChromeTrace
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.result import Messages, Simulation

MOST_BOXES = 200_000


def write_trace(simulation: Simulation, path: str | Path, most: int = MOST_BOXES) -> int:
    """Writes the trace with about `most` boxes; returns the most slices in a box.

    Raises UserError if it cannot be written; then no new file exists.
    """
    nodes = simulation.topology.nodes
    trace = ChromeTrace()
    for link in simulation.topology.links:
        name = f"link {link.id}: {nodes[link.src].name} -> {nodes[link.dst].name}"
        trace.name_row(0, link.id, name)
    hops = np.array([len(route) for route in simulation.routes])[simulation.messages.route]
    together = max(1, -(-int(hops.sum()) // most))
    source, messages = simulation.source, _joined(simulation.messages, together)
    columns = (messages.row, messages.slice, messages.route, messages.start, messages.left)
    for row, slice_, route, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        if isinstance(source, Schedule):
            name, told = _of_schedule(source, row)
        else:
            name, told = f"{source.where(row)}, slice {slice_}", {"row": row}
        if together > 1:
            told["slices"] = together
        for link in simulation.routes[route]:
            trace.box(0, link, name, begin, end, **told, slice=slice_)
    trace.write(path)
    return together


def _joined(messages: Messages, together: int) -> Messages:
    """Merges this many consecutive slices of a message into one."""
    if together == 1:
        return messages
    group = messages.slice // together
    order = np.lexsort((messages.slice, group, messages.route, messages.row))
    keys = np.stack([messages.row, messages.route, group])[:, order]
    first = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)]) if len(order) else order
    at = order[first]
    start = np.minimum.reduceat(messages.start[order], first) if len(first) else messages.start
    left, arrival = (
        np.maximum.reduceat(column[order], first) if len(first) else column
        for column in (messages.left, messages.arrival)
    )
    return Messages(messages.row[at], messages.slice[at], messages.route[at], start, left, arrival)


def _of_schedule(schedule: Schedule, row: int) -> tuple[str, dict[str, int]]:
    moved = schedule.transfers
    names = ("value", "result", "step", "src", "dst")
    what = {name: int(getattr(moved, name)[row]) for name in names}
    verb = "reduce" if what["value"] != what["result"] else "copy"
    return f"{verb} chunk {schedule.values.chunk[what['value']]}", what
