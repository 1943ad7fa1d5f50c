"""Schedules and Programs as the traffic of jobs: their messages, without the wires that they were made for.

A Schedule's transfers have the same dependencies as in its own simulation (simulation/moves.py). A Program among
several jobs is a pattern like any other: its messages, each after those that it needs, slice by slice. A Program alone
is simulated with its FIFOs (traffic/program_run.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.synth.model.instructions import ONE_SIDED
from syntony.synth.model.program import Program
from syntony.synth.model.references import References
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.message_sizes import MessageSizes
from syntony.synth.simulation.moves import flows_of, moves_of
from syntony.synth.symmetry.groups import expand
from syntony.synth.traffic.choice import AS_SCHEDULED
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.messages import Messages
from syntony.synth.traffic.run import Traffic

MOST_SLICES = 16
"""The most slices of a Program's messages: enough to show pipelining."""
_MOST_MESSAGES = 200_000  # in all slices; large Programs are cut into fewer
_MOST_ARRIVALS = 3


def schedule_messages(schedule: Schedule, size: int, slice_bytes: int | None = None) -> Messages:
    """The transfers of a Schedule for `size` bytes, in slices of at most `slice_bytes` (default: one message each);
    a message from member 0 to itself joins the operands of a sum.

    Raises UserError for Schedules in which switches hold values, which only work on their own wires.
    """
    whole = expand(schedule)
    moves, collective = moves_of(whole), whole.collective
    if max(moves.src.max(initial=0), moves.dst.max(initial=0)) >= collective.ranks:
        raise UserError("switches take part in this schedule, so it cannot do without the wires that it is made for")
    moved = flows_of(moves, collective, size, slice_bytes)
    flows = moved.flows
    sums = np.zeros(len(flows) // moved.slices - len(moves), np.int64)
    src, dst = (np.tile(np.r_[ends, sums], moved.slices) for ends in (moves.src, moves.dst))
    owner = np.repeat(np.arange(len(flows)), np.diff(flows.after_offset))
    follows = np.full(len(flows), -1)
    follows[np.diff(flows.after_left_offset) > 0] = flows.after_left
    return Messages.make(
        collective.ranks, src, dst, np.where(src == dst, 0.0, flows.bytes), (owner, flows.after), follows=follows
    )


def as_scheduled(schedule: Schedule, size: int, slice_bytes: int | None = None) -> Traffic:
    """A Schedule on its own wires and routes, as the traffic of one job."""
    whole = expand(schedule)
    job = Job(schedule.collective.kind, schedule.collective.members, schedule_messages(whole, size, slice_bytes))
    flows = flows_of(moves_of(whole), whole.collective, size, slice_bytes).flows
    rows = np.arange(len(flows))
    return Traffic(schedule.topology, (job,), AS_SCHEDULED, flows, np.zeros_like(rows), rows)


def program_messages(program: Program, size: int) -> Messages:
    """The messages of a Program for `size` bytes, its chunks in at most MOST_SLICES slices.

    Raises UserError for one-sided Programs, which access the memory of other ranks.
    """
    code = References(program)
    if ONE_SIDED[code.opcode].any():
        row = int(np.argmax(ONE_SIDED[code.opcode]))
        raise UserError(f"{program.where(row)}: traffic is made of messages; this reaches into another rank's memory")
    return _Unrolled(code, size).messages()


class _Unrolled:
    """A Program's slice loops, unrolled into messages."""

    def __init__(self, code: References, size: int) -> None:
        self._code = code
        self._rows = np.flatnonzero(code.out >= 0)
        slices = max(1, min(MOST_SLICES, _MOST_MESSAGES // max(1, len(self._rows))))
        longest = float(MessageSizes(code, size, 1 << 62).total().max(initial=1.0))
        self._sizes = MessageSizes(code, size, max(1, int(np.ceil(longest / slices))))
        self._needs: list[list[int]] = [[] for _ in code.opcode]
        for owner, needed in zip(code.dependency_owner.tolist(), code.dependency.tolist(), strict=True):
            self._needs[owner].append(needed)
        self._feeds = code.partner.tolist()

    def messages(self) -> Messages:
        """Turn by turn (csrc/core/program/program.hpp), within a turn by sending row; empty messages are not sent.

        If a lane must wait for many arrivals, a message of its rank to itself waits for all of them.
        """
        code = self._code
        waits: list[tuple[int, int]] = []
        follows: list[int] = []
        src: list[int] = []
        dst: list[int] = []
        size: list[float] = []
        # What must precede an instruction: arrivals since the lane's last send, and that send.
        idle: tuple[frozenset[int], int] = (frozenset(), -1)
        before = dict.fromkeys(range(len(code.lane_first)), idle)
        done: dict[int, dict[int, tuple[frozenset[int], int]]] = {}  # by slice, by row
        in_order = self._in_order()
        peers = code.program.field("send_peer")
        slices, most = int(self._sizes.slices.max(initial=0)), int(code.skew.max(initial=0))
        for turn in range(slices + most if slices else 0):
            slice_ = turn - code.skew
            bytes_ = self._bytes(slice_)
            runs = (slice_ >= 0) & (slice_ < slices)
            sent = self._rows[(runs & ((bytes_ > 0) | self._sizes.signals))[self._rows]]
            number = dict(zip(sent.tolist(), range(len(follows), len(follows) + len(sent)), strict=True))
            follows += [-1] * len(sent)
            src += code.agent[sent].tolist()
            dst += peers[sent].tolist()
            size += bytes_[sent].tolist()
            done[turn] = {}
            for row in in_order:
                if not runs[row]:
                    continue
                lane, mine = int(code.lane[row]), done[int(slice_[row])]
                arrivals, last = before[lane]
                for needed in self._needs[row]:
                    others, other_last = mine[needed]
                    arrivals |= others if other_last < 0 else others | {other_last}
                if self._feeds[row] in number:
                    arrivals |= {number[self._feeds[row]]}
                if row in number:
                    waits += [(number[row], earlier) for earlier in sorted(arrivals)]
                    follows[number[row]] = last
                    arrivals, last = frozenset(), number[row]
                elif len(arrivals) > _MOST_ARRIVALS:
                    join = len(follows)
                    waits += [(join, earlier) for earlier in sorted(arrivals)]
                    follows.append(last)
                    src.append(int(code.agent[row]))
                    dst.append(int(code.agent[row]))
                    size.append(0.0)
                    arrivals, last = frozenset({join}), -1
                before[lane] = mine[row] = arrivals, last
            done.pop(turn - most, None)
        later, earlier = np.asarray(waits, np.int64).reshape(-1, 2).T
        return Messages.make(code.program.ranks, src, dst, size, (later, earlier), follows=follows)

    def _bytes(self, slice_: NDArray[np.int64]) -> NDArray[np.float64]:
        """Per instruction the bytes of its message in its slice."""
        sizes = self._sizes
        owner = np.repeat(np.arange(len(sizes.signals)), np.diff(sizes.chunk_offset))
        full = sizes.slice_bytes[sizes.chunk]
        part = np.clip(sizes.chunk_bytes[sizes.chunk] - slice_[owner] * full, 0.0, full)
        return np.bincount(owner, part, minlength=len(sizes.signals)).astype(float)

    def _in_order(self) -> list[int]:
        """All instructions, each after its predecessor in the lane and its dependencies, within a slice."""
        waiting = [len(needs) for needs in self._needs]
        releases: list[list[int]] = [[] for _ in self._needs]
        for row, needs in enumerate(self._needs):
            for needed in needs:
                releases[needed].append(row)
        at = self._code.lane_first.tolist()
        end = [*at[1:], len(self._needs)]
        order: list[int] = []
        ready = list(range(len(at)))
        while ready:
            lane = ready.pop()
            while at[lane] < end[lane] and not waiting[at[lane]]:
                row = at[lane]
                order.append(row)
                at[lane] += 1
                for released in releases[row]:
                    waiting[released] -= 1
                    other = int(self._code.lane[released])
                    if not waiting[released] and at[other] == released and other != lane:
                        ready.append(other)
        return order
