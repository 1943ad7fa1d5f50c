"""Places experts by demand, between two steps: their weights and optimizer state move to other ranks. Results stay the
same bit for bit: an expert gets the same rows wherever it is.

    asked for      90 5 3 2 | 80 10 5 5 | ..       of every block: rows since the last time, over all ranks
    places         the most requested experts first, each to the rank with the least work that has room

Experts return home before weights are saved or compared. SmartMoE (Zhai et al., ATC 2023), FlexMoE (Nie et al., SIGMOD
2023) and Prophet (Wang et al., CLUSTER 2023) also place experts between steps; `fastermoe` copies experts in demand,
for each microbatch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from syntony.base.command import UserError
from syntony.overlap.step.demand import Integers, placed
from syntony.trainer.run.rank import Rank

Blocks = Mapping[int, Integers]  # of each: the place of every expert


def follow(rank: Rank) -> int:
    """Places the experts of all blocks by demand, and resets it. Returns the number of moved experts. Collective."""
    mine = {str(block): places.asked.tolist() for block, places in rank.places.items()}
    every = [json.loads(blob) for blob in rank.world.gather(json.dumps(mine).encode())]
    found: dict[int, Integers] = {}
    for block, places in rank.places.items():
        asked = np.sum([each[str(block)] for each in every], axis=0)
        found[block] = placed(asked, rank.mesh.size("ep"), places.of[:-1].numpy())
        places.asked.zero_()
    return _move(rank, found)


def go_home(rank: Rank) -> int:
    """Returns every expert to its first place. Collective."""
    return _move(rank, {block: np.arange(len(places.asked)) for block, places in rank.places.items()})


def refuse_hot(rank: Rank) -> None:
    """Raises UserError for a plan in which some experts' weights are laid out differently."""
    if any(layer.hot for layer in rank.plan.graph.layers):
        raise UserError("[overlap] follow moves experts that stay with their ranks; the policy has them come to tokens")


def _move(rank: Rank, wanted: Blocks) -> int:
    moved = {block: places for block, places in rank.places.items() if (places.of[:-1].numpy() != wanted[block]).any()}
    if not moved:
        return 0
    rank.rest()
    layers = {sharded.layer.name: sharded for sharded in rank.updates.layers.values()}
    known = sorted({kind for each in layers.values() for one in each.shards for kind in rank.updates.memories(one)})
    every = [json.loads(blob) for blob in rank.world.gather(json.dumps(known).encode())]
    kinds, counts, total = sorted({kind for each in every for kind in each}), rank.updates.counts(), 0
    for block, places in moved.items():
        before, after = places.of[:-1].numpy(), wanted[block]
        total += int((before != after).sum())
        sharded = layers.get(f"experts_{block}")
        wholes = {} if sharded is None else dict(rank.wholes(sharded, ("", *kinds)))
        for kind in ("", *kinds):
            whole = wholes.get(kind)
            views = [] if sharded is None or whole is None else list(sharded.flat.views(whole).values())
            _swap(rank, views, before, after)
            if sharded is not None and whole is not None:
                rank.updates.restore(sharded.index, kind, whole, counts)
        places.of[:-1] = torch.from_numpy(after)
    return total


def _swap(rank: Rank, views: list[Tensor], before: Integers, after: Integers) -> None:
    """Permutes one tensor of each of the rank's experts, in the order of places, in every view."""
    local, here = len(before) // rank.mesh.size("ep"), rank.mesh.place["ep"]
    ranks = next(group for group in rank.mesh.members("ep") if rank.mesh.rank in group)
    size = sum(view[0].numel() for view in views)
    parts, sizes = [torch.empty(0)] * rank.mesh.world, [0] * rank.mesh.world
    by_place = np.argsort(before)
    for other, number in enumerate(ranks if views else ()):
        leaving = [expert for expert in by_place if (before[expert] // local, after[expert] // local) == (here, other)]
        rows = [view[before[expert] % local].flatten() for expert in leaving for view in views]
        parts[number] = torch.cat(rows) if rows else torch.empty(0)
        sizes[number] = size * sum((before // local == other) & (after // local == here))
    found = rank.world.swap(parts, sizes)
    for other, number in enumerate(ranks if views else ()):
        coming = [expert for expert in by_place if (before[expert] // local, after[expert] // local) == (other, here)]
        pieces = torch.split(found[number], [view[0].numel() for _ in coming for view in views])
        for at, expert in enumerate(coming):
            for view, piece in zip(views, pieces[at * len(views) :], strict=False):
                view[after[expert] % local] = piece.view(view.shape[1:])
