"""Ranks of test_islands.py: trains a tiny model in several layouts with islands, one after another.

islands_script.py BACKEND CASES STEPS INTO    CASES: as of layout_script.py
Rank 0 saves all weights of each case as INTO/name; islands must agree on them.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from syntony.overlap.layouts.memory import exchanged
from syntony.overlap.policies.search import chain_of, planned
from syntony.trainer.config import Config
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run.measure.profile import cost_of
from syntony.trainer.run.process import be_reproducible
from syntony.trainer.run.rank import Rank, World
from tests.trainer.run.layout_script import config_of, plan_of


def batch(config: Config, step: int, microbatches: range) -> list[tuple[Tensor, Tensor]]:
    """Tokens and targets of these microbatches of all data ranks, in a step."""
    found = []
    for m in microbatches:
        source = torch.Generator().manual_seed(1000 * step + m)
        shape = config.data.rows_at(m), config.model.context + 1
        text = torch.randint(config.model.vocabulary, shape, generator=source)
        found.append((text[:, :-1], text[:, 1:]))
    return found


def count_memory(rank: Rank) -> None:
    """What islands keep at the end of a step is what the memory model says; without a delay, exchanges of some layers
    may have ended."""
    sizes, islands = rank.config.parallel, rank.updates._islands
    if islands is None:
        return
    mine = sum(len(shard.updated) for sharded in rank.updates.layers.values() for shard in sharded.shards)
    kept = [
        tensor
        for one in islands._exchanged.values()
        for tensor in (one.agreed, one.momentum, *one.own, *one.sums)
        if tensor is not None
    ]
    assert (exchanged(sizes) - 2 * (not sizes.delay)) * mine <= sum(map(len, kept)) <= exchanged(sizes) * mine, sizes


def main() -> None:
    backend, cases, steps, into = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    be_reproducible(1)
    dist.init_process_group(backend)
    for title, changes in cases:
        config = config_of(changes, backend)
        mesh = Mesh(config.parallel, dist.get_rank())
        rank = Rank(config, mesh, World(mesh, 150.0))
        recorded = rank.recorded()
        plan = (
            planned(chain_of(changes["policy"]), recorded, cost_of(recorded, {}, {})) if "policy" in changes else None
        )
        rank.begin(plan or plan_of(recorded, config))
        turns = config.data.microbatches // config.parallel.dp
        mine = range(mesh.place["dp"] * turns, (mesh.place["dp"] + 1) * turns)
        for step in range(steps):
            rank.step(batch(config, step, mine), config.optimizer.lr)
        count_memory(rank)
        rank.rest()
        mine = [
            (name, weight.place, weight.full_shape, tensor.clone())
            for name, weight, tensor in rank.tensors()
            if name.count(".") == 1
        ]
        wholes: dict[str, Tensor] = {}
        for blob in rank.world.gather(pickle.dumps(mine)):
            for name, place, shape, tensor in pickle.loads(blob):
                here = wholes.setdefault(name, torch.full(shape, torch.nan))[place]
                assert torch.isnan(here).all() or torch.equal(here, tensor), f"{name} differs between ranks"
                here.copy_(tensor)
        if mesh.rank == 0:
            torch.save(wholes, into / title)
        rank.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
