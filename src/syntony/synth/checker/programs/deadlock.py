"""Explains a deadlock: how far each lane came, what it waits for, and the cycle in which lanes wait.

    rank 0 lane 0 [#!.....]  1 (recv_copy_send) waits for room in rank 0 -> rank 1 on channel 0, which holds 1 of 1
    rank 1 lane 0 [#!.....]  1 (recv_copy_send) waits for room in rank 1 -> rank 0 on channel 0, which holds 1 of 1
    circle: rank 0 lane 0 -> rank 1 lane 0 -> rank 0 lane 0

Every blocked lane waits for exactly one lane: the one that would send, receive, or perform what it needs. So following
the waits from any blocked lane ends in a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from syntony.synth.checker.programs.resolved import Resolved
from syntony.synth.checker.verdict import FaultError, Waiting
from syntony.synth.model.instructions import RECEIVES, SENDS

_SHOWN_LANES = 16


@dataclass(frozen=True)
class Standstill:
    """The state in which nothing can move: next instruction row per lane, messages sent and received per connection."""

    fifo_depth: int
    next_row: list[int]
    sent: list[int]
    taken: list[int]


@dataclass(frozen=True)
class _Wait:
    lane: int
    why: str
    for_room: bool = False


def deadlock(code: Resolved, state: Standstill) -> FaultError:
    """The fault, at the first lane of a cycle, with its timeline."""
    blocked = {lane: row for lane, row in enumerate(state.next_row) if row < code.lane_end[lane]}
    waits = _waits(code, state, blocked)
    circles = _circles({lane: wait.lane for lane, wait in waits.items()})
    # A cycle in which no lane waits for room deadlocks at every FIFO depth.
    endless = [circle for circle in circles if not any(waits[lane].for_room for lane in circle)]
    circle = (endless or circles)[0]
    first = blocked[circle[0]]
    done = sum(state.next_row) - int(code.lane_first.sum())
    depth = "any FIFO depth" if endless else f"FIFO depth {state.fifo_depth}"
    lanes = "1 lane" if len(circle) == 1 else f"{len(circle)} lanes"
    message = (
        f"deadlock at {depth} after {done} of {len(code.opcode)} instructions: "
        f"it {waits[circle[0]].why}, in a circle of {lanes}"
    )
    slot = code.dst[first] if code.dst[first] >= 0 else code.src[first]
    chunk = int(code.slot_chunk[slot]) if slot >= 0 else None
    told = tuple(_waiting(code, lane, blocked[lane], waits[lane].why) for lane in circle)
    return code.fault(first, message, chunk, _timeline(code, blocked, waits, circle), told)


def _waiting(code: Resolved, lane: int, row: int, why: str) -> Waiting:
    agent, begin = int(code.lane_agent[lane]), int(code.lane_first[lane])
    instruction = code.program.where(row).partition(", instruction ")[2]
    return Waiting(
        agent, lane - int(code.agent_lane[agent]), instruction, why, row - begin, int(code.lane_end[lane]) - begin
    )


def _waits(code: Resolved, state: Standstill, blocked: dict[int, int]) -> dict[int, _Wait]:
    """Per blocked lane, what it waits for."""
    dependencies = code.lists(code.dependency_owner, code.dependency)
    feeder: dict[int, int] = {}
    drainer: dict[int, int] = {}
    for row, opcode in enumerate(code.opcode.tolist()):
        if RECEIVES[opcode]:
            drainer[int(code.into[row])] = int(code.lane[row])
        if SENDS[opcode]:
            feeder[int(code.out[row])] = int(code.lane[row])

    def wait(row: int) -> _Wait:
        for needed in dependencies[row]:
            lane = int(code.lane[needed])
            if state.next_row[lane] <= needed:
                return _Wait(lane, f"waits for {code.program.where(needed)}")
        source, target = int(code.into[row]), int(code.out[row])
        if source >= 0 and state.taken[source] == state.sent[source]:
            return _Wait(feeder[source], f"waits for message {state.taken[source]} of {code.connection(source)}")
        held = f"which holds {state.fifo_depth} of {state.fifo_depth}"
        return _Wait(drainer[target], f"waits for room in {code.connection(target)}, {held}", for_room=True)

    return {lane: wait(row) for lane, row in blocked.items()}


def _timeline(code: Resolved, blocked: dict[int, int], waits: dict[int, _Wait], circle: list[int]) -> tuple[str, ...]:
    """One line per blocked lane, those of the cycle first, then the cycle."""
    agents = code.lane_agent.tolist()
    names = {lane: f"rank {agents[lane]} lane {lane - int(code.agent_lane[agents[lane]])}" for lane in blocked}
    width = max(map(len, names.values()))
    lines = []
    for lane in [*circle, *(lane for lane in blocked if lane not in circle)][:_SHOWN_LANES]:
        instruction = code.program.where(blocked[lane]).partition(", instruction ")[2]
        lines.append(f"{names[lane]:<{width}} {_progress(code, lane, blocked[lane])} {instruction} {waits[lane].why}")
    if len(blocked) > _SHOWN_LANES:
        lines.append(f".. and {len(blocked) - _SHOWN_LANES} more lanes wait")
    lines.append("circle: " + " -> ".join(names[lane] for lane in [*circle, circle[0]]))
    return tuple(lines)


def _circles(waits_for: dict[int, int]) -> list[list[int]]:
    """The cycles of a graph in which every node has one successor."""
    circles: list[list[int]] = []
    seen: set[int] = set()
    for start in waits_for:
        path: list[int] = []
        node = start
        while node not in seen:
            seen.add(node)
            path.append(node)
            node = waits_for[node]
        if node in path:
            circles.append(path[path.index(node) :])
    return circles


def _progress(code: Resolved, lane: int, row: int, width: int = 24) -> str:
    """ "[###!....]": done, blocked here, not started; one mark per instruction, or per several in long lanes."""
    length, done = int(code.lane_end[lane] - code.lane_first[lane]), row - int(code.lane_first[lane])
    marks = min(width, length)
    at = min(marks - 1, done * marks // length)
    return f"[{'#' * at}!{'.' * (marks - at - 1)}]".ljust(width + 2)
