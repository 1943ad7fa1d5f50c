r"""Levels: the ranks of a collective as the points of a grid in which each axis has separate wires.

        outermost                                    a torus: both axes are rings
        box 0        box 1        box 2
      ┌────────┐   ┌────────┐   ┌────────┐           0 ─ 1 ─ 2        levels 3 x 3: lines (0 1 2), (3 4 5), ..
      │ 0  1   │   │ 2  3   │   │ 4  5   │           │   │   │                and (0 3 6), (1 4 7), ..
      └────────┘   └────────┘   └────────┘           3 ─ 4 ─ 5
                                                     │   │   │
      levels 3 x 2: lines (0 1), (2 3), (4 5)        6 ─ 7 ─ 8
               and (0 2 4), (1 3 5): rails

A *line* of a level is a set of ranks that differ only in that coordinate. Levels are found in three ways: from what
ranks share (boxes, then racks or leaves: sets of ranks nearer to one another than to any other), from wires along the
axes of the rank numbers (tori, meshes, hypercubes), or they are given (`4x8`, the last one fastest).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony._solve import ShortestPaths
from syntony.base.command import UserError
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.topologies.hosts import hosts_of
from syntony.topologies.topology import Topology

_SHAPE = re.compile(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5})+")
MOST_AXES = 4
"""The most axes to look for in the rank numbers of a network without switches."""


class LevelsError(UserError):
    """The ranks are not a product of levels."""


@dataclass(frozen=True, eq=False)
class Levels:
    """`grid[i, j, ..]` is the rank (of the collective) at those coordinates, outermost level first; `source` says how
    the levels were found."""

    grid: NDArray[np.int64]
    source: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of ranks on a line of each level, outermost first."""
        return tuple(self.grid.shape)

    def __len__(self) -> int:
        return self.grid.ndim

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """(ranks, levels): the coordinates of each rank."""
        places = np.empty((self.grid.size, self.grid.ndim), np.int64)
        places[self.grid.reshape(-1)] = np.stack(np.unravel_index(np.arange(self.grid.size), self.shape), axis=1)
        return places

    def lines(self, level: int) -> NDArray[np.int64]:
        """(lines, ranks of a line): the lines of the level."""
        return np.moveaxis(self.grid, level, -1).reshape(-1, self.shape[level])

    def joined(self) -> Levels:
        """Two levels: the innermost, and all others merged."""
        return self if len(self) <= 2 else Levels(self.grid.reshape(-1, self.shape[-1]), self.source)


def levels_of(topology: Topology, collective: Collective) -> Levels:
    """The levels of the collective's members. Raises LevelsError that says why there are none."""
    network = Network(topology, collective)
    direct = all(node.kind == "rank" for node in topology.nodes)
    found = _along_wires(network) if direct else _of_nested(network)
    if found is None or len(found) < 2:
        raise LevelsError(
            f"the {collective.ranks} ranks on {topology.name} are not a product of levels: "
            "no boxes of equal size, and no axes with wires of their own"
        )
    return found


def given_levels(shape: str, ranks: int) -> Levels:
    """The levels in `shape`, such as `4x8`, in the order of ranks. Raises LevelsError."""
    sizes = [int(size) for size in shape.split("x")] if _SHAPE.fullmatch(shape) else []
    if sum(size > 1 for size in sizes) < 2:
        raise LevelsError(f"'{shape}' are not levels; write two sizes or more, outermost first, such as 4x8")
    if math.prod(sizes) != ranks:
        raise LevelsError(f"levels {shape} are {math.prod(sizes)} ranks, but there are {ranks}")
    return Levels(np.arange(ranks).reshape([size for size in sizes if size > 1]), "given")


# Nested sets ------------------------------------------------------------------------------------------------------


