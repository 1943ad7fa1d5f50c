"""What is trained, on what, how: one TOML file, and `--set section.key=value` on top of it.

A section is a dataclass below, a key a field of it; that is all there is to know. What is wrong is said in one sentence
with file, line and key, before anything starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal


@dataclass(frozen=True)
class Model:
    """The transformer. `experts` 0: dense; else every block's MLP is that many experts, `top` of them per token."""

    blocks: int = 4
    width: int = 128
    heads: int = 4
    hidden: int = 0  # of the MLP; 0: 4 widths, or 8/3 of one for swiglu, as a multiple of 64
    context: int = 128
    vocabulary: int = 256
    activation: Literal["swiglu", "gelu"] = "swiglu"
    positions: Literal["rotary", "learned"] = "rotary"
    experts: int = 0
    top: int = 2
    balance: float = 0.01  # weight of the load-balancing loss


@dataclass(frozen=True)
class Data:
    """Text. A step takes `microbatches` of `rows` sequences each, all data ranks together."""

    source: str = "stdlib"  # or a file or a folder
    pattern: str = "*.py"  # of the files in a folder
    rows: int = 4
    microbatches: int = 4


@dataclass(frozen=True)
class Optimizer:
    """Any elementwise class of torch.optim by name; `options` go to it. The norm's gains do not decay."""

    name: str = "AdamW"
    lr: float = 1e-3
    warmup: int = 20  # steps in which lr grows linearly
    final: float = 0.1  # part of lr at the last step, reached along a cosine
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    clip: Literal["exact", "optimistic", "off"] = "exact"
    clip_norm: float = 1.0


@dataclass(frozen=True)
class Parallel:
    """Ranks along every axis. World = pp x dp x cp x tp; `ep` divides dp x cp."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    zero: int = 0  # 0: replicated; 1: optimizer, 2: gradients, 3: weights sharded
    replicas: int = 1  # of the sharded weights (hybrid sharding)
    sequence: bool = True  # tp: between the branches, activations are sharded along the sequence
    attention: Literal["ring", "ulysses"] = "ring"  # how cp attends
    schedule: str = "1f1b"  # of the pipeline
    loops: int = 1  # chunks of the model on a pipeline device
    recompute: bool = False  # activation checkpointing
    prefetch: int = 1  # zero 3: for how many layers ahead weights are gathered


@dataclass(frozen=True)
class Overlap:
    """The policy that makes the Plan, and its knobs."""

    policy: str = "wfbp"
    knobs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Run:
    """One training run."""

    steps: int = 100
    seed: int = 0
    backend: str = "syntony"  # any torch backend
    dtype: Literal["float32", "bfloat16"] = "float32"
    compute: Literal["real", "emulated"] = "real"
    forward: float = 0.0  # emulated: seconds of a block's forward for one microbatch
    threads: int = 1
    timeout: float = 30.0  # seconds after which a silent rank is given up
    every: int = 10  # steps between lines of progress
    log: str = ""  # JSONL file
    save: str = ""  # folder of checkpoints
    save_every: int = 0
    resume: str = ""  # a checkpoint's folder


@dataclass(frozen=True)
class Config:
    """All of it."""

    model: Model = Model()
    data: Data = Data()
    optimizer: Optimizer = Optimizer()
    parallel: Parallel = Parallel()
    overlap: Overlap = Overlap()
    run: Run = Run()
