"""Engine `fast`: an all_to_all whose blocks may differ in size, as the schedule of a stage plan (stage_plan.py).

The pieces of a block are its chunks, with their bytes as weights. Stage s sends from box to box in step s + 1. Bytes
that must first move to another rank of the sending box do so one step before, and those that then move on inside the
receiving box do so one step after. Of several routes, a message takes the one that is least loaded so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.fast.stage_plan import StagePlan, stage_plan
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.routes import Route, routes_of
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.symmetry.levels import LevelsError, levels_of
from syntony.topologies.topology import Topology

ENGINE = "fast"


def run(topology: Topology, collective: Collective, size: int, budget: Budget) -> Schedule:
    """The engine; see the module docstring. Raises EngineError for other collectives, or if there are no boxes."""
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine fast takes no --steps or --rounds; use --engine sccl")
    if collective.kind != "all_to_all":
        raise EngineError(f"engine fast is for all_to_all, not for {collective.kind}; use --engine hierarchy")
    try:
        levels = levels_of(topology, collective).joined()
    except LevelsError as error:
        raise EngineError(f"engine fast: {error}") from None
    ranks = collective.ranks
    owed = np.bincount(collective.chunks.block, collective.chunks.weight).astype(np.int64)
    found = stage_plan(levels, owed.reshape(ranks, ranks))
    order = np.lexsort((found.offset, found.target, found.source))
    block = (found.source * ranks + found.target)[order]
    own = np.arange(ranks) * (ranks + 1)  # blocks that stay where they are
    every = np.argsort(np.r_[block, own], kind="stable")
    chunks = ChunkTable(np.r_[block, own][every], np.r_[found.bytes[order], owed[own]][every])
    piece = np.r_[order, np.full(ranks, -1)][every]
    whole = replace(collective, chunks=chunks)
    rows = sorted(_transfers(Network(topology, whole), found, piece), key=lambda row: row.step)
    values = ValueBuilder.of_chunks(whole).build()
    return Schedule(topology, whole, values, Transfers.of(rows), engine=ENGINE, bounds=bounds_of(topology, whole))


def _transfers(network: Network, plan: StagePlan, piece: NDArray[np.int64]) -> Iterator[Transfer]:
    """The hops of every chunk; `piece[c]` is its piece, or -1."""
    lanes = _Lanes(network)
    hops = np.stack([plan.source, plan.out, plan.into, plan.target], axis=1).tolist()
    for chunk in np.argsort(np.where(piece >= 0, plan.stage[piece], -1), kind="stable").tolist():
        if piece[chunk] < 0:
            continue
        way, stage, size = hops[piece[chunk]], int(plan.stage[piece[chunk]]), int(plan.bytes[piece[chunk]])
        for hop, (src, dst) in enumerate(pairwise(way)):
            if src != dst:
                step = stage + 1 if stage < 0 else stage + hop
                yield Transfer(chunk, chunk, src, dst, step, lanes.take(src, dst, size))


class _Lanes:
    """Chooses the route of each message."""

    def __init__(self, network: Network) -> None:
        self._routes: dict[tuple[int, int], list[Route]] = {}
        for route in routes_of(network).routes:
            self._routes.setdefault((route.src, route.dst), []).append(route)
        self._rate = [float(link.bandwidth) for link in network.topology.links]
        self._busy = [0.0] * len(self._rate)

    def take(self, src: int, dst: int, size: int) -> tuple[int, ...]:
        """The links of the route whose busiest link will be least loaded."""
        if (src, dst) not in self._routes:
            raise EngineError(f"engine fast: other ranks lie between ranks {src} and {dst}, which exchange directly")
        best = min(
            self._routes[src, dst],
            key=lambda route: max(self._busy[link] + size / self._rate[link] for link in route.links),
        )
        for link in best.links:
            self._busy[link] += size / self._rate[link]
        return best.links
