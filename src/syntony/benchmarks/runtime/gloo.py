"""Table `gloo`: torch's four collectives over our backend and over gloo, on the same tensors."""

from __future__ import annotations

import argparse

from syntony.benchmarks.bench.contenders import TorchGroup
from syntony.benchmarks.runtime.measured import sweep
from syntony.benchmarks.runtime.measured.duel import Rules, part
from syntony.benchmarks.tables import Part, Table
from syntony.collectives.bootstrap.launch import Exchange

MEAN, LEAST = 10.0, 1.0
"""Goals: at least ten times as fast in the geometric mean, never slower."""


def _make(exchange: Exchange) -> list[TorchGroup]:
    return [TorchGroup(exchange, label, sweep.SILENCE) for label in ("torch", "gloo")]


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    import torch.distributed  # noqa: F401  once, before ranks are forked

    title = "Medians of torch process groups called as torch.distributed calls them: torch is our backend, float sums"
    choice = sweep.chosen(options)
    return (part(title, "torch", ("gloo",), _make, choice, Rules(lambda size: LEAST, MEAN), torch=True),)


TABLE = Table("gloo", "our torch backend against gloo", _parts, sweep.configure)
