"""One call of a collective, what it must give, and the check that it did."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from syntony import _core
from tests.csrc.program_interpreter import blocks_of, ends, starts
from tests.csrc.runtime import elements
from tests.csrc.runtime.group import Bytes, Group

COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
)  # fmt: skip
ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ALGORITHMS = {
    collective: ("auto", *(a.name for a in _core.algorithms() if collective in a.collectives))
    for collective in COLLECTIVES
}
GUARD = 64  # bytes around every output that nobody may touch
CANARY = 0xA5


@dataclasses.dataclass(frozen=True)
class Case:
    collective: str
    algorithm: str = "auto"
    dtype: str = "float32"
    op: str = "sum"
    sizes: tuple[int, ...] = ()  # elements of each block
    root: int = 0
    in_place: bool = False
    even: bool = True
    average: bool = False
    factor: float = 1.0
    seed: int = 0

    @property
    def reducing(self) -> bool:
        return self.collective in REDUCING


def even_case(collective: str, ranks: int, count: int, **fields: object) -> Case:
    """`count` elements in every block."""
    return Case(collective, sizes=(count,) * blocks_of(collective, ranks), **fields)  # type: ignore[arg-type]


class Call:
    """A case on one rank: its buffers, and what they must hold in the end."""

    def __init__(self, case: Case, rank: int, ranks: int) -> None:
        self.case = case
        self._contributions: dict[int, list[elements.Values]] = {}
        self.inputs: dict[int, Bytes] = {}
        self.outputs: dict[int, Bytes] = {}
        self._guarded: dict[int, Bytes] = {}
        itemsize = _core.itemsize(case.dtype)
        for block, size in enumerate(case.sizes):
            if starts(case.collective, ranks, case.root, rank, block):
                self.inputs[block] = elements.encode(case.dtype, self._values(rank, block, ranks))
            if ends(case.collective, ranks, case.root, rank, block):
                guarded = np.full(size * itemsize + 2 * GUARD, CANARY, np.uint8)
                self._guarded[block] = guarded
                self.outputs[block] = guarded[GUARD : GUARD + size * itemsize]
                if case.in_place and block in self.inputs:
                    self.outputs[block][:] = self.inputs[block]
                    self.inputs[block] = self.outputs[block]
        self._before = {block: data.copy() for block, data in self.inputs.items()}
        self._rank, self._ranks = rank, ranks

    def _values(self, rank: int, block: int, ranks: int) -> elements.Values:
        """What `rank` starts with in `block`: every rank can compute everybody's."""
        case = self.case
        rng = np.random.default_rng((case.seed, rank, block))
        scale = ranks if case.average else 2 if case.factor != 1.0 else 1
        return elements.values(rng, case.dtype, case.op if case.reducing else "sum", rank, case.sizes[block], scale)

    def _expected(self, block: int) -> Bytes:
        case, ranks = self.case, self._ranks
        holders = [rank for rank in range(ranks) if starts(case.collective, ranks, case.root, rank, block)]
        contributions = [self._values(rank, block, ranks) for rank in holders]
        if case.factor != 1.0:  # rank r weighs (r % 2 + 1) / 2; the values are even
            contributions = [v * (rank % 2 + 1) // 2 for rank, v in zip(holders, contributions, strict=True)]
        total = elements.combine(case.dtype, case.op, contributions) if case.reducing else contributions[0]
        if case.average:
            total = elements.divide(case.dtype, total, ranks)
        return elements.encode(case.dtype, total)

    def start(self, group: Group, *, async_op: bool = False, **options: object) -> Any:
        case = self.case
        if case.factor != 1.0:
            options["factor"] = (self._rank % 2 + 1) * 0.5
        return group.run(
            case.collective,
            case.dtype,
            case.sizes,
            self.inputs,
            self.outputs,
            op=case.op,
            root=case.root,
            algorithm=case.algorithm,
            average=case.average,
            even=case.even,
            async_op=async_op,
            **options,
        )

    def check(self) -> None:
        who = f"rank {self._rank} of {self._ranks}, {self.case}"
        for block, guarded in self._guarded.items():
            result, expected = self.outputs[block], self._expected(block)
            if result.tobytes() != expected.tobytes():
                itemsize = _core.itemsize(self.case.dtype)
                wrong = np.flatnonzero((result != expected).reshape(-1, itemsize).any(1))
                raise AssertionError(f"{who}: block {block} has {len(wrong)} wrong elements, the first is {wrong[0]}")
            edges = np.concatenate([guarded[:GUARD], guarded[-GUARD:]])
            assert np.all(edges == CANARY), f"{who}: block {block} was written beyond its end"
        for block, before in self._before.items():
            if self.outputs.get(block) is not self.inputs[block]:
                assert np.array_equal(before, self.inputs[block]), f"{who}: the input of block {block} was changed"

    def digest(self) -> str:
        return hashlib.sha256(b"".join(self.outputs[block].tobytes() for block in sorted(self.outputs))).hexdigest()


def run_cases(group: Group, cases: Sequence[Case]) -> None:
    """One after another, each checked on every rank."""
    for case in cases:
        call = Call(case, group.rank, group.size)
        call.start(group)
        call.check()


def generator(*key: object) -> np.random.Generator:
    """A seed per test, the same in every run; printed so that a failure names it."""
    seed = zlib.crc32(repr(key).encode())
    print(f"seed {seed} for {key}")
    return np.random.default_rng(seed)
