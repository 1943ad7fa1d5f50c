"""A Program with its references resolved to rows of its tables, for simulation and traffic.

A *row* of a slot is its position in `program.slots`; a *row* of an instruction its position in `program.instructions`;
lanes are numbered consecutively over all agents. One *connection* is one (source, destination, channel) FIFO. The
checker resolves references itself, to stay independent.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony.synth.model.instructions import HAS_DST, HAS_SRC, RECEIVES, SENDS, Opcode
from syntony.synth.model.program import Program

Column = NDArray[np.int64]


class References:
    """See the module docstring. Arrays are int64, one entry per instruction unless said otherwise; -1 means none.

    agent, opcode, count, skew    as in the table of instructions
    lane                          the lane of each instruction
    lane_first, lane_agent        (L,) the first instruction of each lane, and its agent
    dst, src                      the first slot row that it writes, and reads
    slot_chunk                    (S,) the chunk of each slot
    dependency, dependency_owner  (D,) the instruction to wait for, and the waiting instruction
    into, out                     the connections that it receives from and sends on
    partner                       the instruction that sends what it receives; for Programs whose messages match
    connections                   (C, 3) source, destination and channel of each
    """

    def __init__(self, program: Program) -> None:
        def column(name: str) -> Column:
            return program.field(name).astype(np.int64)

        self.program = program
        self.agent, self.opcode, self.count, self.skew = map(column, ("agent", "opcode", "count", "skew"))
        self.lane_first, self.lane_agent = (start.astype(np.int64) for start in program.lane_start)
        rows = len(self.agent)
        self.lane: Column = np.repeat(np.arange(len(self.lane_first)), np.diff(np.r_[self.lane_first, rows]))
        self.slot_chunk: Column = program.slots[:, 2].astype(np.int64)
        peer = column("send_peer")
        self.dst: Column = self._slots("dst", HAS_DST, np.where(self.opcode == Opcode.peer_write, peer, self.agent))
        self.src: Column = self._slots("src", HAS_SRC, np.where(self.opcode == Opcode.peer_read, peer, self.agent))

        lanes = np.bincount(self.lane_agent, minlength=program.ranks)
        first_lane = np.cumsum(lanes) - lanes
        self.dependency_owner: Column = np.repeat(np.arange(rows), column("dependency_count"))
        lane = first_lane[self.agent[self.dependency_owner]] + program.dependencies[:, 0]
        self.dependency: Column = self.lane_first[lane] + program.dependencies[:, 1]

        receives, sends, channel = RECEIVES[self.opcode], SENDS[self.opcode], column("channel")
        shape = (program.ranks, program.ranks, program.channels)
        into = np.ravel_multi_index((column("recv_peer"), self.agent, channel), shape, mode="wrap")[receives]
        out = np.ravel_multi_index((self.agent, peer, channel), shape, mode="wrap")[sends]
        keys, number = np.unique(np.r_[into, out], return_inverse=True)
        self.connections: Column = np.stack(np.unravel_index(keys, shape), axis=1)
        self.into: Column = np.full(rows, -1)
        self.out: Column = np.full(rows, -1)
        self.into[receives], self.out[sends] = np.split(number, [np.count_nonzero(receives)])

    @cached_property
    def partner(self) -> Column:
        """One lane feeds a connection and one lane drains it, so order alone matches messages."""
        found = np.full(len(self.opcode), -1)
        senders, takers = (np.flatnonzero(column >= 0) for column in (self.out, self.into))
        by_connection = [np.argsort(self.out[senders], kind="stable"), np.argsort(self.into[takers], kind="stable")]
        found[takers[by_connection[1]]] = senders[by_connection[0]]
        return found

    def _slots(self, end: str, used: NDArray[np.bool_], owner: Column) -> Column:
        rows = np.flatnonzero(used[self.opcode])
        space, index = self.program.field(f"{end}_space"), self.program.field(f"{end}_index")
        found = np.full(len(self.opcode), -1)
        found[rows] = self.program.space_start[owner[rows], space[rows]] + index[rows]
        return found
