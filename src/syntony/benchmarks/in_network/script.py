"""Data-parallel training as anybody writes it, timed: `script.py FOLDER LAYERS ELEMENTS STEPS`, once per rank.

The gradients of a rank are its own numbers, known to everybody, so that their sum needs no network to be checked. Each
rank leaves the last step's gradients and the seconds of all steps in FOLDER.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syntony.benchmarks.in_network.rank import numbers


class Layers(nn.Module):
    """Layers whose gradients are `inputs`."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(torch.zeros_like(each)) for each in inputs)
        self.inputs = inputs

    def forward(self) -> torch.Tensor:
        total = torch.zeros(())
        for layer, each in zip(self.layers, self.inputs, strict=True):
            total = total + torch.dot(layer, each)
        return total


def main() -> None:
    folder, layers, elements, steps = Path(sys.argv[1]), *map(int, sys.argv[2:])
    torch.set_num_threads(1)
    dist.init_process_group("syntony")
    rank = dist.get_rank()
    model = Layers([torch.from_numpy(numbers(rank, elements, layer)) for layer in range(layers)])
    ddp = DistributedDataParallel(model)
    seconds = []
    for _ in range(steps):
        ddp.zero_grad()
        dist.barrier()
        begin = time.perf_counter()
        ddp().backward()
        seconds.append(time.perf_counter() - begin)
    gradients = np.stack([layer.grad.numpy() for layer in model.layers if layer.grad is not None])
    np.savez(folder / f"{rank}.npz", gradients=gradients, seconds=np.array(seconds))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
