"""The Program file: JSON, version 1. One instruction per line; missing fields are 0, 1 or none as in program.hpp.

    {
      "format": "syntony-program", "version": 1,
      "name": "pair", "collective": "all_reduce", "root": 0, "ranks": 2, "fifo_depth": 1,
      "out_of_place": true, "in_place": true, "rounds_per_hop": false,
      "chunks": [[0, 1]],                                    block, weight
      "agents": [
        {"input": [0], "output": [0], "scratch": [],         the chunk of each slot
         "lanes": [
           [
             {"op": "send", "src": ["input", 0], "to": 1},
             {"op": "recv_reduce", "dst": ["output", 0], "src": ["input", 0], "from": 1, "after": [[0, 0]]}
           ]]}, ..]
    }

Instruction keys: op; dst, src as [space, index]; count; from (recv_peer); to (send_peer, the peer of one-sided
instructions too); channel; operands, a list of [space, index]; after, a list of [lane, instruction]; skew.

Older files also have a "stamp", which said that the Program was proven. Readers ignore it, since anybody can write one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syntony.base.files.fields import INT32, Fields, FileError
from syntony.base.files.whole_file import write_text
from syntony.synth.model.instructions import (
    HAS_DST,
    HAS_SRC,
    INSTRUCTION_FIELDS,
    ONE_SIDED,
    RECEIVES,
    SENDS,
    Opcode,
    ProgramError,
    Space,
)
from syntony.synth.model.program import Program

FORMAT = "syntony-program"
VERSION = 1

_STRINGS = ("name", "collective")
_NUMBERS = ("root", "ranks", "fifo_depth")
_FLAGS = ("out_of_place", "in_place", "rounds_per_hop")
_MAX_RANKS = 1 << 16


def write_program(program: Program, path: str | Path) -> None:
    """Writes the file, whole or not at all."""
    write_text(path, program_text(program))


def program_text(program: Program) -> str:
    """The file's text."""
    head = {"format": FORMAT, "version": VERSION} | {
        name: getattr(program, name) for name in (*_STRINGS, *_NUMBERS, *_FLAGS)
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    lines.append(f'  "chunks": {json.dumps(program.chunks.tolist())}')
    agents = ",\n".join(_agent_text(agent) for agent in _agents(program))
    lines.append(f'  "agents": [\n{agents}\n  ]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _agents(program: Program) -> list[dict[str, Any]]:
    agents: list[dict[str, Any]] = [
        {"input": [], "output": [], "scratch": [], "lanes": []} for _ in range(program.ranks)
    ]
    for agent, space, chunk in program.slots.tolist():
        agents[agent][Space(space).name].append(chunk)
    operands, dependencies = iter(program.operands.tolist()), iter(program.dependencies.tolist())
    for values in program.instructions.tolist():
        row = dict(zip(INSTRUCTION_FIELDS, values, strict=True))
        lanes = agents[row["agent"]]["lanes"]
        if row["lane"] == len(lanes):
            lanes.append([])
        lanes[-1].append(_instruction_object(row, operands, dependencies))
    return agents


def _instruction_object(
    row: dict[str, int], operands: Iterator[list[int]], dependencies: Iterator[list[int]]
) -> dict[str, Any]:
    op = Opcode(row["opcode"])
    found: dict[str, Any] = {"op": op.name}
    if HAS_DST[op]:
        found["dst"] = [Space(row["dst_space"]).name, row["dst_index"]]
    if HAS_SRC[op]:
        found["src"] = [Space(row["src_space"]).name, row["src_index"]]
    if row["count"] != 1:
        found["count"] = row["count"]
    if RECEIVES[op]:
        found["from"] = row["recv_peer"]
    if SENDS[op] or ONE_SIDED[op]:
        found["to"] = row["send_peer"]
    if row["channel"]:
        found["channel"] = row["channel"]
    if row["operand_count"]:
        further = (next(operands) for _ in range(row["operand_count"]))
        found["operands"] = [[Space(space).name, index] for space, index in further]
    if row["dependency_count"]:
        found["after"] = [next(dependencies) for _ in range(row["dependency_count"])]
    if row["skew"]:
        found["skew"] = row["skew"]
    return found


def _agent_text(agent: dict[str, Any]) -> str:
    slots = ", ".join(f'"{space.name}": {json.dumps(agent[space.name])}' for space in Space)
    lanes = ",\n".join(
        "      [\n" + ",\n".join(f"        {json.dumps(row)}" for row in lane) + "\n      ]" for lane in agent["lanes"]
    )
    return f'    {{{slots},\n     "lanes": [' + (f"\n{lanes}\n     " if lanes else "") + "]}"


# --- reading ---


def from_dict(data: object, where: str) -> Program:
    """The Program of a file's JSON object; FileError names the field, ProgramError what is impossible in a Program.

    `where` names the file.
    """
    fields = Fields(data, where)
    fields.choice("format", (FORMAT,))
    if fields.whole("version") != VERSION:
        raise fields.wrong("version", f"this reader knows version {VERSION}")
    scalars: dict[str, Any] = {name: fields.string(name) for name in _STRINGS}
    scalars |= {name: fields.whole(name) for name in _NUMBERS}
    scalars |= {name: _flag(fields, name) for name in _FLAGS}
    if not 1 <= scalars["ranks"] <= _MAX_RANKS:
        raise fields.wrong("ranks", f"it must be 1..{_MAX_RANKS}")
    chunks = _pairs(fields, "chunks")
    tables = _Tables()
    agents = list(fields.children("agents"))
    if len(agents) != scalars["ranks"]:
        raise FileError(
            f"{where}: agents has {len(agents)} entries for {scalars['ranks']} ranks; one per rank is right"
        )
    for rank, agent in enumerate(agents):
        tables.read_agent(rank, agent, where)
    fields.take("stamp", optional=True)
    fields.finish()
    try:
        return Program(**scalars, chunks=chunks, **vars(tables))
    except ProgramError as error:
        raise ProgramError(f"{where}: {error}") from None


class _Tables:
    """The tables of a Program as lists of rows, filled agent by agent."""

    def __init__(self) -> None:
        self.slots: list[list[int]] = []
        self.instructions: list[list[int]] = []
        self.operands: list[list[int]] = []
        self.dependencies: list[list[int]] = []

    def read_agent(self, rank: int, fields: Fields, where: str) -> None:
        """One agent's slots and lanes."""
        for space in Space:
            self.slots += [[rank, int(space), chunk] for chunk in fields.column(space.name).tolist()]
        for number, lane in enumerate(fields.rows("lanes")):
            if not isinstance(lane, list) or not lane:
                raise fields.wrong("lanes", "a lane is a list of instructions, at least one", number)
            for position, row in enumerate(lane):
                instruction = Fields(row, where, f"agents[{rank}].lanes[{number}][{position}]")
                self._read_instruction(rank, number, instruction)
        fields.finish()

    def _read_instruction(self, rank: int, lane: int, fields: Fields) -> None:
        opcode = Opcode[fields.choice("op", Opcode.__members__)]
        dst, src = (_slot(fields, name, fields.take(name)) if fields.has(name) else [0, 0] for name in ("dst", "src"))
        further = fields.rows("operands") if fields.has("operands") else []
        operands = [_slot(fields, "operands", slot, at) for at, slot in enumerate(further)]
        after = _pairs(fields, "after") if fields.has("after") else []
        numbers = [
            fields.whole(name) if fields.has(name) else default
            for name, default in (("count", 1), ("from", -1), ("to", -1), ("channel", 0))
        ]
        skew = fields.whole("skew") if fields.has("skew") else 0
        fields.finish()
        self.instructions.append([rank, lane, opcode, *dst, *src, *numbers, len(operands), len(after), skew])
        self.operands += operands
        self.dependencies += after


def _flag(fields: Fields, key: str) -> bool:
    value = fields.take(key)
    if not isinstance(value, bool):
        raise fields.wrong(key, "it must be true or false")
    return value


def _is_int32(value: object) -> bool:
    return type(value) is int and INT32.min <= value <= INT32.max


def _pairs(fields: Fields, key: str) -> list[list[int]]:
    rows = fields.rows(key)
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 2 or not all(map(_is_int32, row)):
            raise fields.wrong(key, "it must be a pair of whole numbers", index)
    return rows


def _slot(fields: Fields, key: str, slot: object, index: int | None = None) -> list[int]:
    """The [space, index] pair at the key, or at entry `index` of it."""
    match slot:
        case [str(space), int(number)] if space in Space.__members__ and _is_int32(number):
            return [int(Space[space]), number]
    raise fields.wrong(key, 'a slot is ["input", "output" or "scratch", its number]', index)
