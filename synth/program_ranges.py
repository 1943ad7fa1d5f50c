"""What every Program must fulfil to be read at all: ranges, order, references. Column by column, in NumPy.

Refusals are `ProgramError`s that name rank, lane and instruction. That a Program is *right* is the checker's word.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from synth.program import (
    COLLECTIVES,
    HAS_DST,
    HAS_SRC,
    MAX_CHANNELS,
    MAX_SKEW,
    ONE_SIDED,
    RECEIVES,
    SENDS,
    Opcode,
    Program,
    ProgramError,
    Space,
)

Column = NDArray[np.signedinteger]
Marks = NDArray[np.bool_]


def check_ranges(program: Program) -> None:
    """Raises ProgramError at the first value that cannot be."""
    _check_scalars(program)
    _check_chunks(program)
    _check_slots(program)
    instructions = _Instructions(program)
    instructions.check_order()
    instructions.check_peers()
    instructions.check_slots()
    instructions.check_operands()
    instructions.check_dependencies()


def _check_scalars(p: Program) -> None:
    if not p.name:
        raise ProgramError("a program needs a name")
    if p.collective not in COLLECTIVES:
        raise ProgramError(f"'{p.collective}' is not a collective; the collectives are {', '.join(COLLECTIVES)}")
    if p.ranks < 1:
        raise ProgramError(f"a program has at least 1 rank, not {p.ranks}")
    if not 0 <= p.root < p.ranks:
        raise ProgramError(f"root {p.root} is not a rank; ranks are 0..{p.ranks - 1}")
    if not 1 <= p.fifo_depth < 2**31:
        raise ProgramError(f"fifo_depth is {p.fifo_depth}; a connection holds at least 1 message")
    if not (p.out_of_place or p.in_place):
        raise ProgramError("a program must claim out_of_place, in_place or both")


def _check_chunks(p: Program) -> None:
    if len(p.chunks) == 0:
        raise ProgramError("table 'chunks' is empty; every block has at least one chunk")
    jumps = np.diff(p.chunks[:, 0], prepend=-1)
    bad = np.flatnonzero((jumps != 0) & (jumps != 1))
    if len(bad):
        raise ProgramError(
            f"chunk {bad[0]} is of block {p.chunks[bad[0], 0]}; chunks go block by block: 0, .., 0, 1, .."
        )
    bad = np.flatnonzero(p.chunks[:, 1] < 1)
    if len(bad):
        raise ProgramError(f"chunk {bad[0]} has weight {p.chunks[bad[0], 1]}; a weight is at least 1")


def _check_slots(p: Program) -> None:
    agent, space, chunk = p.slots.T
    for values, limit, what in (
        (agent, p.ranks, "agent"),
        (space, len(Space), "space"),
        (chunk, len(p.chunks), "chunk"),
    ):
        bad = np.flatnonzero((values < 0) | (values >= limit))
        if len(bad):
            raise ProgramError(f"slot row {bad[0]} has {what} {values[bad[0]]}; it must be 0..{limit - 1}")
    key = agent.astype(np.int64) * 3 + space
    bad = np.flatnonzero(np.diff(key) < 0)
    if len(bad):
        raise ProgramError(f"slot row {bad[0] + 1} is out of order; slots go by agent, then space")


class _Instructions:
    """The instruction table, its columns, and the refusal of a row."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.agent, self.lane, self.opcode = (program.field(name) for name in ("agent", "lane", "opcode"))
        self.count = program.field("count")

    def refuse(self, bad: Marks, message: str, *columns: Column) -> None:
        """Refuses the first marked row; `{0}`, `{1}` in the message are its values in the columns."""
        if bad.any():
            row = int(np.argmax(bad))
            self.refuse_row(row, message.format(*(int(column[row]) for column in columns)))

    def refuse_row(self, row: int, message: str) -> NoReturn:
        """Refuses a row by rank, lane and position."""
        agent, lane = self.program.instructions[row, :2]
        position = np.count_nonzero(np.all(self.program.instructions[:row, :2] == (agent, lane), axis=1))
        raise ProgramError(f"rank {agent}, lane {lane}, instruction {position}: {message}")

    def check_order(self) -> None:
        """Agents and opcodes exist; rows go by agent, lane, position; lanes have no holes; counts, channels and skews
        fit."""
        agent, lane, opcode, ranks = self.agent, self.lane, self.opcode, self.program.ranks
        self.refuse((agent < 0) | (agent >= ranks), f"agent {{0}} does not exist; agents are 0..{ranks - 1}", agent)
        self.refuse(
            (opcode < 0) | (opcode >= len(Opcode)),
            f"opcode {{0}} does not exist; opcodes are 0..{len(Opcode) - 1}",
            opcode,
        )
        before = np.r_[agent[:1], agent[:-1]]
        self.refuse(agent < before, "instructions go by agent, then lane, then position")
        new_agent = np.r_[np.ones(len(agent[:1]), bool), agent[1:] != agent[:-1]]
        step = lane - np.where(new_agent, 0, np.r_[lane[:1], lane[:-1]])
        most = np.where(new_agent, 0, 1)
        self.refuse(
            (step < 0) | (step > most), "lane {0} is out of order; an agent's lanes are numbered 0, 1, ..", lane
        )
        self.refuse(self.count < 1, "count is {0}; it must be at least 1", self.count)
        channel = self.program.field("channel")
        message = f"channel {{0}} is not in 0..{MAX_CHANNELS - 1}"
        self.refuse((channel < 0) | (channel >= MAX_CHANNELS), message, channel)
        skew = self.program.field("skew")
        self.refuse((skew < 0) | (skew > MAX_SKEW), f"skew {{0}} is not in 0..{MAX_SKEW}", skew)
        same_lane = np.r_[np.zeros(len(lane[:1]), bool), (step[1:] == 0) & ~new_agent[1:]]
        previous = np.r_[skew[:1], skew[:-1]]
        message = "skew {0} comes after skew {1}; skews never decrease along a lane"
        self.refuse(same_lane & (skew < previous), message, skew, previous)

    def check_peers(self) -> None:
        """Peers that are used are other ranks."""
        ranks = self.program.ranks
        one_sided = ONE_SIDED[self.opcode]
        for name, used in (("recv_peer", RECEIVES[self.opcode]), ("send_peer", SENDS[self.opcode] | one_sided)):
            peer = self.program.field(name)
            absent = used & ((peer < 0) | (peer >= ranks))
            self.refuse(absent, f"{name} {{0}} is not a rank; ranks are 0..{ranks - 1}", peer)
            self.refuse(used & (peer == self.agent), f"{name} {{0}} is the rank itself", peer)

    def check_slots(self) -> None:
        """Destinations and sources that are used exist, `count` of them, on the rank or on the one-sided peer."""
        self.sizes = np.zeros((self.program.ranks, len(Space)), np.int64)
        np.add.at(self.sizes, (self.program.slots[:, 0], self.program.slots[:, 1]), 1)
        for end, has_end, at_peer in (("dst", HAS_DST, Opcode.peer_write), ("src", HAS_SRC, Opcode.peer_read)):
            used = has_end[self.opcode]
            space, index = self.program.field(f"{end}_space"), self.program.field(f"{end}_index").astype(np.int64)
            unknown = used & ((space < 0) | (space >= len(Space)))
            self.refuse(unknown, f"{end} space {{0}} is not 0 (input), 1 (output) or 2 (scratch)", space)
            self.refuse(used & (index < 0), f"{end} index {{0}} is negative", index)
            owner = np.where(self.opcode == at_peer, self.program.field("send_peer"), self.agent)
            size = self.sizes[owner * used, space * used]
            ends = index + self.count
            self.refuse(used & (ends > size), f"{end} ends at slot {{0}}, the space has {{1}} slots", ends, size)

    def check_operands(self) -> None:
        """Only reduce has operands, and they are slots of the rank."""
        number, is_reduce = self._owned("operand", "operands"), self.opcode == Opcode.reduce
        self.refuse(is_reduce & (number == 0), "a reduce has a source and at least one further operand")
        self.refuse(~is_reduce & (number != 0), "only reduce has operands")
        owner = np.repeat(np.arange(len(number)), number)
        space, index = self.program.operands.T
        bad = (space < 0) | (space >= len(Space)) | (index < 0)
        size = self.sizes[self.agent[owner], np.clip(space, 0, len(Space) - 1)]
        bad |= index.astype(np.int64) + self.count[owner] > size
        if bad.any():
            at = int(np.argmax(bad))
            self.refuse_row(int(owner[at]), f"operand (space {space[at]}, index {index[at]}) is not a slot of the rank")

    def check_dependencies(self) -> None:
        """Dependencies are instructions of the same agent."""
        number = self._owned("dependency", "dependencies")
        owner = np.repeat(np.arange(len(number)), number)
        first, lane_agent = self.program.lane_start
        lanes = np.bincount(lane_agent, minlength=self.program.ranks)
        first_lane = np.cumsum(lanes) - lanes
        length = np.r_[np.diff(np.r_[first, len(number)]), 0]
        lane, position = self.program.dependencies.T
        known = (lane >= 0) & (lane < lanes[self.agent[owner]])
        at_lane = np.where(known, first_lane[self.agent[owner]] + lane, len(first))
        bad = ~known | (position < 0) | (position >= length[at_lane])
        if bad.any():
            at = int(np.argmax(bad))
            absent = f"lane {lane[at]}, instruction {position[at]}, which does not exist"
            self.refuse_row(int(owner[at]), f"it waits for {absent}")

    def _owned(self, singular: str, plural: str) -> Column:
        """How many rows of the table each instruction owns; together all of them."""
        number: Column = self.program.field(f"{singular}_count")
        self.refuse(number < 0, f"{singular}_count {{0}} is negative", number)
        named, rows = int(number.sum(dtype=np.int64)), len(getattr(self.program, plural))
        if named != rows:
            raise ProgramError(f"instructions name {named} {plural}, table '{plural}' has {rows} rows")
        return number
