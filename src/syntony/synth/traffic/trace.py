"""Traffic as a Chrome trace (chrome://tracing, Perfetto): a process per job, rows per sending rank, and the busiest
links as curves.

    job a   rank 0   [compute][to rank 4    ][to rank 1]
            rank 4   [compute][to rank 1  ]
    links   leaf0 -> spine1   ▁▁▁▂███▅▅▁▁   bytes/s
"""

from __future__ import annotations

import heapq
import json
from pathlib import Path
from typing import Any

import numpy as np

from syntony.synth.traffic.run import Outcome
from syntony.topologies.file_format import write_text

_CURVES = 32  # links
_ROWS = 1000  # per rank: room for so many messages at once


def write_trace(outcome: Outcome, path: str | Path) -> None:
    """Writes the trace; the outcome must have its timeline. Raises UserError when it cannot be written."""
    events = [*_jobs(outcome), *_links(outcome)]
    write_text(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))


def _jobs(outcome: Outcome) -> list[dict[str, Any]]:
    traffic, times = outcome.traffic, outcome.times
    events: list[dict[str, Any]] = []
    for number, job in enumerate(traffic.jobs):
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"job {job.name}"}})
    rows: dict[tuple[int, int], list[tuple[float, int]]] = {}  # (job, rank) -> when each of its rows is free
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
            tid = (ends[0] + 1) * _ROWS + row
            events.append({"ph": "M", "name": "thread_name", "pid": number, "tid": tid, "args": {"name": name}})
        heapq.heappush(free, (end, row))
        iteration = int(traffic.iteration[flow])
        told = {"iteration": iteration, "message": message, "bytes": float(traffic.flows.bytes[flow])}
        events.append(
            {
                "ph": "X",
                "name": "compute" if computing else f"to rank {ends[1]}",
                "pid": number,
                "tid": (ends[0] + 1) * _ROWS + row,
                "ts": start * 1e6,
                "dur": (end - start) * 1e6,
                "args": {"iteration": iteration} if computing else told,
            }
        )
    return events


def _links(outcome: Outcome) -> list[dict[str, Any]]:
    topology, times = outcome.traffic.topology, outcome.times
    process = len(outcome.traffic.jobs)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "args": {"name": "busiest links"}}
    ]
    for link in np.argsort(-outcome.utilization, kind="stable")[:_CURVES].tolist():
        ends = topology.links[link]
        name = f"link {link}: {topology.nodes[ends.src].name} -> {topology.nodes[ends.dst].name}"
        rows = times.link == link
        events += [
            {"ph": "C", "name": name, "pid": process, "ts": moment * 1e6, "args": {"bytes/s": speed}}
            for moment, speed in zip(times.times[rows].tolist(), times.rate[rows].tolist(), strict=True)
        ]
    return events
