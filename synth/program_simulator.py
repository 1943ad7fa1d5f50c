"""The simulator of Programs: lanes that step through their instructions slice by slice, and FIFOs between them.

    rank 0, lane 0:  send ─────────────▶ send ─────────▶ ..       a send lasts until its last byte is on the wire
    FIFO 0 -> 1      [=== slice 0 ===]·alpha·▶[=== slice 1 ===]   room for `fifo_depth` messages, on the wire or there
    rank 1, lane 2:                  recv_reduce_send ──▶ ..      takes a message once it is there; its place in the
                                                                  FIFO is free again when the instruction is done

What an executor does (csrc/core/runtime/executor.hpp), timed by the wires alone: every lane runs its list once per
slice; an instruction waits for its dependencies in the same slice, for its message, for room; an empty slice of a chunk
is not sent. Copies, reductions, the way back of FIFO credits and peer_read requests cost nothing in v1.

A Program names no links. A message takes a route of fewest links from rank to rank; where there are several, channel c
takes the c-th of them, round and round. Slices are cut by the byte, not by the element.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from synth.bounds.throughput import bounds_of
from synth.checker.resolved import Resolved
from synth.collective import Collective
from synth.connections import Connections, Kind
from synth.counted import counted
from synth.message_sizes import MessageSizes
from synth.network import Network
from synth.program import Opcode, Program
from synth.simulation import Messages, Simulation, StuckError, busy_seconds
from synth.steady_state import SteadyState
from synth.target import CPU
from synth.wires import Wires
from topologies.command import UserError
from topologies.topology import Topology


def executor_slice(ranks: int) -> int:
    """Bytes of the CPU executor's longest message: one slot of its streams (csrc/core/runtime/fabric.cpp)."""
    return 128 * 1024 if ranks <= 16 else 64 * 1024


# States are told apart to this fraction of a full message, in bytes and in seconds.
_STATE_PRECISION = 1e-6
_FINISHED = -(1 << 62)


def simulate_program(
    program: Program,
    topology: Topology,
    size: int,
    slice_bytes: int | None = None,
    fifo_depth: int | None = None,
    every_message: bool = False,
) -> Simulation:
    """Simulates `size` bytes (as `Collective` defines size), rank i of the Program on rank i of the topology.

    slice_bytes    a message's most bytes (default: the CPU executor's); a chunk's slice is that over the most slots of
                   any message of the Program
    fifo_depth     messages that a connection holds; default: the CPU executor's, or more where the Program claims more
    every_message  simulates every slice and returns its messages; else steady states are skipped
                   (synth/steady_state.py) and no messages are returned

    The Program must have passed the checker. Raises UserError where the topology has another number of ranks or no
    route between ranks that talk, and StuckError where a FIFO of `fifo_depth` is too short.
    """
    if program.ranks != topology.ranks:
        raise UserError(
            f"program '{program.name}' is for {counted(program.ranks, 'rank')}, "
            f"but {topology.name} has {topology.ranks}"
        )
    collective = Collective.make(program.collective, program.ranks, root=program.root)
    code = Resolved(program)
    sizes = MessageSizes(code, size, slice_bytes or executor_slice(program.ranks))
    connections = Connections.of(code, Network(topology, collective))
    wires = Wires(topology, connections.routes)
    run = _Run(code, sizes, connections, wires, fifo_depth or max(CPU.fifo_depth, program.fifo_depth), every_message)
    run.finish()
    carried = np.zeros(len(connections.routes))
    for row, connection in enumerate(connections.out):
        if connection >= 0:
            carried[connections.route[connection]] += sizes.total(row)
    return Simulation(
        program,
        topology,
        collective,
        size,
        wires.now,
        bounds_of(topology, collective).seconds(size),
        connections.routes,
        run.log.messages(),
        busy_seconds(topology, connections.routes, carried),
    )


class _Log:
    """What went over the wires, when that is asked for."""

    def __init__(self, connections: Connections) -> None:
        self._route = connections.route
        self._rows: list[tuple[int, int, int]] = []
        self._times: tuple[list[float], list[float], list[float]] = [], [], []
        self._on_the_way: list[deque[int]] = [deque() for _ in connections.kind]

    def started(self, connection: int, row: int, slice_: int, now: float) -> None:
        self._on_the_way[connection].append(len(self._rows))
        self._rows.append((row, slice_, self._route[connection]))
        for column in self._times:
            column.append(now)

    def happened(self, arrived: bool, connection: int, now: float) -> None:
        # Messages of a connection leave one after another, and arrive in the order in which they left.
        waiting = self._on_the_way[connection]
        if arrived:
            self._times[2][waiting.popleft()] = now
        else:
            self._times[1][waiting[-1]] = now

    def messages(self) -> Messages:
        row, slice_, route = np.asarray(self._rows, np.int64).reshape(-1, 3).T
        return Messages(row, slice_, route, *(np.asarray(column) for column in self._times))


