"""Programs that the core refuses, as far as the checker looks at them: it must not rely on what was refused before."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import patch

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntony.synth.model.instructions import INSTRUCTION_FIELDS, Opcode
from syntony.synth.model.program import Program
from tests.synth.programs import program

_WIDTHS = {"chunks": 2, "slots": 3, "instructions": len(INSTRUCTION_FIELDS), "operands": 2, "dependencies": 2}


class _Unvalidated:
    """The columns of a Program, and what is read off them without any check."""

    def __init__(self, **columns: ArrayLike) -> None:
        for name, value in columns.items():
            table = name in _WIDTHS
            setattr(self, name, np.asarray(value, np.int32).reshape(-1, _WIDTHS[name]) if table else value)
        self.channels = 1 + int(self.field("channel").max(initial=0))
        sizes = np.zeros(self.ranks * 3, int)
        np.add.at(sizes, self.slots[:, 0] * 3 + self.slots[:, 1], 1)
        self.space_start = (np.cumsum(sizes) - sizes).reshape(-1, 3)
        key = self.instructions[:, :2]
        first = np.flatnonzero(np.r_[True, np.any(key[1:] != key[:-1], axis=1)])
        self.lane_start = first, key[first, 0]
        lengths = np.diff(np.r_[first, len(key)])
        self.position = np.arange(len(key)) - np.repeat(first, lengths)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def field(self, name: str) -> NDArray[np.int32]:
        column: NDArray[np.int32] = self.instructions[:, INSTRUCTION_FIELDS.index(name)]
        return column

    def where(self, row: int) -> str:
        agent, lane, opcode = self.instructions[row, :3]
        return f"rank {agent}, lane {lane}, instruction {self.position[row]} ({Opcode(opcode).name})"


def unvalidated(*args: Any, **scalars: Any) -> Program:
    """As `program`, of whatever kind."""
    with patch("syntony.synth.formats.program_file.Program", _Unvalidated):
        return cast(Program, program(*args, **scalars))
