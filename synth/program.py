"""Program v1: who does what. The Python side of csrc/core/program/program.hpp, whose text defines the semantics.

A Program has one agent per rank; an agent has three spaces of slots (input, output, scratch) and lanes of instructions.
A slot holds one chunk. Everything lies in five int32 tables, the same that `csrc._core.Program` takes and gives:

    chunks        (K, 2)   block, weight
    slots         (S, 3)   agent, space, chunk                          ordered by agent, space, index in the space
    instructions  (I, 14)  see INSTRUCTION_FIELDS                       ordered by agent, lane, position in the lane
    operands      (O, 2)   space, index: further sources of `reduce`    instruction after instruction
    dependencies  (D, 2)   lane, position: what must be done first      instruction after instruction

Construction checks ranges and order (synth/program_ranges.py; a `ProgramError` names the place). Whether a Program is
*right* is the word of `synth.checker`. Unused fields of an instruction are 0, unused peers -1. Rows without the last
field, `skew`, are taken too: then it is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topologies.command import UserError

Table = NDArray[np.int32]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter")
MAX_CHANNELS = 1 << 16
MAX_SKEW = (1 << 16) - 1


class ProgramError(UserError):
    """A Program that cannot be: a value out of range, a table out of order. Says which agent, lane, instruction."""


class Space(IntEnum):
    """The three spaces of slots."""

    input = 0
    output = 1
    scratch = 2


class Opcode(IntEnum):
    """What an instruction does; `enum class Opcode` of program.hpp, in its order."""

    nop = 0
    copy = 1
    reduce = 2
    send = 3
    recv = 4
    recv_reduce = 5
    recv_copy_send = 6
    recv_reduce_send = 7
    recv_reduce_copy_send = 8
    peer_read = 9
    peer_write = 10
    signal = 11
    wait = 12


def _opcode_mask(*names: str) -> NDArray[np.bool_]:
    mask = np.zeros(len(Opcode), bool)
    mask[[Opcode[name] for name in names]] = True
    mask.setflags(write=False)
    return mask


# Indexed by opcode. `peer_read` reads src on the peer; `peer_write` writes dst on the peer.
RECEIVES = _opcode_mask("recv", "recv_reduce", "recv_copy_send", "recv_reduce_send", "recv_reduce_copy_send", "wait")
SENDS = _opcode_mask("send", "recv_copy_send", "recv_reduce_send", "recv_reduce_copy_send", "signal")
ONE_SIDED = _opcode_mask("peer_read", "peer_write")
HAS_DST = _opcode_mask(
    "copy", "reduce", "recv", "recv_reduce", "recv_copy_send", "recv_reduce_copy_send", "peer_read", "peer_write"
)
HAS_SRC = _opcode_mask(
    "copy", "reduce", "send", "recv_reduce", "recv_reduce_send", "recv_reduce_copy_send", "peer_read", "peer_write"
)

INSTRUCTION_FIELDS = (
    "agent",
    "lane",
    "opcode",
    "dst_space",
    "dst_index",
    "src_space",
    "src_index",
    "count",
    "recv_peer",
    "send_peer",
    "channel",
    "operand_count",
    "dependency_count",
    "skew",
)
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
        from synth.program_ranges import check_ranges

        check_ranges(self)

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
        """The keyword arguments of `csrc._core.Program.from_columns`, and of this class."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to_core(self) -> Any:
        """The same Program as `csrc._core.Program`."""
        from csrc import _core

        return _core.Program.from_columns(**self.columns())

    @staticmethod
    def from_core(program: Any) -> Program:
        """The same Program as a Python value, from a `csrc._core.Program`."""
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
        from synth.listing import listing

        return listing(self)
