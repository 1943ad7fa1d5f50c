"""A program (ours, MSCCL XML, an MSCCL++ plan): its messages on the wires of a topology, simulated.

A program names no links. Without a topology it is shown on one with a link between every pair of ranks, and the page
says so: who sends what to whom and in which order is then correct, but the times are not those of a machine.

A message is one sending instruction of one chunk, from its first slice to its last.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from syntony.base.command import UserError
from syntony.base.wording import counted, rate, time
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.model.collective import Collective
from syntony.synth.model.instructions import SENDS, Opcode
from syntony.synth.model.program import Program
from syntony.synth.model.references import References
from syntony.synth.simulation.program_simulator import simulate_program
from syntony.synth.simulation.result import Simulation
from syntony.topologies.topology import Topology
from syntony.view.makers.moving import agent_lanes, last_arrival, link_lanes, start_and_end, use_of
from syntony.view.makers.network import drawing_of, witness_of
from syntony.view.models import ANOTHER, Grid, Motion, Question, Tone, View, Words
from syntony.view.wording import size_name

_MOST_LISTED = 4000  # instructions shown in the listing
_ADDS = np.isin(np.arange(len(Opcode)), [Opcode.recv_reduce, Opcode.recv_reduce_send, Opcode.recv_reduce_copy_send])


def view(program: Program, topology: Topology, named: bool, file: str, size: int) -> View:
    """The View of a proven program. `named`: the user has chosen the topology."""
    if program.ranks != topology.ranks:
        raise UserError(
            f"{file}: the program is for {counted(program.ranks, 'rank')}, but {topology.name} has {topology.ranks}"
        )
    found = simulate_program(program, topology, size, every_message=True)
    motion = _motion(program, found, size)
    collective = found.collective
    bounds = bounds_of(topology, collective)
    words, witness = witness_of(topology, collective, bounds)
    use = use_of(topology, found.busy, found.seconds, size, bounds, words, witness)
    last, state = last_arrival(motion, topology)
    bound = bounds.seconds(size)
    reached = bound / found.seconds if found.seconds else 1.0
    busiest = f"{use.names[0]} is the busiest: {use.busy[0]:.1%} of {time(found.seconds)}. " if len(use.busy) else ""
    where = (
        f"on {topology.name}" if named else f"on {topology.name}, as the file does not name its wires (--topology does)"
    )
    questions = (
        Question(
            "Which link limits?",
            f"{busiest}The bound: {words}.",
            use.title,
            {"link": int(use.link[0]) if len(use.link) else -1, "highlight": 0 if witness else -1},
        ),
        Question("Who is late?", last, "ranks over time", state),
        Question(
            ANOTHER,
            f"No schedule takes less than {time(bound)} {where}: at most "
            f"{1 / reached:.3f} times as fast as this one. View two files side by side to compare them.",
            use.title,
        ),
    )
    drawing = drawing_of(topology, "chunks on the wires", [witness] if witness else [])
    lanes = len(program.lane_start[0])
    return View(
        program.name,
        "program",
        file,
        f"{collective.kind} of {size_name(size)} takes {time(found.seconds)} (simulated {where}), {reached:.1%} of "
        "what the bounds allow there.",
        (
            replace(drawing, motion=motion),
            link_lanes(motion, topology, len(topology.links) <= 512),
            agent_lanes(motion, topology),
            use,
            lane_table(program),
            listing(program),
            _proof(program, words),
        ),
        facts=(
            ("collective", program.collective),
            ("ranks", str(program.ranks)),
            ("chunks", str(len(program.chunks))),
            ("lanes", str(lanes)),
            ("instructions", str(len(program.instructions))),
            ("FIFO depth", str(program.fifo_depth)),
            ("busbw", rate(found.busbw)),
        ),
        questions=questions,
    )


def _motion(program: Program, found: Simulation, size: int) -> Motion:
    code = References(program)
    times = found.messages
    rows, at = np.unique(times.row, return_inverse=True)
    start = np.full(len(rows), np.inf)
    left, arrival = np.zeros(len(rows)), np.zeros(len(rows))
    np.minimum.at(start, at, times.start)
    np.maximum.at(left, at, times.left)
    np.maximum.at(arrival, at, times.arrival)
    path = np.zeros(len(rows), np.int64)
    path[at] = times.route
    opcode = code.opcode[rows]
    data = opcode != Opcode.signal
    rows, start, left, arrival, path, opcode = (x[data] for x in (rows, start, left, arrival, path, opcode))
    peer = program.field("send_peer")[rows]
    reads = opcode == Opcode.peer_read
    src, dst = np.where(reads, peer, code.agent[rows]), np.where(reads, code.agent[rows], peer)
    receiver = np.full(len(code.opcode), -1)
    takes = np.flatnonzero(code.partner >= 0)
    receiver[code.partner[takes]] = takes
    mate = receiver[rows]
    adds = (mate >= 0) & _ADDS[code.opcode[np.maximum(mate, 0)]] & SENDS[opcode]
    slot = np.where(code.src[rows] >= 0, code.src[rows], code.dst[rows])
    count = code.count[rows]
    each = np.repeat(np.arange(len(rows)), count)
    within = np.arange(len(each)) - np.repeat(np.cumsum(count) - count, count)
    order = np.argsort(start[each], kind="stable")
    each, within = each[order], within[order]
    chunk = code.slot_chunk[slot[each] + within]
    share, step = _contents(found.collective, chunk, src[each], dst[each], start[each], arrival[each])
    hops = np.asarray([len(found.routes[one]) for one in path[each].tolist()], np.int64)
    links = [link for one in path[each].tolist() for link in found.routes[one]]
    # A Program's chunks may be cut differently from those of the collective whose bounds are computed.
    cut = Collective.make(program.collective, program.ranks, root=program.root)
    cut = replace(cut, chunks=type(cut.chunks)(program.chunks[:, 0], program.chunks[:, 1]))
    return Motion(
        chunk.astype(np.int32),
        src[each].astype(np.int32),
        dst[each].astype(np.int32),
        step,
        start[each],
        left[each],
        arrival[each],
        share,
        adds[each].astype(np.uint8),
        np.r_[0, np.cumsum(hops)].astype(np.int32),
        np.asarray(links, np.int32),
        agents=np.arange(program.ranks, dtype=np.int32),
        chunks=tuple(f"chunk {number}" for number in range(len(program.chunks))),
        seconds=found.seconds,
        size=size,
        **start_and_end(cut, np.arange(len(program.chunks))),
    )


def _contents(
    collective: Collective, chunk: np.ndarray, src: np.ndarray, dst: np.ndarray, start: np.ndarray, arrival: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Per message, the share of the chunk's sum that its receiver then has, and its place in the chain of messages."""
    count, ranks = len(chunk), collective.ranks
    time_of, kind = np.r_[start, arrival], np.r_[np.ones(count, int), np.zeros(count, int)]
    seen: dict[tuple[int, int], int] = {}
    depth: dict[tuple[int, int], int] = {}
    carried, steps, share = [0] * count, np.zeros(count, np.int32), np.ones(count, np.float32)
    for event in np.lexsort((kind, time_of)).tolist():
        message = event % count
        what = int(chunk[message])
        if event < count:
            place = (int(src[message]), what)
            carried[message] = seen.get(place, 1 << place[0])
            steps[message] = depth.get(place, 0)
        else:
            place = (int(dst[message]), what)
            seen[place] = seen.get(place, 1 << place[0]) | carried[message]
            depth[place] = max(depth.get(place, 0), int(steps[message]) + 1)
            if collective.combining:
                share[message] = seen[place].bit_count() / ranks
    return share, steps


