"""Syntony as a contender on GPUs: Programs run by the CUDA executor (csrc/cuda), launched into the rank's stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from syntony import _core
from syntony.benchmarks.bench.contenders import Call, Test
from syntony.benchmarks.cuda.gpu import Gpu, GpuMemory, block_of
from syntony.collectives.bootstrap.launch import RankError

OPERATORS: Mapping[str | None, str] = MappingProxyType({"prod": "product", None: "sum"})
"""nccl-tests' names that are not ours."""
_SCRATCH = 2  # a Program's third space


class Group:
    """The rank's executor, connected to all others."""

    def __init__(self, gpu: Gpu, timeout: float) -> None:
        """`timeout`: seconds that a launch may take. Collective."""
        size = gpu.exchange.size
        self.gpu = gpu
        self.executor = gpu.cuda.Executor(gpu.number, gpu.exchange.rank, gpu.cuda.ArenaShape(size), len(gpu.sharing))
        arenas, self._kept = gpu.reach(self.executor.arena)
        self.executor.connect(arenas)
        self.executor.set_timeout(timeout)
        gpu.checks.append(self._check)

    def _check(self) -> None:
        waited_in_vain(self.gpu.exchange.rank, self.executor.trouble())


def waited_in_vain(rank: int, trouble: dict[str, Any] | None) -> None:
    """Raises RankError where a launch ended in trouble."""
    if trouble is not None:
        waited = "another lane" if trouble["peer"] is None else f"rank {trouble['peer']}"
        raise RankError(
            f"rank {rank} {trouble['kind']} at lane {trouble['lane']}, instruction {trouble['instruction']}, slice "
            f"{trouble['slice']}, waiting for {waited}"
        )


@dataclass(frozen=True)
class Executed:
    """One algorithm or schedule file, with one protocol."""

    group: Group
    memory: GpuMemory
    algorithm: str
    protocol: str
    schedule: Path | None = None

    @property
    def label(self) -> str:
        name = self.algorithm if self.schedule is None else self.schedule.stem
        return name if self.protocol == "simple" else f"{name}/{self.protocol}"

    def prepare(self, test: Test) -> Call | None:
        gpu, executor, ranks = self.group.gpu, self.group.executor, self.memory.ranks
        if test.operation == "avg":
            return None  # no Program divides
        program = self._program(test)
        if test.in_place and not program.in_place:
            return None
        op = OPERATORS.get(test.operation, test.operation)
        blocks = {"all_to_all": ranks * ranks, "all_reduce": 1, "broadcast": 1, "reduce": 1}
        sizes = [block_of(test, ranks)] * blocks.get(test.shape.name, ranks)
        bulk = self.protocol == "bulk"
        protocol = "simple" if bulk else self.protocol
        plan = gpu.cuda.Plan(executor, program, test.element.torch, op, sizes, protocol=protocol, bulk=bulk)
        scratch = self._peers_scratch(plan)
        pointers = [
            scratch[rank] if space == _SCRATCH else self.memory.block(test, rank, space, block)
            for rank, space, block in plan.bases
        ]
        return lambda: executor.launch(plan, pointers, gpu.stream.handle)

    def barrier(self) -> object:
        self.group.gpu.meet()
        return None

    def close(self) -> None:
        """The executor goes with its group."""

    def _program(self, test: Test) -> Any:
        """That moves what `test` is about."""
        cuda, collective, ranks = self.group.gpu.cuda, test.shape.name, self.memory.ranks
        if self.schedule is not None:
            return self._loaded
        name = self.algorithm
        if name == "auto":
            name = "pull_two_shot" if collective == "all_reduce" else "pull"
        if name == "pull":
            return cuda.pull(collective, ranks, test.root)
        if name == "pull_two_shot":
            if collective != "all_reduce":
                raise ValueError(f"pull_two_shot is an algorithm of all_reduce; {collective} has pull")
            return cuda.pull_two_shot(ranks)
        return _core.build(name, collective, ranks, test.root)

    @cached_property
    def _loaded(self) -> Any:
        from syntony.synth.formats.loading import load

        assert self.schedule is not None
        return load(self.schedule, self.memory.ranks)

    def _peers_scratch(self, plan: Any) -> list[int]:
        """Every rank's scratch; a rank's own is the plan's."""
        ranks = range(self.memory.ranks)
        mine = self.group.gpu.exchange.rank
        if all(space != _SCRATCH or rank == mine for rank, space, _ in plan.bases):
            return [0 for _ in ranks]
        raise ValueError("a Program in which ranks touch each other's scratch is not run by the bench")
