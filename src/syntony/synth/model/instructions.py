"""The opcodes and spaces of a Program's instructions, as in csrc/core/program/opcode.hpp."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from syntony import _core
from syntony.base.command import UserError

COLLECTIVES = tuple(_core.COLLECTIVES)
MAX_CHANNELS = 1 << 16
MAX_SKEW = (1 << 16) - 1


class ProgramError(UserError):
    """An invalid Program: a value out of range, a table out of order. Names the agent, lane and instruction."""


class Space(IntEnum):
    """The three spaces of slots."""

    input = 0
    output = 1
    scratch = 2


class Opcode(IntEnum):
    """What an instruction does; mirrors `enum class Opcode` of opcode.hpp."""

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


def _mask(values: Iterable[bool]) -> NDArray[np.bool_]:
    mask = np.array(list(values))
    mask.setflags(write=False)
    return mask


# Indexed by opcode. `peer_read` reads src on the peer; `peer_write` writes dst on the peer.
_FACTS = [_core.OPCODES[opcode.name] for opcode in Opcode]
RECEIVES, SENDS = _mask(facts["receives"] for facts in _FACTS), _mask(facts["sends"] for facts in _FACTS)
HAS_SRC, HAS_DST = _mask(facts["reads"] for facts in _FACTS), _mask(facts["writes"] for facts in _FACTS)
ONE_SIDED = _mask(facts["one_sided"] for facts in _FACTS)

INSTRUCTION_FIELDS: tuple[str, ...] = _core.INSTRUCTION_FIELDS
"""The columns of a Program's table of instructions."""