def lane_table(program: Program) -> Grid:
    """The work of each lane, in numbers."""
    first, agent = program.lane_start
    ends = np.r_[first[1:], len(program.instructions)]
    opcode, lane = program.field("opcode"), program.field("lane")
    rows = []
    for begin, end, rank in list(zip(first.tolist(), ends.tolist(), agent.tolist(), strict=True))[:2000]:
        names, counts = np.unique(opcode[begin:end], return_counts=True)
        told = ", ".join(
            f"{count} {Opcode(name).name}" for name, count in zip(names.tolist(), counts.tolist(), strict=True)
        )
        peers = [
            sorted({int(peer) for peer in program.field(f"{way}_peer")[begin:end] if peer >= 0})
            for way in ("recv", "send")
        ]
        rows.append(
            (
                f"rank {rank}",
                str(lane[begin]),
                str(end - begin),
                *(", ".join(map(str, ends)) or "-" for ends in peers),
                told,
            )
        )
    return Grid("lanes", ("rank", "lane", "instructions", "receives from", "sends to", "what"), tuple(rows))


def listing(program: Program, fault: tuple[int, int, int] | None = None) -> Words:
    """The instructions as text. `fault` (agent, lane, position) is marked; a long listing starts there."""
    lines, rank, lane, marked = str(program).split("\n"), -1, -1, -1
    told: list[tuple[Tone, str]] = []
    for line in lines:
        word = line.split()
        if line.startswith("rank "):
            rank, lane = int(word[1]), -1
        elif line.startswith("  lane "):
            lane = int(word[1])
        bad = fault is not None and (rank, lane) == fault[:2] and line.startswith("     ") and word[0] == str(fault[2])
        if bad:
            marked = len(told)
        told.append(("bad" if bad else "plain", f"{line}{'      <-- here' if bad else ''}"))
    first = max(0, marked - 40) if len(told) > 400 and marked >= 0 else 0
    shown = told[first : first + (400 if fault else _MOST_LISTED)]
    if len(shown) < len(told):
        shown.append(("plain", f".. {len(told) - len(shown)} more lines"))
    return Words("instructions", tuple(shown), preformatted=True)


def _proof(program: Program, witness: str) -> Words:
    summed = ", each contribution summed exactly once in the declared order" if "reduce" in program.collective else ""
    modes = [word for word, held in (("out of place", program.out_of_place), ("in place", program.in_place)) if held]
    return Words(
        "what is proven",
        (
            (
                "good",
                f"Result: every output slot ends with what {program.collective} says{summed}, {' and '.join(modes)}.",
            ),
            ("good", "Messages: every send has its receive, of the same chunks, in the order of its connection."),
            ("good", f"No deadlock with FIFOs of {counted(program.fifo_depth, 'message')}, whatever the lanes' speed."),
            ("good", "No race: of two lanes that touch a slot, one of them writing, one waits for the other."),
            (
                "good",
                "All sizes: chunks are shares of blocks, so the proof holds for every number of bytes, zero included.",
            ),
            ("proof", f"Throughput bound of the wires: {witness}."),
        ),
    )
