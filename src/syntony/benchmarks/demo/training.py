"""Data-parallel training with torch's own DistributedDataParallel; only the backend's name differs."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from syntony.benchmarks.demo.model import Shape, Transformer
from syntony.benchmarks.demo.text import Bytes, batch


@dataclass(frozen=True)
class Run:
    """Mean loss over all ranks (nats per byte) and rank 0's time (seconds), per step."""

    losses: list[float]
    seconds: list[float]


def train(
    backend: str,
    store: dist.Store,
    rank: int,
    ranks: int,
    text: Bytes,
    steps: int,
    rows: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    """`steps` steps of the demonstration's transformer on `rows` rows per rank. Collective."""
    torch.set_num_threads(1)
    torch.manual_seed(20260101)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    try:
        shape = Shape()
        model = DistributedDataParallel(Transformer(shape))
        # When the last reference to a DDP over gloo is dropped, torch 2.13 may hang: its destructor holds the
        # interpreter's lock and joins a thread that needs it. So this process keeps a reference for good.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(model))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses, seconds = [], []
        for step in range(steps):
            begin = clock()
            bytes_in, bytes_out = (
                torch.from_numpy(part).long() for part in batch(text, step, rank, rows, shape.context)
            )
            loss = model(bytes_in, bytes_out)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seconds.append(clock() - begin)
            losses.append(loss.detach())
        curve = torch.stack(losses).double()
        dist.all_reduce(curve)
        return Run((curve / ranks).tolist(), seconds)
    finally:
        dist.destroy_process_group()
