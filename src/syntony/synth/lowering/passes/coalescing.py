"""Coalescing: consecutive messages on one connection become one if their slots are adjacent.

    send input[0]   ┐                                      recv output[4]   ┐
    send input[1]   ┴▶  send input[0..1]  ──one message──▶ recv output[5]   ┴▶  recv output[4..5]

Only messages of one path are joined: one lane produced their data, or the data is there from the start. So the first
has little to wait for. The joined send takes the position of the last one, the joined receive that of the first one.
This is allowed if all of the sends precede all of the receives and nothing in between touches what would move.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace

from syntony.synth.lowering.passes.tape import Slot, Step, Tape, slots_from
from syntony.synth.model.instructions import Opcode


def coalesced(tape: Tape, limit: int | None) -> Tape:
    """Joins messages, at most `limit` slots each, until none can be joined any more."""
    while True:
        shorter = _joined(tape, limit)
        if len(shorter.steps) == len(tape.steps):
            return tape
        tape = shorter.sorted()


def _joined(tape: Tape, limit: int | None) -> Tape:
    touches: dict[tuple[int, Slot], list[int]] = defaultdict(list)
    writes: dict[tuple[int, Slot], list[int]] = defaultdict(list)
    lane_behind: dict[tuple[int, Slot], int] = {}
    path: list[set[int]] = []  # per step, the lanes that wrote what it reads; -1: it is input
    for position, step in enumerate(tape.steps):
        path.append({lane_behind.get((step.rank, slot), -1) for slot in step.read()})
        lane_behind.update(((step.rank, slot), step.lane) for slot in step.written())
        for slot in step.read():
            touches[step.rank, slot].append(position)
        for slot in step.written():
            touches[step.rank, slot].append(position)
            writes[step.rank, slot].append(position)

    def quiet(log: dict[tuple[int, Slot], list[int]], step: Step, first: Slot | None, since: int, until: int) -> bool:
        """Whether the log has no entry for the step's slots from `first` on between the two positions."""
        for slot in slots_from(first, step.count) if first is not None else ():
            positions = log[step.rank, slot]
            at = bisect_left(positions, since + 1)
            if at < len(positions) and positions[at] < until:
                return False
        return True

    messages: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    for taken, given in enumerate(tape.senders()):
        if given >= 0:
            messages[tape.steps[taken].source].append((given, taken))
    steps: list[Step | None] = list(tape.steps)
    for pairs in messages.values():
        group: list[tuple[int, int]] = []
        for given, taken in pairs:
            send, receive = tape.steps[given], tape.steps[taken]
            fits = (
                bool(group)
                and (limit is None or sum(tape.steps[g].count for g, _ in group) + send.count <= limit)
                and _continues(tape.steps[group[-1][0]], send)
                and _continues(tape.steps[group[-1][1]], receive)
                and path[given] == path[group[0][0]]
                and path[taken] == path[group[0][1]]
                and given < group[0][1]
                and all(quiet(writes, tape.steps[g], tape.steps[g].src, g, given) for g, _ in group)
                and quiet(touches, receive, receive.dst, group[0][1], taken)
                and quiet(writes, receive, receive.src, group[0][1], taken)
            )
            if not fits:
                _join(tape, steps, group)
                group = []
            group.append((given, taken))
        _join(tape, steps, group)
    return tape.with_steps(steps)


def _continues(first: Step, second: Step) -> bool:
    """Whether the second's slots begin where the first's end, and it is of the same kind."""
    if first.opcode != second.opcode or first.opcode not in (Opcode.send, Opcode.recv, Opcode.recv_reduce):
        return False
    return all(
        a is None or b == (a[0], a[1] + first.count) for a, b in ((first.dst, second.dst), (first.src, second.src))
    )


def _join(tape: Tape, steps: list[Step | None], group: list[tuple[int, int]]) -> None:
    if len(group) < 2:
        return
    count = sum(tape.steps[given].count for given, _ in group)
    first_given, first_taken = group[0]
    for given, taken in group:
        steps[given] = steps[taken] = None
    steps[group[-1][0]] = replace(tape.steps[first_given], count=count)
    steps[first_taken] = replace(tape.steps[first_taken], count=count)
