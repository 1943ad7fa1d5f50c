"""Instructions as text, in the terms of program.hpp; `str(program)` lists them all.

rank 0
  lane 0
    0  send input[0] -> rank 1
    1  recv_reduce output[1] = message of rank 3 + input[1]    after 1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from syntony.base.wording import counted
from syntony.synth.model.instructions import Opcode, Space
from syntony.synth.model.program import Program


def listing(program: Program) -> str:
    """The whole Program, agent by agent and lane by lane; `str(program)`."""
    modes = [mode for mode in ("out_of_place", "in_place") if getattr(program, mode)]
    lines = [
        f"{program.name}: {program.collective} on {counted(program.ranks, 'rank')}"
        + (f", root {program.root}" if program.root else "")
        + f", {counted(len(program.chunks), 'chunk')}, FIFO depth {program.fifo_depth}, {' and '.join(modes)}"
    ]
    operands, dependencies = iter(program.operands.tolist()), iter(program.dependencies.tolist())
    previous = (-1, -1)
    for row, position in zip(program.instructions.tolist(), program.position.tolist(), strict=True):
        agent, lane, count, operand_count, dependency_count, skew = (row[at] for at in (0, 1, 7, 11, 12, 13))
        if agent != previous[0]:
            lines.append(f"rank {agent}")
        if (agent, lane) != previous:
            lines.append(f"  lane {lane}")
        previous = (agent, lane)
        further = [slots(space, index, count) for space, index in islice(operands, operand_count)]
        after = [f"{other}.{at}" for other, at in islice(dependencies, dependency_count)]
        lines.append(
            f"    {position:3d}  {sentence(row, further)}"
            + (f"    after {', '.join(after)}" if after else "")
            + (f"    {counted(skew, 'slice')} behind" if skew else "")
        )
    return "\n".join(lines)


def slots(space: int, index: int, count: int) -> str:
    """ "scratch[4]" or, for several slots, "scratch[4:7]"."""
    end = "" if count == 1 else f":{index + count}"
    return f"{Space(space).name}[{index}{end}]"


def sentence(instruction: Sequence[int], operands: list[str]) -> str:
    """Describes a row of the table of instructions; `operands` are its further sources, already formatted."""
    opcode, dst_space, dst_index, src_space, src_index, count, recv_peer, send_peer, channel = instruction[2:11]
    op = Opcode(opcode)
    dst, src = slots(dst_space, dst_index, count), slots(src_space, src_index, count)
    via = f" on channel {channel}" if channel else ""
    message = f"message of rank {recv_peer}"
    to = f" -> rank {send_peer}"
    match op:
        case Opcode.nop:
            return op.name
        case Opcode.copy:
            return f"{op.name} {dst} = {src}"
        case Opcode.reduce:
            return f"{op.name} {dst} = {' + '.join([src, *operands])}"
        case Opcode.send:
            return f"{op.name} {src}{to}{via}"
        case Opcode.recv:
            return f"{op.name} {dst} = {message}{via}"
        case Opcode.recv_reduce:
            return f"{op.name} {dst} = {message} + {src}{via}"
        case Opcode.recv_copy_send:
            return f"{op.name} {dst} = {message}{to}{via}"
        case Opcode.recv_reduce_send:
            return f"{op.name} {message} + {src}{to}{via}"
        case Opcode.recv_reduce_copy_send:
            return f"{op.name} {dst} = {message} + {src}{to}{via}"
        case Opcode.peer_read:
            return f"{op.name} {dst} = rank {send_peer}'s {src}"
        case Opcode.peer_write:
            return f"{op.name} rank {send_peer}'s {dst} = {src}"
        case Opcode.signal:
            return f"{op.name}{to}{via}"
        case Opcode.wait:
            return f"{op.name} for rank {recv_peer}{via}"
