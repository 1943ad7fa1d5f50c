"""Permutations, and the groups that a topology's generators generate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syntony.topologies.topology import Permutation


def moving(size: int, images: Mapping[int, int]) -> Permutation:
    """The permutation of 0..size-1 that moves the keys of `images` and nothing else."""
    return tuple(images.get(i, i) for i in range(size))


def swap_and_turn(size: int, orbit: Sequence[Sequence[int]]) -> list[Permutation]:
    """Generators of all ways to permute equal blocks: `orbit[i]` are the points of block i, in corresponding order.

    The first swaps blocks 0 and 1, the second rotates all blocks by one; together they generate every permutation.
    """
    if len(orbit) < 2:
        return []
    swap = dict(zip(orbit[0], orbit[1], strict=True)) | dict(zip(orbit[1], orbit[0], strict=True))
    turn: dict[int, int] = {}
    for block, following in zip(orbit, [*orbit[1:], orbit[0]], strict=True):
        turn |= dict(zip(block, following, strict=True))
    return list(dict.fromkeys((moving(size, swap), moving(size, turn))))


def orbits(size: int, generators: Sequence[Permutation]) -> list[list[int]]:
    """The orbits of the points under the group; orbits and members in ascending order."""
    reached = [False] * size
    classes = []
    for start in range(size):
        if reached[start]:
            continue
        reached[start] = True
        members = [start]
        for point in members:
            for generator in generators:
                image = generator[point]
                if not reached[image]:
                    reached[image] = True
                    members.append(image)
        classes.append(sorted(members))
    return classes


def group_order(size: int, generators: Sequence[Permutation], patience: int = 2_000_000) -> int | None:
    """How many permutations the generators generate, by Schreier and Sims' chain of stabilizers.

    None if that takes more than `patience` steps on a single point (the default: about a second), or if there are so
    many points that it surely would.

    The order is the product of the orbit lengths along a chain of stabilizers: |G| = |orbit of b1| * |G fixing b1|,
    and so on. A level keeps, for its base point, one group element (a transversal) per point of the orbit; Schreier's
    lemma says which elements generate the next stabilizer. Milliseconds for a few dozen points.
    """
    if size > 400:
        return 1 if not generators else None
    chain = _Stabilizers(size, patience)
    try:
        for generator in generators:
            chain.add(0, generator)
    except _PatienceLost:
        return None
    order = 1
    for level in chain.levels:
        order *= len(level.transversal)
    return order


class _Level:
    """One stabilizer of the chain: base point, generators, and elements that map the base to points of its orbit."""

    def __init__(self, size: int, base: int) -> None:
        self.base = base
        self.generators: list[Permutation] = []
        self.transversal: dict[int, Permutation] = {base: tuple(range(size))}


class _PatienceLost(Exception):  # noqa: N818
    pass


class _Stabilizers:
    def __init__(self, size: int, patience: int) -> None:
        self.size = size
        self.patience = patience
        self.levels: list[_Level] = []

    def add(self, depth: int, element: Permutation) -> None:
        """Makes `element`, which fixes the bases above `depth`, a member of the group at `depth`."""
        if self._contains(depth, element):
            return
        if depth == len(self.levels):
            base = next(i for i in range(self.size) if element[i] != i)
            self.levels.append(_Level(self.size, base))
        level = self.levels[depth]
        level.generators.append(element)
        # Old points are mapped by the new generator, new points by all. A second element that maps the base to the same
        # point gives one that fixes the base, for the next level.
        points = list(level.transversal)
        old = len(points)
        for position, point in enumerate(points):
            for generator in [element] if position < old else level.generators:
                self.patience -= self.size
                if self.patience < 0:
                    raise _PatienceLost
                word = _then(level.transversal[point], generator)
                image = word[level.base]
                if image not in level.transversal:
                    level.transversal[image] = word
                    points.append(image)
                else:
                    self.add(depth + 1, _then(word, _inverse(level.transversal[image])))

    def _contains(self, depth: int, element: Permutation) -> bool:
        for level in self.levels[depth:]:
            known = level.transversal.get(element[level.base])
            if known is None:
                return False
            self.patience -= self.size
            element = _then(element, _inverse(known))
        return all(image == i for i, image in enumerate(element))


def _then(first: Permutation, second: Permutation) -> Permutation:
    return tuple(second[image] for image in first)


def _inverse(permutation: Permutation) -> Permutation:
    result = [0] * len(permutation)
    for point, image in enumerate(permutation):
        result[image] = point
    return tuple(result)
