"""Program v1: who does what. The one Program of csrc/core/program/program.hpp, whose text defines the semantics.

A Program has one agent per rank; an agent has three spaces of slots (input, output, scratch) and lanes of instructions.
A slot holds one chunk. Everything lies in five int32 tables, which are read-only views of the core's own memory:

    chunks        (K, 2)   block, weight
    slots         (S, 3)   agent, space, chunk                          ordered by agent, space, index in the space
    instructions  (I, 14)  see INSTRUCTION_FIELDS                       ordered by agent, lane, position in the lane
    operands      (O, 2)   space, index: further sources of `reduce`    instruction after instruction
    dependencies  (D, 2)   lane, position: what must be done first      instruction after instruction

Every Program in memory has passed `Program::validate`, which refuses what cannot be (a `ProgramError` names the place).
Whether a Program is *right* is the word of `syntony.synth.checker`. Unused fields of an instruction are 0, unused peers
-1. Two Programs are equal (`==`) when all their fields are; ranks agree on one by its `hash`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony._core import Program

Table = NDArray[np.int32]

__all__ = ["Program", "Table"]
