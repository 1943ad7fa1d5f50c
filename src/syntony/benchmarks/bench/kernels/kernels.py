"""Whose kernels the bench knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from syntony.benchmarks.bench.contenders import Contender
from syntony.benchmarks.bench.kernels import deepspeed, vllm
from syntony.collectives.bootstrap.launch import Exchange


@dataclass(frozen=True)
class Kernels:
    """One project's kernels.

    `require` raises UserError that says what to install, if something is missing. `start` makes the contender of one
    rank; collective.
    """

    require: Callable[[], None]
    start: Callable[[Exchange], Contender]


KERNELS: Mapping[str, Kernels] = {
    vllm.NAME: Kernels(vllm.require, vllm.VllmKernels),
    deepspeed.NAME: Kernels(deepspeed.require, deepspeed.DeepSpeedKernels),
}
