"""The object collectives, unmodified: pickles of different lengths."""

import json
import sys

import torch.distributed as dist

dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
mine = {"rank": rank, "text": "x" * (1 + 1000 * rank)}
everybody = [{"rank": r, "text": "x" * (1 + 1000 * r)} for r in range(size)]

gathered: list[object] = [None] * size
dist.all_gather_object(gathered, mine)
assert gathered == everybody

at_root: list[object] | None = [None] * size if rank == 1 else None
dist.gather_object(mine, at_root, dst=1)
assert at_root == (everybody if rank == 1 else None)

scattered: list[object] = [None]
dist.scatter_object_list(scattered, everybody if rank == 1 else None, src=1)
assert scattered == [everybody[rank]]

told = [mine, rank] if rank == size - 1 else [None, None]
dist.broadcast_object_list(told, src=size - 1)
assert told == [everybody[-1], size - 1]

if rank == 0:
    dist.send_object_list([mine, "letter"], dst=1)
elif rank == 1:
    letter: list[object] = [None, None]
    dist.recv_object_list(letter, src=0)
    assert letter == [everybody[0], "letter"]
dist.barrier()
if rank == 0:
    print(json.dumps([]))
dist.destroy_process_group()
