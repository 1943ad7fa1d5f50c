"""Symmetries that fix a node: turns about it, for collectives with a root.

    boxes 0 1 2 3, turned by one: 1 2 3 0; boxes 0 and 1 exchanged           both move box 0, the root's, but
    turned back after the exchange: box 1 -> 0 -> 3, 3 -> 2, 2 -> 1          this one turns the others about it

By Schreier's lemma the elements u^-1 g v, where v takes the point to x, g is a generator and u takes the point to g(x),
generate all that fix the point (Holt, Eick and O'Brien, Handbook of Computational Group Theory, 4.1). One of them that
turns most ranks in cycles of one length is enough here: its powers are a group that is as good as free on these ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.topologies.topology import Permutation

OF_EACH = 4
"""Elements that are looked at, of those that move equally many members."""
MOST_ENTRIES = 10_000_000
"""Elements times nodes; larger groups are not looked through."""

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Turn:
    """The powers of an automorphism.

    powers  int64 (order, nodes)  where each power moves every node; the first is the identity
    """

    powers: Integers

    @property
    def generator(self) -> Permutation:
        """The automorphism."""
        return tuple(self.powers[1].tolist())

    @property
    def order(self) -> int:
        """The number of its powers."""
        return len(self.powers)


def turns_about(point: int, members: Sequence[int], generators: Sequence[Permutation], nodes: int) -> Iterator[Turn]:
    """Turns about `point` of different numbers of members, in cycles of one length; those of most members first."""
    moves = np.asarray(generators, np.int64).reshape(-1, nodes)
    found = {point: np.arange(nodes)}
    ahead = [point]
    for spot in ahead:
        for move in moves:
            image = int(move[spot])
            if image not in found:
                found[image] = move[found[spot]]
                ahead.append(image)
        if len(found) * nodes > MOST_ENTRIES:
            return
    back = {image: np.argsort(element) for image, element in found.items()}
    spots = np.asarray(members, np.int64)
    fixing: dict[int, list[Integers]] = {}
    for spot, element in found.items():
        for move in moves:
            turn = back[int(move[spot])][move[element]]
            alike = fixing.setdefault(int((turn[spots] != spots).sum()), [])
            if len(alike) < OF_EACH:
                alike.append(turn)
    for moved in sorted(fixing, reverse=True):
        turns = [_powers(each, spots) for each in fixing[moved]] if moved else []
        yield from [turn for turn in turns if turn is not None][:1]


def _powers(turn: Integers, members: Integers) -> Turn | None:
    """The turn with its powers; None if it moves members in cycles of several lengths."""
    here = np.arange(len(turn))
    powers = [here]
    while len(powers) <= len(members):
        now = turn[powers[-1]]
        if (now == here).all():
            return Turn(np.stack(powers))
        if (now[members] == members).any() and not np.array_equal(now[members] == members, turn[members] == members):
            return None
        powers.append(now)
    return None
