"""Traffic as a Chrome trace (chrome://tracing, Perfetto): a process per job, rows per sending rank, and the busiest
links as curves.

    job a   rank 0   [compute][to rank 4    ][to rank 1]
            rank 4   [compute][to rank 1  ]
    links   leaf0 -> spine1   ▁▁▁▂███▅▅▁▁   bytes/s
"""

from __future__ import annotations

import heapq
from pathlib import Path

import numpy as np

from syntony.base.files.chrome_trace import ChromeTrace
from syntony.synth.traffic.run import Outcome

_CURVES = 32  # links
_ROWS = 1000  # per rank: room for this many simultaneous messages


def write_trace(outcome: Outcome, path: str | Path) -> None:
    """Writes the trace; the outcome must have its timeline. Raises UserError if it cannot be written."""
    trace = ChromeTrace()
    _draw_jobs(trace, outcome)
    _draw_links(trace, outcome)
    trace.write(path)


def _draw_jobs(trace: ChromeTrace, outcome: Outcome) -> None:
    traffic, times = outcome.traffic, outcome.times
    for number, job in enumerate(traffic.jobs):
        trace.name_process(number, f"job {job.name}")
    rows: dict[tuple[int, int], list[tuple[float, int]]] = {}  # (job, rank) -> the end time of each of its rows
    for flow in np.argsort(times.start, kind="stable").tolist():
        number, message = int(traffic.flows.job[flow]), int(traffic.message[flow])
        job = traffic.jobs[number]
        start, computing = float(times.start[flow]), message < 0
        end = float(times.arrival[flow] if computing else times.left[flow])
        if not end > start:
            continue
        ends = (
            [-1, -1] if computing else [job.members[column[message]] for column in (job.messages.src, job.messages.dst)]
        )
        free = rows.setdefault((number, ends[0]), [])
        if free and free[0][0] <= start * (1 + 1e-9):
            row = heapq.heappop(free)[1]
        else:
            row = len(free)
            name = "computing" if computing else f"rank {ends[0]}" + (f" ({row + 1})" if row else "")
            trace.name_row(number, (ends[0] + 1) * _ROWS + row, name)
        heapq.heappush(free, (end, row))
        told: dict[str, float] = {"iteration": int(traffic.iteration[flow])}
        if not computing:
            told |= {"message": message, "bytes": float(traffic.flows.bytes[flow])}
        name = "compute" if computing else f"to rank {ends[1]}"
        trace.box(number, (ends[0] + 1) * _ROWS + row, name, start, end, **told)


def _draw_links(trace: ChromeTrace, outcome: Outcome) -> None:
    topology, times = outcome.traffic.topology, outcome.times
    process = len(outcome.traffic.jobs)
    trace.name_process(process, "busiest links")
    for link in np.argsort(-outcome.utilization, kind="stable")[:_CURVES].tolist():
        ends = topology.links[link]
        name = f"link {link}: {topology.nodes[ends.src].name} -> {topology.nodes[ends.dst].name}"
        rows = times.link == link
        for moment, speed in zip(times.times[rows].tolist(), times.rate[rows].tolist(), strict=True):
            trace.point(process, name, moment, **{"bytes/s": speed})
