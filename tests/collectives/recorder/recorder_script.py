"""Torch's groups leave records as well: the world, and one over some of its ranks."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from syntony import dump

dist.init_process_group("syntony")
some = dist.new_group([1, 2])
dist.all_reduce(torch.ones(4))
if dist.get_rank() > 0:
    dist.broadcast(torch.ones(3, dtype=torch.bfloat16), src=1, group=some)
dist.barrier()
dump(sys.argv[1])
dist.barrier()
dist.destroy_process_group()
