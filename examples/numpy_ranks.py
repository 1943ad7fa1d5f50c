"""Ranks of NumPy arrays, without torch.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who meets where; most launchers set them. By hand, for two ranks:

    export WORLD_SIZE=2 MASTER_PORT=29511
    RANK=0 python examples/numpy_ranks.py & RANK=1 python examples/numpy_ranks.py
"""

import numpy as np

import syntony

with syntony.Communicator.create(syntony.TcpBootstrap.from_environment()) as group:
    gradient = np.full(1000, group.rank + 1, np.float32)
    group.all_reduce(gradient)
    everyone = np.empty(group.size, np.int64)
    group.all_gather(np.array([group.rank]), everyone)
    print(f"rank {group.rank}: sum {gradient[0]:.0f}, ranks {everyone.tolist()}")
