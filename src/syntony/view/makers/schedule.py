"""A schedule: chunks on wires, links and ranks over time, utilization against the bound, and alternatives.

Times are simulated for one size. For a symmetric schedule that would be huge when expanded, the listed transfers (one
of each orbit) are shown: all others are their images under the group and happen at the same times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil

import numpy as np

from syntony.base.command import UserError
from syntony.base.wording import counted, rate, time
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.program_simulator import simulate_program
from syntony.synth.simulation.result import Messages
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.simulation.usual_slice import usual_slice
from syntony.topologies.topology import Topology
from syntony.view.makers.moving import agent_lanes, last_arrival, link_lanes, start_and_end, use_of
from syntony.view.makers.network import drawing_of, witness_of
from syntony.view.models import ANOTHER, Curves, Grid, Motion, Question, Series, View, Words
from syntony.view.wording import size_name

_MOST = 150_000
"""The most transfers drawn one by one; beyond, only the representatives."""
_MOST_FLOWS = 12_000
_SIZES = [1 << power for power in range(10, 31, 2)]


def view(schedule: Schedule, file: str, size: int) -> View:
    """The View of a proven schedule."""
    topology, collective = schedule.topology, schedule.collective
    bounds = schedule.bounds or bounds_of(topology, collective)
    motion, busy, count = _motion(schedule, size)
    words, witness = witness_of(topology, collective, bounds)
    use = use_of(topology, busy, motion.seconds, size, bounds, words, witness)
    alternatives = others(topology, collective)
    curves, table, better = compared(topology, collective, schedule, alternatives, size)
    bound = bounds.seconds(size)
    reached = bound / motion.seconds if motion.seconds else 1.0
    busiest = use.names[0] if use.names else "no link"
    answer = f"{busiest} is the busiest: {use.busy[0]:.1%} of {time(motion.seconds)}. " if len(use.busy) else ""
    last, state = last_arrival(motion, topology)
    questions = [
        Question(
            "Which link limits?",
            answer + f"The bound: {words}.",
            use.title,
            {"link": int(use.link[0]) if len(use.link) else -1, "highlight": 0 if witness else -1},
        ),
        Question("Who is late?", last, "ranks over time", state),
        Question(ANOTHER, better, curves.title, {}),
    ]
    drawing = drawing_of(topology, "chunks on the wires", [witness] if witness else [])
    return View(
        f"{collective.kind} on {topology.name}",
        "schedule",
        file,
        f"{size_name(size)} take {time(motion.seconds)} (simulated); no schedule takes less than {time(bound)}, so "
        f"this one reaches {reached:.1%} of what is possible.",
        (
            replace(drawing, motion=motion),
            link_lanes(motion, topology, not motion.representative and len(topology.links) <= 512),
            agent_lanes(motion, topology),
            use,
            curves,
            table,
            _proof(schedule, words, reached),
        ),
        facts=(
            ("engine", schedule.engine or "unknown"),
            ("slices", f"of {size_name(_slice(schedule, size))}"),
            ("ranks", str(collective.ranks)),
            ("chunks", str(len(collective.chunks))),
            ("transfers", str(count)),
            ("steps", str(schedule.steps)),
            ("algbw", rate(size / motion.seconds) if motion.seconds else "-"),
            ("busbw", rate(size / motion.seconds * float(collective.bus_factor)) if motion.seconds else "-"),
            ("bound", time(bound)),
            ("of the bound", f"{reached:.1%}"),
        ),
        questions=tuple(questions),
    )


def _motion(schedule: Schedule, size: int) -> tuple[Motion, np.ndarray, int]:
    """The messages, the busy seconds of links, and the number of all transfers."""
    topology, collective = schedule.topology, schedule.collective
    listed = len(schedule.transfers)
    large = bool(schedule.symmetry) and listed * collective.ranks > _MOST
    found = simulate(schedule, size, _slice(schedule, size), every_message=not large, listed=large)
    whole = found.source
    assert isinstance(whole, Schedule)
    messages = found.messages
    folded = bool(whole.symmetry)
    row, start, left, arrival = _whole_messages(messages)
    moved, values = whole.transfers, whole.values
    chunk = values.chunk[moved.value[row]]
    shown, chunk = np.unique(chunk, return_inverse=True)
    agents = np.asarray(whole.agents)
    hops = np.diff(moved.offset)[row]
    offset = np.r_[0, np.cumsum(hops)]
    path = moved.link[np.repeat(moved.offset[row] - offset[:-1], hops) + np.arange(offset[-1])]
    share = np.ones(len(row), np.float32)
    if collective.combining:
        whole_sum = np.asarray([len(values.contributions(value)) for value in range(len(values))])
        share = (whole_sum[moved.result[row]] / collective.ranks).astype(np.float32)
    used = np.zeros(len(topology.nodes), bool)
    used[list(collective.members)] = True
    used[agents[np.r_[moved.src, moved.dst]]] = True
    weights = collective.chunks.weight
    alike = len(set(weights.tolist())) == 1
    names = [
        f"chunk {one}" + ("" if alike else f" ({float(collective.share(one)):.3g} of the size)")
        for one in shown.tolist()
    ]
    count, words = len(moved), ""
    if folded:
        orbit = _orbit(schedule)
        count = listed * orbit
        words = (
            f"The file lists {counted(listed, 'transfer')} of {counted(len(shown), 'chunk')}, shown here. A group of "
            f"{orbit} symmetries, from {counted(len(schedule.symmetry), 'generator')}, moves them to all {count}, "
            "which take place at the same times. Links are as busy as all of them make them."
        )
    motion = Motion(
        chunk.astype(np.int32),
        agents[moved.src[row]].astype(np.int32),
        agents[moved.dst[row]].astype(np.int32),
        moved.step[row].astype(np.int32),
        start,
        left,
        arrival,
        share,
        (moved.value[row] != moved.result[row]).astype(np.uint8),
        offset.astype(np.int32),
        path.astype(np.int32),
        agents=np.flatnonzero(used).astype(np.int32),
        chunks=tuple(names),
        seconds=found.seconds,
        size=size,
        representative=words,
        **start_and_end(collective, shown),
    )
    return motion, found.busy, count


def _whole_messages(messages: Messages) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Row, start, left and arrival of messages from their first slice to their last, by start."""
    rows, at = np.unique(messages.row, return_inverse=True)
    start, left, arrival = np.full(len(rows), np.inf), np.zeros(len(rows)), np.zeros(len(rows))
    np.minimum.at(start, at, messages.start)
    np.maximum.at(left, at, messages.left)
    np.maximum.at(arrival, at, messages.arrival)
    order = np.argsort(start, kind="stable")
    return rows[order], start[order], left[order], arrival[order]


