"""What an instruction of a Program may say: opcodes, spaces and limits; those of csrc/core/program/program.hpp."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError

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
"""The columns of a Program's table of instructions."""
