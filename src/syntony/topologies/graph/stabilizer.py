"""The automorphisms that fix a marked node, or the marked link between two nodes: its stabilizer.

Elements of the stabilizer are built from random elements of the group: a random element maps the mark to some point of
its orbit, and a known element maps that point back (Schreier's lemma; random elements by product replacement, Celler et
al. 1995):

        mark ──random element──▶ point of its orbit ──known element──▶ mark

An element is kept if it joins orbits of nodes. When ten in a row join nothing, the orbits are almost surely those of
the whole stabilizer. If the group found is too small, it is still a group of automorphisms, and results stay valid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syntony.topologies.topology import Permutation

MOST_ENTRIES = 20_000_000
"""Points of the mark's orbit times nodes; above this, only generators that fix the mark themselves are kept."""
IN_VAIN = 10
"""The search ends after this many random elements in a row that join no orbits."""

Integers = NDArray[np.signedinteger]
Mark = tuple[int, ...]
"""One node; or two, in ascending order if both directions of their links are meant."""


def stabilizer(size: int, generators: Sequence[Permutation], mark: Mark, directed: bool = False) -> list[Permutation]:
    """Generators of the subgroup that fixes the mark, or of a part of that subgroup; see the module docstring."""

    def moved(place: Mark, way: Integers) -> Mark:
        image = tuple(way[list(place)].tolist())
        return image if directed else tuple(sorted(image))

    ways = [np.asarray(generator, np.int64) for generator in generators]
    kept = [way for way in ways if moved(mark, way) == mark]
    if len(kept) < len(ways):
        reached: dict[Mark, Integers] = {mark: np.arange(size)}
        places = [mark]
        for place in places:
            for way in ways:
                image = moved(place, way)
                if image not in reached:
                    reached[image] = way[reached[place]]
                    places.append(image)
            if len(places) * size > MOST_ENTRIES:
                break
        else:
            kept = _joining(size, ways, kept, lambda element: reached[moved(mark, element)])
    return [tuple(way.tolist()) for way in kept]


def _joining(size: int, ways: list[Integers], kept: list[Integers], back: object) -> list[Integers]:
    """`kept`, and random elements of the stabilizer that join orbits. `back(g)` maps the mark to where g maps it."""
    assert callable(back)
    rng = np.random.default_rng(0)
    pool = [ways[i % len(ways)] for i in range(max(10, len(ways)))]
    walker = np.arange(size)
    kept = list(kept)
    label = _orbits(size, kept)
    vain = -5 * len(pool)  # the first elements are not random enough
    while vain < IN_VAIN:
        one, other = rng.choice(len(pool), 2, replace=False)
        pool[one] = pool[one][pool[other]] if rng.integers(2) else pool[other][pool[one]]
        walker = walker[pool[one]]
        element = np.argsort(back(walker))[walker]
        vain += 1
        if (label[element] != label).any():
            kept.append(element)
            label = _orbits(size, kept)
            vain = min(vain, 0)
    return kept


def _orbits(size: int, ways: list[Integers]) -> Integers:
    """The number of each point's orbit."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    here, there = np.tile(np.arange(size), len(ways)), np.concatenate([np.zeros(0, np.int64), *ways])
    graph = coo_array((np.ones(len(here), np.int8), (here, there)), shape=(size, size))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)
