"""A Program with every reference resolved to a row of its tables, as plain lists: the checker's working form.

A *row* of a slot is its position in `program.slots`; a *row* of an instruction its position in `program.instructions`;
lanes are numbered consecutively over all agents. One *connection* is one (source, destination, channel) FIFO.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.synth.checker.verdict import FaultError, Verdict, Waiting
from syntony.synth.model.instructions import HAS_DST, HAS_SRC, RECEIVES, SENDS, Opcode
from syntony.synth.model.program import Program

Column = NDArray[np.int64]


class Resolved:
    """See the module docstring. Arrays are int64, one entry per instruction unless said otherwise; -1 means none."""

    def __init__(self, program: Program) -> None:
        self.program = program
        agent, opcode = program.field("agent").astype(np.int64), program.field("opcode")
        peer = program.field("send_peer")
        self.agent: Column = agent
        self.opcode: Column = opcode.astype(np.int64)
        self.count: Column = program.field("count").astype(np.int64)
        self.skew: Column = program.field("skew").astype(np.int64)
        self.position: Column = program.position.astype(np.int64)

        self.lane_first, lane_agent = (column.astype(np.int64) for column in program.lane_start)
        self.lane_end: Column = np.r_[self.lane_first[1:], len(agent)].astype(np.int64)[: len(self.lane_first)]
        self.lane_agent: Column = lane_agent
        self.lane: Column = np.repeat(np.arange(len(lane_agent)), self.lane_end - self.lane_first)
        lanes = np.bincount(lane_agent, minlength=program.ranks)
        self.agent_lane: Column = np.cumsum(lanes) - lanes

        start = program.space_start.astype(np.int64)
        self.dst: Column = self._rows("dst", HAS_DST, np.where(opcode == Opcode.peer_write, peer, agent), start)
        self.src: Column = self._rows("src", HAS_SRC, np.where(opcode == Opcode.peer_read, peer, agent), start)
        self.slot_chunk: Column = program.slots[:, 2].astype(np.int64)
        """(S,) the chunk of each slot row."""

        owner = np.repeat(np.arange(len(agent)), program.field("operand_count"))
        self.operand_owner: Column = owner
        self.operand: Column = start[agent[owner], program.operands[:, 0]] + program.operands[:, 1]
        """(O,) the first slot row of each operand; `operand_owner` is its instruction."""
        owner = np.repeat(np.arange(len(agent)), program.field("dependency_count"))
        lane = self.agent_lane[agent[owner]] + program.dependencies[:, 0]
        self.dependency_owner: Column = owner
        self.dependency: Column = self.lane_first[lane] + program.dependencies[:, 1] if len(lane) else lane
        """(D,) the instruction row that must be done first; `dependency_owner` is the waiting instruction."""

        channels = program.channels
        receives, sends = RECEIVES[opcode], SENDS[opcode]
        channel = program.field("channel").astype(np.int64)
        into = (program.field("recv_peer") * program.ranks + agent) * channels + channel
        out = (agent * program.ranks + peer) * channels + channel
        keys, number = np.unique(np.r_[into[receives], out[sends]], return_inverse=True)
        self.connections: list[tuple[int, int, int]] = [
            (key // channels // program.ranks, key // channels % program.ranks, key % channels) for key in keys.tolist()
        ]
        self.into: Column = np.full(len(agent), -1)
        self.out: Column = np.full(len(agent), -1)
        self.into[receives] = number[: receives.sum()]
        self.out[sends] = number[receives.sum() :]
        self.partner: Column = np.full(len(agent), -1)
        """The send that feeds a receive; filled by `connections.match`."""

    def _rows(self, end: str, used: NDArray[np.bool_], owner: Column, start: Column) -> Column:
        used = used[self.program.field("opcode")]
        rows = np.full(len(used), -1)
        space, index = self.program.field(f"{end}_space"), self.program.field(f"{end}_index")
        rows[used] = start[owner[used], space[used]] + index[used]
        return rows

    def lists(self, owner: Column, values: Column) -> list[tuple[int, ...]]:
        """`values` grouped by instruction."""
        grouped: list[list[int]] = [[] for _ in range(len(self.opcode))]
        for row, value in zip(owner.tolist(), values.tolist(), strict=True):
            grouped[row].append(value)
        return [tuple(group) for group in grouped]

    def slot(self, row: int) -> str:
        """ "input[3] of rank 2 (chunk 7)" for a slot row."""
        agent, space, chunk = self.program.slots[row].tolist()
        index = row - int(self.program.space_start[agent, space])
        return f"{('input', 'output', 'scratch')[space]}[{index}] of rank {agent} (chunk {chunk})"

    def connection(self, number: int) -> str:
        """ "rank 0 -> rank 1 on channel 2"."""
        src, dst, channel = self.connections[number]
        return f"rank {src} -> rank {dst} on channel {channel}"

    def fault(
        self,
        row: int,
        message: str,
        chunk: int | None = None,
        timeline: tuple[str, ...] = (),
        circle: tuple[Waiting, ...] = (),
    ) -> FaultError:
        """A fault at an instruction."""
        return FaultError(
            Verdict(
                valid=False,
                fault=f"{self.program.where(row)}: {message}",
                agent=int(self.agent[row]),
                lane=int(self.program.field("lane")[row]),
                instruction=int(self.position[row]),
                chunk=chunk,
                timeline=timeline,
                circle=circle,
            )
        )
