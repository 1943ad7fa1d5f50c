"""Steps for people's eyes: Chrome traces (chrome://tracing, Perfetto), planned above real.

device 0, planned     compute  [fwd 0][fwd 1][bwd 1]   [bwd 0]        a process per device (or rank) and kind of
                      dp                     [reduce.1]  \\             time, a thread per lane, arrows from Ops
rank 0, measured      compute  [fwd 0][fwd 1][bwd 1]    ..            that move to what waited for them
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.overlap.step.op import COMPUTE
from syntony.topologies.file_format import write_text

if TYPE_CHECKING:
    from syntony.overlap.predict.simulation import Timeline
    from syntony.overlap.step.plan import Plan


@dataclass(frozen=True)
class Row:
    """One device's step. times: by Op's name, begin and end in seconds; Ops that are not there are not drawn."""

    title: str
    plan: Plan
    device: int
    times: Mapping[str, tuple[float, float]]


def planned(timeline: Timeline) -> list[Row]:
    """A row per device of a prediction."""
    spans = dict(zip(timeline.row, zip(timeline.start.tolist(), timeline.end.tolist(), strict=True), strict=True))
    return [Row(f"device {device}, planned", timeline.plan, device, spans) for device in timeline.plan.graph.devices]


def write_trace(rows: Sequence[Row], path: str | Path) -> None:
    """Writes them above one another. Raises UserError when the file cannot be written; then there is no new file."""
    events = [event for number, row in enumerate(rows) for event in _events(row, number)]
    write_text(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _events(row: Row, process: int) -> Iterator[dict[str, Any]]:
    ops = [op for op in row.plan.graph if op.device == row.device and op.name in row.times]
    lanes = sorted({op.lane for op in ops}, key=lambda lane: (lane != COMPUTE, lane))
    thread = {lane: number for number, lane in enumerate(lanes)}
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": row.title}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    for lane, number in thread.items():
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": lane}}
    for op in ops:
        begin, end = row.times[op.name]
        amount = {"bytes" if op.kind.moves else "operations": op.amount}
        told = {key: value for key in ("layer", "microbatch", "segment") if (value := getattr(op, key)) >= 0}
        place = {"pid": process, "tid": thread[op.lane]}
        yield place | {
            "ph": "X", "name": op.name, "cat": str(op.kind), "ts": begin * 1e6, "dur": (end - begin) * 1e6,
            "args": amount | told | ({"of": list(op.of)} if op.of else {}),
        }  # fmt: skip
        for name in op.deps:
            other = row.plan.graph[name]
            if other.device == row.device and other.kind.moves and name in row.times:
                arrow = {"cat": "waits", "name": "waits", "id": f"{process}.{name}>{op.name}"}
                arrived = row.times[name][1] * 1e6
                yield arrow | {"ph": "s", "pid": process, "tid": thread[other.lane], "ts": arrived}
                yield arrow | place | {"ph": "f", "bp": "e", "ts": max(arrived, begin * 1e6)}
