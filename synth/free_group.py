"""Free groups of automorphisms: every member of an orbit has exactly one element that brings it home.

    ring of 4, turned by 1      element k:  node i -> i + k       rank k is brought home (to 0) by element k, undone
    ring of 4, also mirrored    1 -> 3 keeps 0 where it is:       not free, so the mirror is left out

What one representative of each orbit does then says what all do: `elements[k]` moves the representative's part to the
k-th of its orbit, and nothing is said twice. (A group is called free, or semiregular, if none of its elements but the
identity leaves a point in its place.) Averaging over any group of symmetries keeps an optimum, so leaving generators
out costs work and no quality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies.topology import Permutation

MOST_ENTRIES = 20_000_000
"""Elements times nodes; larger groups are taken for none."""

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class FreeGroup:
    """A group that is free on `points`.

    generators  of the group; none of the trivial group
    elements    (order, nodes): where each element moves each node; the identity is first
    homes       the least point of each orbit, ascending
    """

    generators: tuple[Permutation, ...]
    elements: Integers
    homes: tuple[int, ...]

    @property
    def order(self) -> int:
        """How many elements it has."""
        return len(self.elements)

    @staticmethod
    def of(nodes: int, points: Sequence[int], generators: Sequence[Permutation]) -> FreeGroup | None:
        """The group that the generators (which map points to points) generate; None where it is not free, or huge."""
        elements = _elements(nodes, points[0], [np.asarray(generator) for generator in generators])
        if elements is None:
            return None
        spots = np.asarray(points)
        if (elements[1:, spots] == spots).any():
            return None
        least = elements[:, spots].min(axis=0)
        return FreeGroup(tuple(generators), elements, tuple(np.unique(least).tolist()))

    @staticmethod
    def within(nodes: int, points: Sequence[int], generators: Sequence[Permutation]) -> FreeGroup:
        """A large free group that some generators generate: they are tried one after another, in either order."""
        found = []
        for order in (generators, generators[::-1]):
            group = FreeGroup.of(nodes, points, ())
            assert group is not None
            for generator in order:
                larger = FreeGroup.of(nodes, points, (*group.generators, generator))
                if larger is not None and larger.order > group.order:
                    group = larger
            found.append(group)
        return max(found, key=lambda group: group.order)

    def home_of(self) -> tuple[Integers, Integers]:
        """Per node its home and the number of the element that moves it home to it; -1 for what is no point."""
        home, element = np.full(self.elements.shape[1], -1), np.full(self.elements.shape[1], -1)
        for start in self.homes:
            home[self.elements[:, start]] = start
            element[self.elements[:, start]] = np.arange(self.order)
        return home, element


def _elements(nodes: int, point: int, generators: list[Integers]) -> Integers | None:
    """All elements of the group; None where two of them move `point` alike (Schreier's lemma), or it is huge."""
    ways: dict[int, Integers] = {point: np.arange(nodes)}
    orbit = [point]
    for spot in orbit:
        for generator in generators:
            way = generator[ways[spot]]
            image = int(way[point])
            if image not in ways:
                ways[image] = way
                orbit.append(image)
                if len(orbit) * nodes > MOST_ENTRIES:
                    return None
            elif not np.array_equal(ways[image], way):
                return None
    return np.stack(list(ways.values()))
