"""An instruction as people read it, in the words of program.hpp; `str(program)` lists them all.

rank 0
  lane 0
    0  send input[0] -> rank 1
    1  recv_reduce output[1] = message of rank 3 + input[1]    after 1.0
"""

from __future__ import annotations

from collections.abc import Sequence

from syntony.synth.model.instructions import Opcode, Space


def slots(space: int, index: int, count: int) -> str:
    """ "scratch[4]" or, for several slots, "scratch[4:7]"."""
    end = "" if count == 1 else f":{index + count}"
    return f"{Space(space).name}[{index}{end}]"


def sentence(instruction: Sequence[int], operands: list[str]) -> str:
    """What a row of the table of instructions does; `operands` are its further sources, already written out."""
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
