"""Test data and the expected results, computed without any communication.

Every rank can compute what every rank sends: element i of rank r's buffer is a function of (operation, r, i) that
repeats after a prime number of elements. So the expected result repeats too; it is computed once, in 64-bit integers,
for one period, and a buffer of any size is compared with it piece by piece.

The integers are chosen so that each partial result, for any order of combination, is exact in the element type. So the
comparison is bit for bit, and every difference is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
import numpy.typing as npt

from syntony.base.command import UserError
from syntony.benchmarks.bench.elements import Array, Element
from syntony.benchmarks.bench.shapes import Shape

PERIOD = 65521  # a prime, so that it never coincides with chunk or block boundaries
_STRIDE = 7919  # offset between two ranks in the same table

Values = npt.NDArray[np.int64]

OPERATIONS = ("sum", "prod", "max", "min", "avg", "band", "bor", "bxor")
BITWISE = frozenset({"band", "bor", "bxor"})
_REDUCERS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "avg": np.add,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


@lru_cache(maxsize=1)
def _table() -> Values:
    return np.random.default_rng(20260101).integers(0, 2**31, PERIOD, dtype=np.int64)


def contribution(operation: str | None, rank: int, ranks: int, exact: int) -> Values:
    """One period of what `rank` sends, as integers of at most `exact`; `operation` is None for copies."""
    noise = np.roll(_table(), rank * _STRIDE)
    turn = (np.arange(PERIOD) + rank) % ranks  # this rank's index, rotated at each element
    match operation:
        case "sum" if exact >= ranks:
            return noise % (min(exact // ranks, 2**15) + 1)
        case "sum":  # only `exact` of the ranks may contribute a one
            return np.where(turn < exact, noise % 2, 0)
        case "prod":  # at most three twos
            return np.where(turn < 3, 1 + noise % 2, 1)
        case "avg":  # one rank contributes everything, a multiple of the divisor
            return np.where(turn == 0, ranks * (noise % (min(exact // ranks, 2**15) + 1)), 0)
    return noise % (min(exact, 2**30) + 1)


@dataclass(frozen=True)
class Expected:
    """The expected content of `recv[begin : begin + count]`: the sequence `period`, from element `start` on."""

    begin: int
    period: Array
    start: int


@dataclass(frozen=True)
class Reference:
    """What ranks send and should receive, for one element type and operation."""

    element: Element
    operation: str | None
    ranks: int

    def __post_init__(self) -> None:
        if self.operation in BITWISE and not self.element.integer:
            raise UserError(f"--op {self.operation} needs an integer type, not {self.element.name}")

    def sent(self, rank: int) -> Array:
        """One period of rank's send buffer, in storage form."""
        return _sent(self, rank)

    def combined(self) -> Array:
        """One period of the reduction over all ranks, in storage form."""
        return _combined(self)

    def expected(self, shape: Shape, rank: int, block: int, root: int) -> list[Expected]:
        """The expected content at `rank`, in pieces of `block` elements; empty if it receives nothing."""
        match shape.name:
            case "all_reduce":
                return [Expected(0, self.combined(), 0)]
            case "reduce":
                return [Expected(0, self.combined(), 0)] if rank == root else []
            case "reduce_scatter":
                return [Expected(0, self.combined(), rank * block)]
            case "all_gather":
                return [Expected(source * block, self.sent(source), 0) for source in range(self.ranks)]
            case "gather":
                sources = range(self.ranks) if rank == root else ()
                return [Expected(source * block, self.sent(source), 0) for source in sources]
            case "all_to_all":
                return [Expected(source * block, self.sent(source), rank * block) for source in range(self.ranks)]
            case "scatter":
                return [Expected(0, self.sent(root), rank * block)]
            case "broadcast":
                return [Expected(0, self.sent(root), 0)]
        return [Expected(0, self.sent((rank - 1) % self.ranks), 0)]  # sendrecv


@lru_cache(maxsize=64)
def _sent(reference: Reference, rank: int) -> Array:
    element = reference.element
    return element.encode(contribution(reference.operation, rank, reference.ranks, element.exact))


@lru_cache(maxsize=4)
def _combined(reference: Reference) -> Array:
    assert reference.operation is not None
    exact, ranks = reference.element.exact, reference.ranks
    parts = (contribution(reference.operation, rank, ranks, exact) for rank in range(ranks))
    result = reduce(_REDUCERS[reference.operation], parts)
    return reference.element.encode(result // ranks if reference.operation == "avg" else result)


def fill(memory: Array, period: Array, start: int = 0) -> None:
    """Writes the periodic sequence into `memory`, beginning with element `start` of the sequence."""
    shifted = np.roll(period, -(start % PERIOD))
    for begin in range(0, memory.size, PERIOD):
        piece = memory[begin : begin + PERIOD]
        piece[:] = shifted[: piece.size]


def wrong_elements(memory: Array, period: Array, start: int = 0) -> int:
    """The number of elements of `memory` that differ from the periodic sequence that begins at `start`."""
    bits = np.dtype(f"u{memory.itemsize}")
    shifted = np.roll(period, -(start % PERIOD)).view(bits)
    seen = memory.view(bits)
    return sum(
        int(np.count_nonzero(seen[begin : begin + PERIOD] != shifted[: seen[begin : begin + PERIOD].size]))
        for begin in range(0, seen.size, PERIOD)
    )
