"""What is compared: every fabric at its rates, every case on it, at every size."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from syntony import _core
from syntony.base.quantity import bit_rate
from syntony.lab.lab_spec import LabSpec, at_rate, spec_of
from syntony.synth.model.program import Program
from syntony.topologies.parse import parse

RANKS = 4
SIZES = {4 << 20: 9, 16 << 20: 3, 64 << 20: 3}
"""By bytes: iterations."""
QUICK_SIZES = {4 << 20: 9}


@dataclass(frozen=True)
class Fabric:
    """A lab: a topology, and the rate of its fastest wires."""

    topology: str
    rate: str

    @property
    def bytes_per_second(self) -> Fraction:
        return bit_rate(self.rate)

    def spec(self) -> LabSpec:
        return at_rate(spec_of(parse(self.topology)), self.bytes_per_second)


FABRICS = (
    Fabric("star:4", "200mbit"),
    Fabric("torus:2x2", "200mbit"),
    Fabric("rail:boxes=2,gpus=2,rails=2", "200mbit"),
    Fabric("clos:leaves=2,hosts=2,oversubscription=4", "200mbit"),
    Fabric("star:4", "500mbit"),
    Fabric("clos:leaves=2,hosts=2,oversubscription=4", "500mbit"),
)
QUICK_FABRICS = FABRICS[:1]


@dataclass(frozen=True)
class Case:
    """One collective by one builder. `hierarchical` has the ranks 0 1 and 2 3 as boxes: hosts, leaves, rows."""

    algorithm: str
    collective: str

    def program(self) -> Program:
        return _core.build(self.algorithm, self.collective, RANKS)


CASES = (
    Case("ring", "all_reduce"),
    Case("dbt", "all_reduce"),
    Case("hierarchical", "all_reduce"),
    Case("direct", "all_to_all"),
)


@dataclass(frozen=True)
class Cell:
    """One line of the table; `size` in bytes, as syntony.synth.Collective defines size."""

    fabric: Fabric
    case: Case
    size: int