def _slice(schedule: Schedule, size: int) -> int:
    """The slice size of `syntony simulate`, limited to some ten thousand flows: a page simulates many sizes."""
    found = usual_slice(schedule, size)
    largest = float(schedule.collective.bytes_of_chunks(size).max())
    while len(schedule.transfers) * ceil(largest / found) > _MOST_FLOWS and found < largest:
        found *= 2
    return found


def _orbit(schedule: Schedule) -> int:
    """The order of the group: if it acts freely, the size of the orbit of a rank."""
    images, frontier = {0}, [0]
    while frontier:
        node = frontier.pop()
        for generator in schedule.symmetry:
            if (image := generator.nodes[node]) not in images:
                images.add(image)
                frontier.append(image)
    return len(images)


def others(topology: Topology, collective: Collective) -> dict[str, Callable[[int], float]]:
    """Built-in algorithms for the same collective, by name: their simulated seconds at a size."""
    from syntony import _core
    from syntony.synth.model.program import Program

    ranks = topology.ranks
    if ranks > 64 or collective.members != tuple(range(ranks)) or collective.root:
        return {}
    found: dict[str, Callable[[int], float]] = {}
    for entry in _core.algorithms():
        if collective.kind not in entry.collectives:
            continue
        try:
            program = _core.build(entry.name, collective.kind, ranks)
        except (ValueError, RuntimeError):
            continue  # does not support this number of ranks

        def seconds(size: int, program: Program = program) -> float:
            return simulate_program(program, topology, size).seconds

        found[entry.name] = seconds
    return found


