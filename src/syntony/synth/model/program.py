"""Program v1: who does what. The Python side of csrc/core/program/program.hpp, whose text defines the semantics.

A Program has one agent per rank; an agent has three spaces of slots (input, output, scratch) and lanes of instructions.
A slot holds one chunk. Everything lies in five int32 tables, the same that `syntony._core.Program` takes and gives:

    chunks        (K, 2)   block, weight
    slots         (S, 3)   agent, space, chunk                          ordered by agent, space, index in the space
    instructions  (I, 14)  see INSTRUCTION_FIELDS                       ordered by agent, lane, position in the lane
    operands      (O, 2)   space, index: further sources of `reduce`    instruction after instruction
    dependencies  (D, 2)   lane, position: what must be done first      instruction after instruction

Construction checks ranges and order (a `ProgramError` names the place). Whether a Program is
*right* is the word of `syntony.synth.checker`. Unused fields of an instruction are 0, unused peers -1. Rows without the
last field, `skew`, are taken too: then it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntony import _core
from syntony.base.wording import counted
from syntony.synth.model.instructions import (
    COLLECTIVES,
    HAS_DST,
    HAS_SRC,
    INSTRUCTION_FIELDS,
    MAX_CHANNELS,
    MAX_SKEW,
    ONE_SIDED,
    RECEIVES,
    SENDS,
    Opcode,
    ProgramError,
    Space,
)
from syntony.synth.model.listing import sentence, slots

Table = NDArray[np.int32]

_FIELD = {name: position for position, name in enumerate(INSTRUCTION_FIELDS)}
_WIDTHS = {"chunks": 2, "slots": 3, "instructions": len(INSTRUCTION_FIELDS), "operands": 2, "dependencies": 2}


def _table(name: str, values: ArrayLike) -> Table:
    """A read-only, C-contiguous int32 table of its own memory."""
    raw = np.asarray(values)
    if name == "instructions" and raw.ndim == 2 and raw.shape[1] == _FIELD["skew"]:
        raw = np.pad(raw, ((0, 0), (0, 1)))
    if raw.size == 0:
        raw = raw.reshape(0, _WIDTHS[name])
    if raw.ndim != 2 or raw.shape[1] != _WIDTHS[name]:
        raise ProgramError(f"table '{name}' has shape {raw.shape}; it must be (n, {_WIDTHS[name]})")
    if raw.size and (raw.dtype.kind not in "iu" or raw.min() < -(2**31) or raw.max() >= 2**31):
        raise ProgramError(f"table '{name}' must hold 32-bit integers")
    table = np.array(raw, dtype=np.int32, order="C")
    table.setflags(write=False)
    return table


@dataclass(frozen=True, eq=False)
class Program:
    """A validated Program; the tables are read-only. Compare with `==`; agree across ranks with `hash64`."""

    name: str
    collective: str
    root: int
    ranks: int
    chunks: Table
    slots: Table
    instructions: Table
    operands: Table
    dependencies: Table
    fifo_depth: int = 1
    """Messages that one connection must be able to hold."""
    out_of_place: bool = True
    """Right when input and output are disjoint memory."""
    in_place: bool = True
    """Right when input and output slots of the same chunk are the same memory."""
    rounds_per_hop: bool = False
    """16- and 8-bit floats are rounded at every reduction, not once."""

    def __post_init__(self) -> None:
        for name in _WIDTHS:
            object.__setattr__(self, name, _table(name, getattr(self, name)))
        _check_ranges(self)

    # --- reading ------------------------------------------------------------------------------------------------

    def field(self, name: str) -> Table:
        """One column of the instructions, by its name in INSTRUCTION_FIELDS; shape (I,)."""
        column: Table = self.instructions[:, _FIELD[name]]
        return column

    @property
    def channels(self) -> int:
        """1 + the highest channel in use."""
        return 1 + int(self.field("channel").max(initial=0))

    @property
    def one_sided(self) -> bool:
        """Whether it uses peer_read or peer_write."""
        return bool(ONE_SIDED[self.field("opcode")].any())

    @property
    def skewed(self) -> bool:
        """Whether some instruction works on earlier slices than its lane's turn."""
        return bool(self.field("skew").any())

    def without_skew(self) -> Program:
        """The same Program, slice after slice: as right as this one, and with many slices mostly slower."""
        instructions = self.instructions.copy()
        instructions[:, _FIELD["skew"]] = 0
        return replace(self, instructions=instructions)

    @cached_property
    def space_start(self) -> Table:
        """(ranks, 3) -> the row of `slots` where the agent's space begins; the row of a slot is start + index."""
        sizes = np.zeros(self.ranks * 3, np.int64)
        np.add.at(sizes, self.slots[:, 0] * 3 + self.slots[:, 1], 1)
        return (np.cumsum(sizes) - sizes).reshape(self.ranks, 3).astype(np.int32)

    @cached_property
    def lane_start(self) -> tuple[Table, Table]:
        """Two columns over all lanes in order: the lane's first row of `instructions`, and its agent."""
        key = self.instructions[:, :2]
        first = np.flatnonzero(np.r_[True, np.any(key[1:] != key[:-1], axis=1)]) if len(key) else np.zeros(0, int)
        return first.astype(np.int32), key[first, 0]

    @cached_property
    def position(self) -> Table:
        """(I,) the position of each instruction in its lane."""
        first, _ = self.lane_start
        lengths = np.diff(np.r_[first, len(self.instructions)])
        return (np.arange(len(self.instructions)) - np.repeat(first, lengths)).astype(np.int32)

    def space_size(self, agent: int, space: Space) -> int:
        """How many slots the agent has in the space."""
        return int(np.count_nonzero((self.slots[:, 0] == agent) & (self.slots[:, 1] == space)))

    def where(self, row: int) -> str:
        """ "rank 2, lane 0, instruction 5 (recv_reduce)": how people are told about row `row` of `instructions`."""
        agent, lane, opcode = self.instructions[row, :3]
        return f"rank {agent}, lane {lane}, instruction {self.position[row]} ({Opcode(opcode).name})"

    # --- equality and exchange ----------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name))
            if f.name in _WIDTHS
            else getattr(self, f.name) == getattr(other, f.name)
            for f in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.collective, self.ranks, self.instructions.tobytes()))

    def columns(self) -> dict[str, Any]:
        """The keyword arguments of `syntony._core.Program.from_columns`, and of this class."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to_core(self) -> Any:
        """The same Program as `syntony._core.Program`."""
        return _core.Program.from_columns(**self.columns())

    @staticmethod
    def from_core(program: Any) -> Program:
        """The same Program as a Python value, from a `syntony._core.Program`."""
        return Program.from_columns(program.columns())

    @staticmethod
    def from_columns(columns: Mapping[str, Any]) -> Program:
        """From a mapping with the keys of `columns()`."""
        return Program(**columns)

    @cached_property
    def hash64(self) -> int:
        """The core's 64-bit FNV-1a over every field: what ranks agree on. No proof rests on it."""
        return int(self.to_core().hash)

    def __str__(self) -> str:
        """The whole Program, agent by agent and lane by lane."""
        modes = [mode for mode in ("out_of_place", "in_place") if getattr(self, mode)]
        lines = [
            f"{self.name}: {self.collective} on {counted(self.ranks, 'rank')}"
            + (f", root {self.root}" if self.root else "")
            + f", {counted(len(self.chunks), 'chunk')}, FIFO depth {self.fifo_depth}, {' and '.join(modes)}"
        ]
        operand = dependency = 0
        previous = (-1, -1)
        for row, (agent, lane) in enumerate(self.instructions[:, :2].tolist()):
            if agent != previous[0]:
                lines.append(f"rank {agent}")
            if (agent, lane) != previous:
                lines.append(f"  lane {lane}")
            previous = (agent, lane)
            count, operands, dependencies = (
                int(self.field(name)[row]) for name in ("count", "operand_count", "dependency_count")
            )
            further = [
                slots(space, index, count) for space, index in self.operands[operand : operand + operands].tolist()
            ]
            after = [
                f"{lane}.{position}" for lane, position in self.dependencies[dependency : dependency + dependencies]
            ]
            operand, dependency = operand + operands, dependency + dependencies
            text = f"    {self.position[row]:3d}  {sentence(self.instructions[row].tolist(), further)}"
            skew = int(self.field("skew")[row])
            lines.append(
                text
                + (f"    after {', '.join(after)}" if after else "")
                + (f"    {counted(skew, 'slice')} behind" if skew else "")
            )
        return "\n".join(lines)


# ---- what every Program must fulfil to be read at all ----------------------------------------------------------------
Column = NDArray[np.signedinteger]
Marks = NDArray[np.bool_]


def _check_ranges(program: Program) -> None:
    """Raises ProgramError at the first value that cannot be: ranges, order, references, column by column.

    That a Program is *right* is the checker's word.
    """
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
