"""A task: the chunks, their sources and destinations, the cost of each edge for each chunk, and the symmetry.

Everything is a table of chunks times edges. Under the sketch's symmetry the pairs of one orbit are decided together, so
tables are read at the least pair of each orbit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony.synth.engines.engine import EngineError
from syntony.synth.engines.taccl.logical import Logical, SketchError
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.symmetry.groups import chunk_permutation

Integers = NDArray[np.signedinteger]

MOST_PAIRS = 4_000_000
"""Chunks times edges; with more there is no table."""
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Task:
    """
    collective  with chunks cut as the sketch says, not yet into stripes
    home        (C,)  the rank that starts with each chunk
    wanted      per chunk, who has yet to get it
    bytes       (C,)
    usable      (C, E)  which edges may carry which chunk
    chunk_to, edge_to  (order, C), (order, E)  where each element of the logical network's group moves them
    """

    logical: Logical
    collective: Collective
    home: Integers
    wanted: tuple[frozenset[int], ...]
    bytes: NDArray[np.float64]
    usable: NDArray[np.bool_]
    chunk_to: Integers
    edge_to: Integers

    @staticmethod
    def of(logical: Logical, size: int) -> Task:
        """The task of the logical network's collective at `size` bytes. Raises SketchError, EngineError."""
        collective = _cut(logical.network.collective, logical.sketch.chunks)
        chunks, edges = len(collective.chunks), len(logical.edges)
        if chunks * edges > MOST_PAIRS:
            raise EngineError(
                f"engine taccl would weigh {chunks} chunks on {edges} pairs of ranks, more than {MOST_PAIRS} choices; "
                "a sketch with fewer links, or use --engine greedy"
            )
        home = np.asarray([min(collective.pre(chunk)) for chunk in range(chunks)], np.int64)
        wanted = tuple(collective.post(chunk) - collective.pre(chunk) for chunk in range(chunks))
        share = collective.bytes_of_chunks(1)
        chunk_to, edge_to = _moves(logical, collective)
        task = Task(logical, collective, home, wanted, share * size, np.zeros((chunks, edges), bool), chunk_to, edge_to)
        usable = _usable(task)
        for chunks_moved, edges_moved in zip(chunk_to, edge_to, strict=True):
            usable &= usable[chunks_moved][:, edges_moved]
        task = Task(logical, collective, home, wanted, task.bytes, usable, chunk_to, edge_to)
        _check_reach(task)
        return task

    @cached_property
    def latency(self) -> NDArray[np.float64]:
        """(C, E): seconds until the chunk has arrived over the idle edge."""
        edges = self.logical.edges
        alpha = np.asarray([edge.alpha for edge in edges])
        pace = self.pace.max(axis=1, initial=0.0)
        return np.asarray(alpha + self.bytes[:, None] * pace)

    @cached_property
    def links(self) -> Integers:
        """(E, K): the links of every edge, padded with the first."""
        rows = [list(edge.share) for edge in self.logical.edges]
        width = max((len(row) for row in rows), default=1)
        return np.asarray([row + row[:1] * (width - len(row)) for row in rows], np.int64).reshape(len(rows), width)

    @cached_property
    def pace(self) -> NDArray[np.float64]:
        """(E, K): seconds that a byte of a chunk keeps each of the edge's links busy; 0 for padding."""
        speed = self.logical.network.topology.links
        rows = [
            [float(part / speed[link].bandwidth) for link, part in edge.share.items()] for edge in self.logical.edges
        ]
        width = self.links.shape[1]
        return np.asarray([row + [0.0] * (width - len(row)) for row in rows]).reshape(len(rows), width)

    @cached_property
    def pairs(self) -> Integers:
        """(C, E): the least pair of the orbit, a pair being chunk * E + edge."""
        return self._least(self.edge_to)

    @cached_property
    def places(self) -> Integers:
        """(C, ranks): the same of chunks at ranks."""
        return self._least(self.logical.group.elements)

    @cached_property
    def representatives(self) -> Integers:
        """The least chunk of every orbit."""
        return np.unique(self.chunk_to.min(axis=0))

    def _least(self, moves: Integers) -> Integers:
        least = np.arange(self.chunk_to.shape[1])[:, None] * moves.shape[1] + np.arange(moves.shape[1])
        for chunks_moved, moved in zip(self.chunk_to[1:], moves[1:], strict=True):
            np.minimum(least, chunks_moved[:, None] * moves.shape[1] + moved, out=least)
        found: Integers = least
        return found


def _cut(collective: Collective, pieces: int) -> Collective:
    table = collective.chunks
    return replace(collective, chunks=ChunkTable(np.repeat(table.block, pieces), np.repeat(table.weight, pieces)))


def _moves(logical: Logical, collective: Collective) -> tuple[Integers, Integers]:
    """What every element of the group does to chunks and edges."""
    members = collective.members
    chunks, edges = [], []
    for element in logical.group.elements:
        nodes = list(range(len(logical.network.topology.nodes)))
        for rank, image in enumerate(element.tolist()):
            nodes[members[rank]] = members[image]
        moved = chunk_permutation(collective, tuple(nodes))
        if moved is None:
            raise SketchError(f"{logical.sketch.name}: symmetry moves blocks of {collective.kind} to unlike ones")
        chunks.append(moved)
        edges.append(logical.moved(element))
    return np.asarray(chunks, np.int64), np.asarray(edges, np.int64)


def _usable(task: Task) -> NDArray[np.bool_]:
    """What the sketch lets each chunk use; for a single receiver, only what is on a path that is not too long."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    logical, ranks = task.logical, task.collective.ranks
    src, dst = logical.ends
    between = logical.sketch.between
    apart = between is not None and bool(between.carries)
    masks = np.asarray([logical.usable(home) for home in range(ranks)]).reshape(ranks, len(src))
    usable = masks[task.home]
    far: dict[tuple[int, float], NDArray[np.float64]] = {}
    for chunk, wanted in enumerate(task.wanted):
        if len(wanted) != 1:
            usable[chunk] &= bool(wanted)
            continue
        home, (end,) = int(task.home[chunk]), wanted
        key = (home if apart else -1, float(task.bytes[chunk]))
        if key not in far:
            mask = masks[home] if apart else np.ones(len(src), bool)
            graph = csr_array((task.latency[chunk][mask], (src[mask], dst[mask])), shape=(ranks, ranks))
            far[key] = shortest_path(graph)
        distance = far[key]
        through = distance[home][src] + task.latency[chunk] + distance[:, end][dst]
        most = distance[home, end] * (1 + logical.sketch.detour + _TOLERANCE)
        usable[chunk] &= (through <= most) & np.isfinite(through) & (src != end)
    return usable


def _check_reach(task: Task) -> None:
    """Raises SketchError where the sketch leaves no way from a chunk's home to a rank that wants it."""
    src, dst = task.logical.ends
    for chunk in task.representatives.tolist():
        reached = np.zeros(task.collective.ranks, bool)
        reached[task.home[chunk]] = True
        usable = task.usable[chunk]
        while (fresh := usable & reached[src] & ~reached[dst]).any():
            reached[dst[fresh]] = True
        lost = [rank for rank in sorted(task.wanted[chunk]) if not reached[rank]]
        if lost:
            raise SketchError(
                f"{task.logical.sketch.name}: what starts at rank {task.home[chunk]} cannot reach rank {lost[0]} over "
                "the links that the sketch leaves it"
            )
