"""Free groups of automorphisms: every member of an orbit has exactly one element that brings it home.

    ring of 4, turned by 1      element k:  node i -> i + k       rank k is brought home (to 0) by element k, undone
    ring of 4, also mirrored    1 -> 3 keeps 0 where it is:       not free, so the mirror is left out

What one representative of each orbit does then says what all do: element k moves the representative's part to the k-th
of its orbit, and nothing is said twice. (A group is called free, or semiregular, if none of its elements but the
identity leaves a point in its place.) Averaging over any group of symmetries keeps an optimum, so leaving generators
out costs work and no quality.

An element is known by where it takes the first point p, and by a word of generators that does so; ten thousand elements
are never spelled out. That the group is free is proven from words alone. Let w(q), for the words w that were found, be
written at w(p), for one node q of every orbit and for q = g(p) of every generator g:

    (1)  if for all words w and generators g it is g(w(q)) that is written at g(w(p)), what is written does not depend
         on the word. So whatever fixes p fixes every such q; all g(p) among them, and hence (multiplying from the
         right) all of p's orbit; and hence (u^-1 w u fixes p, so q) every node u(q): it is the identity
    (2)  an orbit with as many points as p's has a point for every element: no other element fixes one

Dixon and Mortimer, Permutation Groups (1996), section 4.2: what commutes with a regular group is regular too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony.synth.symmetry.link_orbits import orbits_under
from syntony.topologies.topology import Permutation

MOST_ENTRIES = 100_000_000
"""Elements times orbits of nodes; larger groups are taken for none."""

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class FreeGroup:
    """A group that is free on some of the nodes, its points.

    generators  of the group; none of the trivial group
    homes       the least point of each orbit, ascending
    home        int64 (nodes,)  of every point its home; -1 for what is no point
    element     int64 (nodes,)  of every point the number of the element that moves its home to it; -1 likewise. The
                                identity is number 0
    last        int64 (order,)  element k is generator last[k] after element before[k]; -1 for the identity
    before      int64 (order,)
    """

    generators: tuple[Permutation, ...]
    homes: tuple[int, ...]
    home: Integers
    element: Integers
    last: Integers
    before: Integers

    @property
    def order(self) -> int:
        """How many elements it has."""
        return len(self.last)

    @cached_property
    def elements(self) -> Integers:
        """(order, nodes): where each element moves each node. For groups small enough to be spelled out."""
        moves = np.asarray(self.generators, np.int64).reshape(-1, len(self.home))
        return _written(moves, self.last, self.before, np.arange(len(self.home)))

    @staticmethod
    def of(nodes: int, points: Sequence[int], generators: Sequence[Permutation]) -> FreeGroup | None:
        """The group that the generators (which map points to points) generate; None where it is not free, or huge."""
        moves = np.asarray(generators, np.int64).reshape(-1, nodes)
        spots = np.sort(np.asarray(points))
        words = _free_words(spots, moves)
        if words is None:
            return None
        place, last, before, orbit = words
        homes = spots[np.unique(orbit[spots], return_index=True)[1]]
        home, element = np.full(nodes, -1), np.full(nodes, -1)
        images = _written(moves, last, before, homes)
        home[images] = homes
        element[images] = np.arange(len(place))[:, None]
        return FreeGroup(tuple(generators), tuple(np.sort(homes).tolist()), home, element, last, before)

    @staticmethod
    def within(nodes: int, points: Sequence[int], generators: Sequence[Permutation]) -> FreeGroup:
        """A large free group that some generators generate: they are tried one after another, in either order.

        A generator that leaves points in their places (it turns the GPUs of one box) is tried with its images under
        the group so far, all at once (it turns those of every box).
        """
        found = []
        for order in (generators, generators[::-1]):
            group = FreeGroup.of(nodes, points, ())
            assert group is not None
            for generator in order:
                if group.order == len(points):
                    break  # there is none larger
                for candidate in (generator, group._everywhere(generator)):
                    larger = candidate and FreeGroup.of(nodes, points, (*group.generators, candidate))
                    if larger and larger.order > group.order:
                        group = larger
                        break
            found.append(group)
        return max(found, key=lambda group: group.order)

    def _everywhere(self, generator: Permutation) -> Permutation | None:
        """The product of all images of the generator under the group; None where two of them move one node,
        or it moves nothing.

        Image x moves the nodes x(s), for s in the support S of the generator: x(s) goes to x(generator(s)). Images of
        different supports must be disjoint: then there are as many nodes in all as in S, times the supports' number.
        """
        move = np.asarray(generator, np.int64)
        support = np.flatnonzero(move != np.arange(len(move)))
        if self.order == 1 or not len(support) or self.order * len(support) > MOST_ENTRIES // 5:
            return None
        moves = np.asarray(self.generators, np.int64)
        here = _written(moves, self.last, self.before, support)
        there = _written(moves, self.last, self.before, move[support])
        least = here.min(axis=1)
        support_of, image = np.full(len(move), -1), np.arange(len(move))
        support_of[here] = least[:, None]
        image[here] = there
        alone = (support_of[here] == least[:, None]).all() and (image[here] == there).all()
        if not alone or np.count_nonzero(support_of >= 0) != len(support) * len(np.unique(least)):
            return None
        return tuple(image.tolist())

    def undone(self, element: Integers, moves: Sequence[Integers], things: Integers) -> Integers:
        """What `things[i]` is once `element[i]` is undone, where generator j moves things as `moves[j]` says."""
        inverse = [np.argsort(move) for move in moves]
        now, things = np.array(element), np.array(things, np.int64)
        away = np.flatnonzero(now)
        while len(away):
            last = self.last[now[away]]
            for number, move in enumerate(inverse):
                turned = away[last == number]
                things[turned] = move[things[turned]]
            now[away] = self.before[now[away]]
            away = away[now[away] > 0]
        return things


def free_order(points: Integers, moves: Integers) -> int | None:
    """How many elements the group has that the rows of `moves` generate; None where it is not free on the points, or
    huge."""
    words = _free_words(points, moves)
    return None if words is None else len(words[0])


def _free_words(points: Integers, moves: Integers) -> tuple[Integers, Integers, Integers, Integers] | None:
    """The first point's orbit with its words (see `_words`), and the number of every node's orbit; None where the group
    is not free on the points, or huge."""
    nodes, start = moves.shape[1], int(points[0])
    place, last, before = _words(start, moves)
    orbit = orbits_under(nodes, moves)
    _, first = np.unique(orbit, return_index=True)
    if len(place) * (len(first) + len(moves)) > MOST_ENTRIES:
        return None
    at = np.full(nodes, -1)
    at[place] = np.arange(len(place))
    written = _written(moves, last, before, np.r_[first, moves[:, start]])
    if any(not np.array_equal(move[written], written[at[move[place]]]) for move in moves):
        return None
    sizes = np.bincount(orbit[points], minlength=len(first))
    if (sizes[np.unique(orbit[points])] != len(place)).any():
        return None
    return place, last, before, orbit


def _words(point: int, moves: Integers) -> tuple[Integers, Integers, Integers]:
    """The point's orbit, and per member which generator leads to it from which earlier member; -1 and 0 at first."""
    place, last, before = [point], [-1], [0]
    seen = {point}
    for number, spot in enumerate(place):
        for generator, image in enumerate(moves[:, spot].tolist()):
            if image not in seen:
                seen.add(image)
                place.append(image)
                last.append(generator)
                before.append(number)
    return np.asarray(place), np.asarray(last), np.asarray(before)


def _written(moves: Integers, last: Integers, before: Integers, starts: Integers) -> Integers:
    """(order, starts): where each word takes each start."""
    written = np.empty((len(last), len(starts)), np.int64)
    written[0] = starts
    for number in range(1, len(last)):
        written[number] = moves[last[number]][written[before[number]]]
    return written
