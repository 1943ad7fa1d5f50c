"""Writes a Program as MSCCL XML; xml_file.py reads it.

Four dialects (`DIALECTS`), each with the limits of its parser:

    azure      msccl-scheduler: needs inplace, outofplace, minBytes, maxBytes
    rccl       the same file; at most 64 thread blocks of 64 steps
    microsoft  microsoft/msccl: no gather, no scatter; reduce_scatter with an underscore; one of in and out of place
    op         msccl-tools' newer form: <op step ..>; attributes with default values are left out

If those executors lack a feature, the error names it (`fit` with the Target of the dialect), or it is expressed
differently: additional dependencies become `nop` steps before the instruction, an n-ary reduce becomes one `re` per
operand. The executors add in the order of the steps, starting with the content of the destination: sums are correct up
to rounding, and bitwise equal on all ranks only if one rank sums and the others copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from xml.sax.saxutils import quoteattr

import numpy as np

from syntony.synth.formats.assembly import COLLECTIVES
from syntony.synth.formats.export_options import ExportOptions
from syntony.synth.formats.msccl.xml_file import BUFFERS, STEP_TYPES
from syntony.synth.lowering.passes.even import even
from syntony.synth.lowering.passes.lanes import within_lanes
from syntony.synth.lowering.two_sided import needs_two_sides, two_sided
from syntony.synth.model.instructions import HAS_DST, HAS_SRC, INSTRUCTION_FIELDS, RECEIVES, SENDS, Opcode, Space
from syntony.synth.model.program import Program
from syntony.synth.model.target import MSCCL, Target, TargetError, fit

_TYPES = {opcode: name for name, opcode in STEP_TYPES.items()}
_BUFFERS = {space: name for name, space in BUFFERS.items()}
_COLLS = {kind: coll for coll, kind in COLLECTIVES.items()}
_MAX_NODES = 4096
"""XML elements that a parser keeps for one rank."""


@dataclass(frozen=True)
class Dialect:
    """One reader of MSCCL XML: its limits, its names of collectives, and the attributes that it needs."""

    target: Target
    colls: Mapping[str, str]
    says_both_places: bool = True
    brief: bool = False


DIALECTS = {
    "azure": Dialect(MSCCL, _COLLS),
    "rccl": Dialect(replace(MSCCL, name="rccl", lanes=64, lane_instructions=64), _COLLS),
    "microsoft": Dialect(
        replace(MSCCL, name="msccl-microsoft"),
        {kind: coll for kind, coll in _COLLS.items() if kind not in ("gather", "scatter")}
        | {"reduce_scatter": "reduce_scatter"},
        says_both_places=False,
    ),
    "op": Dialect(MSCCL, _COLLS | {"reduce_scatter": "reduce_scatter"}, brief=True),
}

Slot = tuple[int, int]
Place = tuple[int, int]
"""(lane, position)."""


@dataclass
class _Step:
    type: str
    src: Slot | None
    dst: Slot | None
    count: int
    after: Place | None = None  # in instructions; converted to a step when all are written
    stands_for: Place | None = None  # the instruction that this step completes
    wanted: bool = False


@dataclass
class _Block:
    send: int = -1
    recv: int = -1
    channel: int = 0
    steps: list[_Step] = field(default_factory=list)


def msccl_xml_text(program: Program, dialect: str = "azure", options: ExportOptions | None = None) -> str:
    """The text of the file; TargetError if the executor of the dialect cannot run the Program."""
    options = options or ExportOptions()
    rules = DIALECTS[dialect]
    if needs_two_sides(program, rules.target):
        program = two_sided(program, rules.target)
    program = fit(within_lanes(even(program), rules.target), rules.target)
    if program.collective not in rules.colls:
        raise _refused(program, f"dialect {dialect} has no {program.collective}; it has {', '.join(rules.colls)}")
    if program.root:
        raise _refused(program, f"MSCCL XML has no root; it must be 0, not {program.root}")
    sizes = [[program.space_size(agent, space) for space in Space] for agent in range(program.ranks)]
    chunks = max(max(row[0], row[1]) for row in sizes)
    if len(set(np.bincount(program.chunks[:, 0]).tolist())) > 1:
        raise _refused(program, "its blocks have different numbers of chunks; they must be equal")
    in_place, out_of_place = program.in_place, program.out_of_place
    if not rules.says_both_places or options.in_place is not None or program.collective == "all_to_all":
        in_place = options.place(program)
        out_of_place = not in_place
    agents = _blocks(program, rules.target.lane_instructions or 0)
    attributes = {
        "name": program.name,
        "proto": options.protocol,
        "nchannels": program.channels,
        "nchunksperloop": chunks,
        "ngpus": program.ranks,
        "coll": rules.colls[program.collective],
        "inplace": int(in_place),
        "outofplace": int(out_of_place),
        "minBytes": options.min_bytes,
        "maxBytes": options.max_bytes,
    }
    if not rules.says_both_places:
        del attributes["outofplace"]
    if rules.brief:
        del attributes["nchunksperloop"]
    lines = [f"<algo{_attributes(attributes)}>"]
    for rank, (blocks, (inputs, outputs, scratch)) in enumerate(zip(agents, sizes, strict=True)):
        nodes = 1 + sum(1 + len(block.steps) for block in blocks)
        if nodes >= _MAX_NODES:
            raise _refused(program, f"rank {rank} becomes {nodes} XML elements (limit {_MAX_NODES})")
        gpu = {"id": rank, "i_chunks": inputs, "o_chunks": outputs, "s_chunks": scratch}
        lines.append(f"  <gpu{_attributes(gpu)}>")
        for number, block in enumerate(blocks):
            tb = {"id": number, "send": block.send, "recv": block.recv, "chan": block.channel}
            lines.append(f"    <tb{_attributes(tb)}>")
            rows = _step_rows(number, blocks)
            tag, rows = ("op", [_brief(row) for row in rows]) if rules.brief else ("step", rows)
            lines += [f"      <{tag}{_attributes(row)}/>" for row in rows]
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])


def _brief(row: dict[str, object]) -> dict[str, object]:
    """A step in the newer form: one end if the other is not needed, and no default values."""
    kind = str(row["type"])
    op = STEP_TYPES[kind]
    brief: dict[str, object] = {"step": row["s"], "type": kind}
    ends = [end for end, used in (("src", HAS_SRC[op]), ("dst", HAS_DST[op])) if used]
    for end in ends:
        short = end if len(ends) > 1 else ""
        brief |= {f"{short}buf": row[f"{end}buf"], f"{short}off": row[f"{end}off"]}
    if op != Opcode.nop and row["cnt"] != 1:
        brief["cnt"] = row["cnt"]
    if row["depid"] != -1:
        brief |= {"depid": row["depid"], "deps": row["deps"]}
    return brief | ({"hasdep": 1} if row["hasdep"] else {})


def _refused(program: Program, message: str) -> TargetError:
    return TargetError(f"program '{program.name}' cannot be written as MSCCL XML: {message}")


def _attributes(values: Mapping[str, object]) -> str:
    return "".join(f" {name}={quoteattr(str(value))}" for name, value in values.items())


def _blocks(program: Program, most_steps: int) -> list[list[_Block]]:
    """Per rank its lanes as thread blocks, steps in order."""
    agents: list[list[_Block]] = [[] for _ in range(program.ranks)]
    operands = iter([(space, index) for space, index in program.operands.tolist()])
    dependencies = iter([(lane, position) for lane, position in program.dependencies.tolist()])
    for values, position in zip(program.instructions.tolist(), program.position.tolist(), strict=True):
        row = dict(zip(INSTRUCTION_FIELDS, values, strict=True))
        blocks = agents[row["agent"]]
        if row["lane"] == len(blocks):
            blocks.append(_Block())
        block = blocks[-1]
        op = Opcode(row["opcode"])
        if SENDS[op]:
            block.send, block.channel = row["send_peer"], row["channel"]
        if RECEIVES[op]:
            block.recv, block.channel = row["recv_peer"], row["channel"]
        further = [next(operands) for _ in range(row["operand_count"])]
        after = [next(dependencies) for _ in range(row["dependency_count"])]
        after = [place for place in after if place[0] != row["lane"]]  # implied by the order of the lane
        steps = list(_steps(program, row, op, further))
        # The last dependency sits on the instruction itself; the others on steps of their own before it.
        block.steps += [_Step("nop", None, None, 0, place) for place in after[:-1]]
        if after:
            steps[0].after = after[-1]
        steps[-1].stands_for = (row["lane"], position)
        block.steps += steps
    for agent, blocks in enumerate(agents):
        _mark_wanted(program, agent, blocks, most_steps)
    return agents


def _steps(program: Program, row: dict[str, int], op: Opcode, further: list[Slot]) -> Iterable[_Step]:
    """One instruction as one or more steps."""
    dst = (row["dst_space"], row["dst_index"]) if HAS_DST[op] else None
    src = (row["src_space"], row["src_index"]) if HAS_SRC[op] else None
    count = row["count"]
    if op != Opcode.reduce:
        yield _Step(_TYPES[op], src, dst, 0 if op == Opcode.nop else count)
        return
    assert src is not None
    assert dst is not None
    terms = [src, *further]
    # `re` adds into dst, so the operand that may be there already comes first: dst itself, or in place the input.
    first = next((term for term in terms if term == dst), None)
    first = first or next((term for term in terms if _may_coincide(program, row["agent"], dst, term)), terms[0])
    terms.remove(first)
    if first != dst:
        yield _Step("cpy", first, dst, count)
    for term in terms:
        if term == dst:
            raise _refused(program, f"rank {row['agent']}, lane {row['lane']} adds a slot to itself")
        yield _Step("re", term, dst, count)


def _may_coincide(program: Program, agent: int, dst: Slot, term: Slot) -> bool:
    """Whether the two are the same memory if input and output are."""
    start = program.space_start[agent]
    same_chunk = program.slots[start[dst[0]] + dst[1], 2] == program.slots[start[term[0]] + term[1], 2]
    return bool(dst[0] == Space.output and term[0] == Space.input and same_chunk)


def _mark_wanted(program: Program, agent: int, blocks: list[_Block], most_steps: int) -> None:
    done = _done(blocks)
    for block in blocks:
        if len(block.steps) > most_steps:
            raise _refused(program, f"a lane of rank {agent} becomes {len(block.steps)} steps (limit {most_steps})")
        for step in block.steps:
            if step.after is not None:
                lane, position = done[step.after]
                blocks[lane].steps[position].wanted = True


def _done(blocks: list[_Block]) -> dict[Place, Place]:
    """Instruction -> the (block, step) that completes it."""
    return {
        step.stands_for: (number, at)
        for number, block in enumerate(blocks)
        for at, step in enumerate(block.steps)
        if step.stands_for is not None
    }


def _step_rows(number: int, blocks: list[_Block]) -> list[dict[str, object]]:
    done = _done(blocks)
    rows: list[dict[str, object]] = []
    for at, step in enumerate(blocks[number].steps):
        src, dst = step.src or step.dst, step.dst or step.src
        after = done[step.after] if step.after is not None else (-1, -1)
        rows.append(
            {
                "s": at,
                "type": step.type,
                "srcbuf": _BUFFERS[Space(src[0])] if src else "i",
                "srcoff": src[1] if src else -1,
                "dstbuf": _BUFFERS[Space(dst[0])] if dst else "o",
                "dstoff": dst[1] if dst else -1,
                "cnt": step.count,
                "depid": after[0],
                "deps": after[1],
                "hasdep": int(step.wanted),
            }
        )
    return rows
