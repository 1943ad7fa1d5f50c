"""Program v1: which rank does what. The same Program as in csrc/core/program/program.hpp, which defines the semantics.

A Program has one agent per rank; an agent has three spaces of slots (input, output, scratch) and lanes of instructions.
A slot holds one chunk. All data is in five int32 tables, which are read-only views of the core's memory:

    chunks        (K, 2)   block, weight
    slots         (S, 3)   agent, space, chunk                          ordered by agent, space, index in the space
    instructions  (I, 14)  see INSTRUCTION_FIELDS                       ordered by agent, lane, position in the lane
    operands      (O, 2)   space, index: further sources of `reduce`    instruction after instruction
    dependencies  (D, 2)   lane, position: the instruction to wait for  instruction after instruction

Every Program in memory has passed `Program::validate`, which rejects malformed ones (`ProgramError` names the place).
`syntony.synth.checker` decides whether a Program is *correct*. Unused fields of an instruction are 0, unused peers
-1. Two Programs are equal (`==`) if all their fields are; ranks compare its `hash` to agree on one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony._core import Program

Table = NDArray[np.int32]

__all__ = ["Program", "Table"]
