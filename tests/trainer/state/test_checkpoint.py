"""What ranks tell each other when a checkpoint is written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from syntony.trainer.model.layer import Weight
from syntony.trainer.state.checkpoint import whole


def test_a_weight_travels_without_its_neighbours() -> None:
    """Weights of a layer are views of one buffer, and pickle takes a tensor's whole storage along."""
    flat = torch.arange(64 * 1024, dtype=torch.float32)
    told: list[bytes] = []

    def gather(blob: bytes) -> list[bytes]:
        told.append(blob)
        return [blob]

    views = flat.split(1024)
    weight = Weight("weight", (1024,), 0.02)
    rank: Any = SimpleNamespace(
        tensors=lambda: [(f"layer.{i}", weight, view) for i, view in enumerate(views)],
        mesh=SimpleNamespace(place={"data": 0}, rank=0),
        updates=SimpleNamespace(layers={}),
        world=SimpleNamespace(gather=gather),
    )
    found = whole(rank)
    assert all(torch.equal(found[f"layer.{i}"], view) for i, view in enumerate(views))
    assert flat.nbytes <= len(told[0]) < 2 * flat.nbytes
