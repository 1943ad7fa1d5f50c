"""Whose kernels the bench knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from syntony.benchmarks.bench.contenders import Contender
from syntony.benchmarks.bench.kernels import deepspeed, vllm
from syntony.collectives.bootstrap.launch import Exchange


class Start(Protocol):
    """Makes the contender of one rank. Collective."""

    def __call__(self, exchange: Exchange, /) -> Contender: ...


class Require(Protocol):
    """Raises UserError that says what to install, if something is missing."""

    def __call__(self) -> None: ...


@dataclass(frozen=True)
class Kernels:
    """One project's kernels."""

    require: Require
    start: Start


KERNELS: Mapping[str, Kernels] = {
    vllm.NAME: Kernels(vllm.require, vllm.VllmKernels),
    deepspeed.NAME: Kernels(deepspeed.require, deepspeed.DeepSpeedKernels),
}