class _Run:
    """One simulation: the state between two events. Lanes, instructions (rows) and connections are numbered through.

    progress[lane]      instructions done, over all slices
    held[c], there[c]   messages in FIFO c, and those of them that have arrived
    """

    def __init__(
        self,
        code: Resolved,
        sizes: MessageSizes,
        connections: Connections,
        wires: Wires,
        fifo_depth: int,
        every_message: bool,
    ) -> None:
        self._code, self._sizes, self._connections, self._wires = code, sizes, connections, wires
        self._depth = fifo_depth
        self.log = _Log(connections)
        self._steady = None if every_message else SteadyState(sizes.boundaries)
        self._every_message = every_message
        self._signals = np.isin(code.opcode, (Opcode.signal, Opcode.wait)).tolist()
        self._first = code.lane_first.tolist()
        self._length = (code.lane_end - code.lane_first).tolist()
        self._end = (sizes.slices[code.lane_agent] * self._length).tolist()
        # (lane, position) of what must be done first, per row.
        needed = zip(code.lane[code.dependency].tolist(), code.position[code.dependency].tolist(), strict=True)
        self._needs: list[list[tuple[int, int]]] = [[] for _ in code.opcode]
        for row, place in zip(code.dependency_owner.tolist(), needed, strict=True):
            self._needs[row].append(place)

        lanes = len(self._first)
        self._progress = [0] * lanes
        self._held, self._there = ([0] * len(connections.kind) for _ in range(2))
        self._sending = [False] * lanes
        self._asleep = [False] * lanes
        self._waiting: list[list[tuple[int, int]]] = [[] for _ in range(lanes)]  # (progress waited for, who waits)
        self._runnable = deque(range(lanes))

    def finish(self) -> None:
        """Runs to the end."""
        kinds, feeder, drainer = self._connections.kind, self._connections.feeder, self._connections.drainer
        self._run_lanes()
        leader, marked = 0, 0  # the first lane that is not done; where it was last looked for a steady state
        while events := self._wires.advance():
            for arrived, connection in events:
                if self._every_message:
                    self.log.happened(arrived, connection, self._wires.now)
                kind = kinds[connection]
                if arrived and kind is Kind.fifo:
                    self._there[connection] += 1
                    self._runnable.append(drainer[connection])
                elif arrived is (kind is Kind.read):
                    self._sent(feeder[connection])
            self._run_lanes()
            if self._steady is None:
                continue
            while leader < len(self._end) - 1 and self._progress[leader] == self._end[leader]:
                leader, marked = leader + 1, 0
            if self._progress[leader] >= marked:
                self._skip(self._steady, leader)
                marked = (self._progress[leader] // self._length[leader] + 1) * self._length[leader]
        for lane, (done, end) in enumerate(zip(self._progress, self._end, strict=True)):
            if done < end:
                raise self._stuck(lane)

    def _run_lanes(self) -> None:
        while self._runnable:
            self._advance(self._runnable.popleft())

    def _advance(self, lane: int) -> None:
        """Performs what the lane can perform now."""
        progress, there, held = self._progress, self._there, self._held
        length, first = self._length[lane], self._first[lane]
        out_of, into_of = self._connections.out, self._connections.into
        while not self._sending[lane] and not self._asleep[lane] and progress[lane] < self._end[lane]:
            slice_, position = divmod(progress[lane], length)
            row = first + position
            for other, at in self._needs[row]:
                goal = slice_ * self._length[other] + at + 1
                if progress[other] < goal:
                    self._waiting[other].append((goal, lane))
                    self._asleep[lane] = True
                    return
            out, into = out_of[row], into_of[row]
            size = self._sizes.of(row, slice_) if out >= 0 or into >= 0 else 0.0
            if not size and not self._signals[row]:
                self._done(lane)
                continue
            if into >= 0 and not there[into]:
                return
            if out >= 0:
                if self._connections.kind[out] is Kind.fifo:
                    if held[out] >= self._depth:
                        return
                    held[out] += 1
                self._sending[lane] = True
                self._wires.send(out, self._connections.route[out], size)
                if self._every_message:
                    self.log.started(out, row, slice_, self._wires.now)
                return
            self._take(into)
            self._done(lane)

    def _sent(self, lane: int) -> None:
        """The lane's instruction has put its message on the wire, or has read what it reads."""
        into = self._connections.into[self._first[lane] + self._progress[lane] % self._length[lane]]
        if into >= 0:
            self._take(into)
        self._sending[lane] = False
        self._done(lane)
        self._runnable.append(lane)

    def _take(self, connection: int) -> None:
        self._there[connection] -= 1
        self._held[connection] -= 1
        self._runnable.append(self._connections.feeder[connection])

    def _done(self, lane: int) -> None:
        self._progress[lane] += 1
        if not self._waiting[lane]:
            return
        still = []
        for goal, other in self._waiting[lane]:
            if goal <= self._progress[lane]:
                self._asleep[other] = False
                self._runnable.append(other)
            else:
                still.append((goal, other))
        self._waiting[lane] = still

    def _skip(self, steady: SteadyState, leader: int) -> None:
        """Leaves out whole periods of a steady state, counting slices from the leader's."""
        progress, length = np.asarray(self._progress), np.asarray(self._length)
        running = progress < np.asarray(self._end)
        if not running[leader]:
            return
        base, at = self._progress[leader] // self._length[leader], (progress // length)[running]
        moment = _STATE_PRECISION * self._sizes.slice / self._wires.fastest
        state = b"".join(
            (
                np.where(running, progress - base * length, _FINISHED).tobytes(),
                np.asarray((self._held, self._there)).tobytes(),
                self._wires.state(moment, _STATE_PRECISION * self._sizes.slice),
            )
        )
        skip = steady.skip(state, base, int(at.min()), int(at.max()), self._wires.now)
        if skip is None:
            return
        ahead = np.where(running, skip.slices * length, 0)
        self._progress = (progress + ahead).tolist()
        self._waiting = [
            [(goal + more, who) for goal, who in some] for some, more in zip(self._waiting, ahead.tolist(), strict=True)
        ]
        self._wires.skip(skip.seconds)

    def _stuck(self, lane: int) -> StuckError:
        """Why a lane stands still; the checker has proven that only short FIFOs can be the reason."""
        slice_, position = divmod(self._progress[lane], self._length[lane])
        return StuckError(
            f"{self._code.program.where(self._first[lane] + position)} never comes to its end in slice {slice_}: FIFOs "
            f"of {self._depth} are too short; the program needs {self._code.program.fifo_depth}"
        )
