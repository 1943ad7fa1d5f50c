"""Proves termination: one abstract execution decides it for every timing.

Lanes are sequential processes; a blocked instruction waits for a message, for room in a FIFO, or for an instruction of
the same agent. Each of these conditions has one consumer, and once true it stays true until that very instruction is
performed: no action of another lane can disable it. Such a network is confluent (Kahn, "The semantics of a simple
language for parallel programming", 1974; room in a FIFO is a token that flows backwards): all maximal executions
perform the same instructions. So one execution in any order is enough: if it gets stuck, every execution deadlocks in
the same state; if it ends, all do. A greater FIFO depth only adds tokens, so a Program that ends at one depth ends at
any greater one. A receive that also sends is atomic: it needs its message and room at the same time.

Empty messages (slices of a chunk that is too short) are not sent, which only removes conditions. For many slices, let
every instruction run in turn (its slice + its skew), turn after turn, each turn ordered like the one-slice execution:

- lanes keep their order: skews never decrease within a slice, and lanes proceed by turns;
- a dependency has no greater skew (proven here), so for the same slice it is in an earlier turn, or earlier in this;
- both ends of a message have equal skew (connections.py): each turn sends and receives the same messages, a
  subsequence of those for one slice, so FIFOs are empty at its start and never hold more than for one slice.

So an execution that ends for one slice ends for any number of slices, at the same FIFO depth.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from syntony.synth.checker.programs.deadlock import Standstill, deadlock
from syntony.synth.checker.programs.resolved import Resolved
from syntony.synth.checker.verdict import FaultError, Verdict

Clock = dict[int, int]
"""What an instruction knows to be done by lane order and dependencies alone: lane -> position of its last instruction
known to be done. Only other lanes of the same agent; the own lane is known up to the instruction itself."""

_NOTHING: Clock = {}


@dataclass(frozen=True)
class Execution:
    """A complete execution.

    order   instruction rows in an order that respects lanes, dependencies and messages
    clocks  per instruction row, what it knows to be done (shared between instructions: never modify one)
    """

    order: list[int]
    clocks: list[Clock]


def execute(code: Resolved, fifo_depth: int) -> Execution:
    """Runs the Program abstractly at the FIFO depth; raises FaultError with a timeline on deadlock."""
    into, out, lane_of = code.into.tolist(), code.out.tolist(), code.lane.tolist()
    position = code.position.tolist()
    _dependency_skews(code)
    dependencies = code.lists(code.dependency_owner, code.dependency)
    sent, taken = [0] * len(code.connections), [0] * len(code.connections)
    for_message, for_room = [-1] * len(code.connections), [-1] * len(code.connections)
    for_lane: list[list[tuple[int, int]]] = [[] for _ in code.lane_first]
    next_row, end = code.lane_first.tolist(), code.lane_end.tolist()
    known: list[Clock] = [_NOTHING] * len(end)
    clocks: list[Clock] = [_NOTHING] * len(into)
    order: list[int] = []

    runnable = deque(range(len(end)))
    while runnable:
        lane = runnable.popleft()
        row, clock = next_row[lane], known[lane]
        while row < end[lane]:
            missing = next((d for d in dependencies[row] if next_row[lane_of[d]] <= d), -1)
            if missing >= 0:
                for_lane[lane_of[missing]].append((missing, lane))
                break
            source, target = into[row], out[row]
            if source >= 0 and taken[source] == sent[source]:
                for_message[source] = lane
                break
            if target >= 0 and sent[target] - taken[target] >= fifo_depth:
                for_room[target] = lane
                break
            if source >= 0:
                taken[source] += 1
                if for_room[source] >= 0:
                    runnable.append(for_room[source])
                    for_room[source] = -1
            if target >= 0:
                sent[target] += 1
                if for_message[target] >= 0:
                    runnable.append(for_message[target])
                    for_message[target] = -1
            for dependency in dependencies[row]:
                other = lane_of[dependency]
                if other != lane and clock.get(other, -1) < position[dependency]:
                    clock = _join(clock, clocks[dependency], lane)
                    clock[other] = position[dependency]
            clocks[row] = clock
            order.append(row)
            row += 1
            next_row[lane] = row
        known[lane] = clock
        if for_lane[lane]:
            runnable.extend(waiting for needed, waiting in for_lane[lane] if needed < row)
            for_lane[lane] = [entry for entry in for_lane[lane] if entry[0] >= row]

    if len(order) < len(into):
        raise deadlock(code, Standstill(fifo_depth, next_row, sent, taken))
    return Execution(order, clocks)


def _dependency_skews(code: Resolved) -> None:
    late = np.flatnonzero(code.skew[code.dependency] > code.skew[code.dependency_owner])
    if len(late):
        row, needed = int(code.dependency_owner[late[0]]), int(code.dependency[late[0]])
        raise code.fault(
            row,
            f"has skew {code.skew[row]}, but waits for {code.program.where(needed)} of skew {code.skew[needed]}; what "
            "waits must be at least as far behind",
        )


def _join(mine: Clock, theirs: Clock, lane: int) -> Clock:
    joined = dict(mine)
    for other, done in theirs.items():
        if other != lane and joined.get(other, -1) < done:
            joined[other] = done
    return joined


def deadlock_free(code: Resolved, fifo_depth: int) -> Verdict:
    """Whether the Program terminates at the FIFO depth."""
    try:
        execute(code, fifo_depth)
    except FaultError as fault:
        return fault.verdict
    return Verdict(valid=True)