def compared(
    topology: Topology,
    collective: Collective,
    schedule: Schedule,
    alternatives: dict[str, Callable[[int], float]],
    size: int,
) -> tuple[Curves, Grid, str]:
    """Time over size with built-in algorithms and the bound, the table at `size`, and the answer in words."""
    bounds = schedule.bounds or bounds_of(topology, collective)
    heavy = len(schedule.transfers) > 20_000
    sizes = sorted({*([size] if heavy else _SIZES), size})
    mine = {one: simulate(schedule, one, _slice(schedule, one)).seconds for one in sizes}
    rows: list[tuple[str, float]] = [("this schedule", mine[size])]
    axis = np.asarray(sizes, float)
    bus = float(collective.bus_factor)

    def curve(name: str, times: list[float], limit: bool = False) -> Series:
        return Series(
            name,
            axis,
            np.asarray([one * bus / took if took else np.nan for one, took in zip(sizes, times, strict=True)]),
            limit,
        )

    series = [curve("this schedule", [mine[one] for one in sizes])]
    for name, seconds in alternatives.items():
        try:
            times = [seconds(one) for one in sizes]
        except UserError:
            continue  # it connects ranks without a path between them
        series.append(curve(name, times))
        rows.append((name, times[sizes.index(size)]))
    series.append(curve("bound", [bounds.seconds(one) for one in sizes], limit=True))
    rows.sort(key=lambda row: row[1])
    best = rows[0][1]
    table = Grid(
        f"who is fastest at {size_name(size)}",
        ("schedule", "time, simulated", "of the bound", "times the fastest"),
        tuple(
            (
                name,
                time(took),
                f"{bounds.seconds(size) / took:.1%}" if took else "-",
                f"{took / best:.3f}" if best else "-",
            )
            for name, took in rows
        ),
        best=(next(at for at, (name, _) in enumerate(rows) if name == "this schedule"),),
    )
    rivals = [row for row in rows if row[0] != "this schedule"]
    limit = bounds.seconds(size)
    room = (
        f"No schedule can be faster than {time(limit)}: at most {mine[size] / limit:.3f} times as fast."
        if limit
        else ""
    )
    if not rivals:
        return _curves(series), table, room
    name, took = rivals[0]
    verdict = (
        f"{name}, the best of the built-in algorithms, would take {time(took)}, {took / mine[size]:.2f} times as long. "
        if took >= mine[size]
        else f"{name}, which is built in, would take {time(took)} instead of {time(mine[size])}: "
        f"{mine[size] / took:.2f} times as fast. "
    )
    return _curves(series), table, f"At {size_name(size)}: {verdict}{room}"


def _curves(series: list[Series]) -> Curves:
    words = "Simulated, at every size; busbw as nccl-tests define it. The dashed line is what no schedule can beat."
    return Curves(
        "bus bandwidth over size", ("size", "bytes"), ("busbw", "rate"), tuple(series), log_x=True, words=words
    )


def _proof(schedule: Schedule, witness: str, reached: float) -> Words:
    bounds, collective = schedule.bounds, schedule.collective
    combining = ", each contribution summed exactly once, in one declared order" if collective.combining else ""
    lines = [
        ("good", f"Result: at the end every rank that must have a chunk has it{combining}."),
        ("good", "Order: no transfer starts before its source holds what it sends, so nothing waits for ever."),
        ("good", "Wires: every route is made of links that exist, from end to end, through switches and NICs only."),
        ("good", "Necessity: no transfer is listed twice."),
    ]
    if bounds:
        latency = bounds.latency
        lines += [
            (
                "proof",
                f"Throughput bound, recomputed from its witness: {witness}. "
                f"Hence at most {rate(bounds.throughput.algbw)} of the size per second.",
            ),
            (
                "proof",
                f"Latency bound: some chunk must take {counted(latency.steps, 'step')}, {time(latency.seconds)} "
                "of latency.",
            ),
        ]
    if schedule.proof:
        lines.append(("proof", f"The engine proved: {schedule.proof}"))
    lines.append(("plain", f"Gap: what was simulated reaches {reached:.1%} of the larger bound."))
    return Words("what is proven", tuple(lines))  # type: ignore[arg-type]