def _of_nested(network: Network) -> Levels | None:
    """Levels from nested sets of equal size: boxes, and ranks that are the fewest links apart."""
    ranks = network.collective.ranks
    chain: list[NDArray[np.int64]] = []  # per level, innermost first: the set of every rank
    for label in _partitions(network):
        sizes = np.bincount(label)
        if sizes.min() != sizes.max() or sizes[0] in (1, ranks):
            continue
        if chain and (len(np.unique(np.stack([label, chain[-1]]), axis=1).T) != chain[-1].max() + 1):
            continue  # does not contain the sets before it
        if not chain or label.max() < chain[-1].max():
            chain.append(label)
    if not chain:
        return None
    order = np.lexsort((np.arange(ranks), *chain))
    shape = [int(chain[-1].max()) + 1]
    for outer, inner in zip(reversed(chain), [*reversed(chain[:-1]), np.arange(ranks)], strict=True):
        shape.append((int(inner.max()) + 1) // (int(outer.max()) + 1))
    return Levels(order.reshape([size for size in shape if size > 1]), "boxes" if _has_nics(network) else "nearness")


def _has_nics(network: Network) -> bool:
    return any(node.kind == "nic" for node in network.topology.nodes)


def _partitions(network: Network) -> Iterator[NDArray[np.int64]]:
    """Sets of ranks, small ones first: the hosts, then sets of ranks within a growing number of links."""
    members = network.collective.members
    if _has_nics(network):
        position = {member: rank for rank, member in enumerate(members)}
        label = np.zeros(len(members), np.int64)
        for number, host in enumerate(hosts_of(network.topology)):
            label[[position[rank] for rank in host.ranks if rank in position]] = number
        yield np.unique(label, return_inverse=True)[1]
    apart = _links_apart(network)
    for most in np.unique(apart[np.isfinite(apart)]).tolist():
        near = apart <= most
        first = near.argmax(axis=1)
        if np.array_equal(near, first[:, None] == first[None, :]):  # nearness is symmetric and transitive
            yield np.unique(first, return_inverse=True)[1]


def _links_apart(network: Network) -> NDArray[np.float64]:
    """(ranks, ranks): the fewest links from rank to rank; infinite if there is no path."""
    ends = np.asarray([(link.src, link.dst) for link in network.links], np.int32).reshape(-1, 2).T
    tails, heads = np.ascontiguousarray(ends[0]), np.ascontiguousarray(ends[1])
    paths = ShortestPaths(len(network.topology.nodes), tails, heads, np.ones(len(tails)))
    members = np.asarray(network.collective.members)
    return np.asarray([paths.distances(member)[members] for member in network.collective.members])


# Axes of the rank numbers -----------------------------------------------------------------------------------------


def _along_wires(network: Network) -> Levels | None:
    """The finest axes of the rank numbers such that each line is joined by its own wires, and no wire leaves lines."""
    ranks = network.collective.ranks
    number = {member: rank for rank, member in enumerate(network.collective.members)}
    wires = np.asarray([(number[link.src], number[link.dst]) for link in network.links], np.int64).reshape(-1, 2)
    best: Levels | None = None
    for shape in _shapes(ranks):
        levels = Levels(np.arange(ranks).reshape(shape), "wires")
        if (best is None or len(levels) > len(best)) and _fits(levels, wires):
            best = levels
    return best


def _shapes(ranks: int, axes: int = MOST_AXES) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of up to this many factors of at least 2."""
    yield (ranks,)
    if axes > 1:
        for factor in range(2, ranks // 2 + 1):
            if ranks % factor == 0:
                for rest in _shapes(ranks // factor, axes - 1):
                    yield (factor, *rest)


def _fits(levels: Levels, wires: NDArray[np.int64]) -> bool:
    places = levels.coordinates
    differ = places[wires[:, 0]] != places[wires[:, 1]]
    if (differ.sum(axis=1) != 1).any():
        return False
    return all(_joined(levels.grid.size, wires[differ[:, level]]) == levels.grid.size // size
               for level, size in enumerate(levels.shape))  # fmt: skip


def _joined(ranks: int, wires: NDArray[np.int64]) -> int:
    """The number of sets of ranks that the wires join, in both directions."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(wires)), (wires[:, 0], wires[:, 1])), shape=(ranks, ranks))
    return int(connected_components(graph, connection="strong")[0])
