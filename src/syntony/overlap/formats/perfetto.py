"""Steps as Chrome traces (chrome://tracing, Perfetto), planned above measured.

device 0, planned     compute  [fwd 0][fwd 1][bwd 1]   [bwd 0]        a process per device (or rank) and kind of
                      dp                     [reduce.1]  \\             time, a thread per lane, arrows from Ops
rank 0, measured      compute  [fwd 0][fwd 1][bwd 1]    ..            that move to what waited for them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.files.chrome_trace import ChromeTrace
from syntony.overlap.step.op import COMPUTE
from syntony.overlap.step.op_key import OpKey

if TYPE_CHECKING:
    from syntony.overlap.predict.simulation import Timeline
    from syntony.overlap.step.plan import Plan


@dataclass(frozen=True)
class Row:
    """One device's step. times: begin and end in seconds by Op's name; Ops without times are not drawn."""

    title: str
    plan: Plan
    device: int
    times: Mapping[OpKey, tuple[float, float]]


def planned(timeline: Timeline) -> list[Row]:
    """A row per device of a prediction."""
    spans = dict(zip(timeline.row, zip(timeline.start.tolist(), timeline.end.tolist(), strict=True), strict=True))
    return [Row(f"device {device}, planned", timeline.plan, device, spans) for device in timeline.plan.graph.devices]


def write_trace(rows: Sequence[Row], path: str | Path) -> None:
    """Writes the rows above one another. Raises UserError if the file cannot be written; then no new file exists."""
    trace = ChromeTrace()
    for number, row in enumerate(rows):
        _draw(trace, row, number)
    trace.write(path)


def _draw(trace: ChromeTrace, row: Row, process: int) -> None:
    ops = [op for op in row.plan.graph if op.device == row.device and op.key in row.times]
    lanes = sorted({op.lane for op in ops}, key=lambda lane: (lane != COMPUTE, lane))
    thread = {lane: number for number, lane in enumerate(lanes)}
    trace.name_process(process, row.title)
    for lane, number in thread.items():
        trace.name_row(process, number, lane)
    for op in ops:
        begin, end = row.times[op.key]
        amount = {"bytes" if op.kind.moves else "operations": op.amount}
        told = {key: value for key in ("layer", "microbatch", "segment") if (value := getattr(op, key)) >= 0}
        made_of = {"of": list(map(str, op.of))} if op.of else {}
        trace.box(process, thread[op.lane], str(op.key), begin, end, str(op.kind), **amount, **told, **made_of)
        for dep in op.deps:
            other = row.plan.graph[dep]
            if other.device == row.device and other.kind.moves and dep in row.times:
                arrived = row.times[dep][1]
                start, arrival = (thread[other.lane], arrived), (thread[op.lane], max(arrived, begin))
                trace.arrow(process, "waits", f"{process}.{dep}>{op.key}", start, arrival)
