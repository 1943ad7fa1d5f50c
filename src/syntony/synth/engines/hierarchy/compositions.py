"""The table of named compositions of engine `hierarchy`.

Each is an order of levels and a solver for each. All are described for all_gather; reduce_scatter is the reverse (so
its innermost level is first), and all_reduce is a reduce_scatter followed by an all_gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syntony.base.wording import did_you_mean
from syntony.synth.engines.engine import EngineError

Solver = Literal["trees", "ring", "doubling"]


@dataclass(frozen=True)
class Composition:
    """One row.

    inside, across  solvers of the innermost level and of the others: `trees` (engine forest), `ring` (half of a block
                    each way round) or `doubling` (partners at doubling distances). gather, scatter and all_to_all use
                    engine flow
    two             all levels but the innermost are merged into one
    rotated         chunks take the levels in different orders, in shares that load all levels equally
    """

    name: str
    inside: Solver
    across: Solver
    two: bool
    rotated: bool
    source: str


COMPOSITIONS = (
    Composition("two-level", "trees", "trees", True, False, "as NCCL and many others do"),
    Composition("torus2d", "ring", "ring", True, False, "Mikami et al., 2018"),
    Composition("accl", "ring", "doubling", True, False, "Dong et al., ACCL, IEEE Micro 2021"),
    Composition("blueconnect", "ring", "ring", False, False, "Cho et al., MLSys'19"),
    Composition("themis", "trees", "trees", False, True, "after Rashidi et al., ISCA'22"),
)


def composition_named(name: str) -> Composition:
    """The composition of that name. Raises EngineError."""
    names = [composition.name for composition in COMPOSITIONS]
    if name in names:
        return COMPOSITIONS[names.index(name)]
    hint = did_you_mean(name, names)
    raise EngineError(f"engine hierarchy has no composition '{name}'{hint}; it has {', '.join(names)}")
