"""Which experts tokens request, and which of these experts move to the tokens: FasterMoE's performance model.

    demand          rows by (rank, expert); by default as expected from Zipf's law
    guests          the most requested experts, as many as make a step shortest: rows for a guest stay where they are,
                    and its weights travel instead, from its home to the ranks that request it

    seconds = row x (most rows that a rank computes)
            + byte x 2 (most bytes that a rank moves, in either direction, with rows and guests + the same with answers)

Twice, because gradients go the same ways back; `row` includes forward and backward. After He et al., FasterMoE (PPoPP
2022), section 4.1, whose guests ("shadows") are broadcast and whose gradients are reduced; here gradients go home one
by one, to be added in the order of the undivided step, so a home's wire becomes the bottleneck sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
_WORTH = 0.05  # of the busiest rank's rows: the least saving that justifies moving experts


def boxes_asked(shares: Doubles, boxes: int, top: int) -> Doubles:
    """By box, the chance that a token asks for one of its experts, of which `top` are different: exact where all are
    asked for alike, else as if they were drawn one by one."""
    each = len(shares) // boxes
    if np.ptp(shares) == 0:
        return np.full(boxes, 1 - comb(len(shares) - each, top) / comb(len(shares), top))
    chances: Doubles = 1 - (1 - shares.reshape(boxes, each).sum(axis=1)) ** top
    return chances


def zipf(experts: int, skew: float, first: int = 0) -> Doubles:
    """Shares of demand: the k-th most wanted expert has 1 / k^skew of the first one's, which is number `first`."""
    shares = 1.0 / np.arange(1, experts + 1) ** skew
    return np.roll(shares / shares.sum(), first)


def placed(asked: Sequence[float] | Doubles | Integers, ranks: int, before: Integers) -> Integers:
    """The place of each expert that balances rows over ranks: the most requested first, each to the rank with the
    fewest rows that has room (Graham's longest first). Unchanged if that is at least as good for the busiest rank.

    asked     rows by expert
    before    their current places; place p is with rank p // (experts / ranks)
    """
    rows, local = np.asarray(asked, np.float64), len(before) // ranks
    load, room, home = np.zeros(ranks), np.full(ranks, local), np.zeros(len(before), np.int64)
    for expert in np.argsort(-rows, kind="stable"):
        rank = int(np.where(room > 0, load, np.inf).argmin())
        home[expert], load[rank], room[rank] = rank, load[rank] + rows[expert], room[rank] - 1
    if load.max() > (1 - _WORTH) * np.bincount(before // local, rows, ranks).max():
        return before.copy()
    found = np.where(home == before // local, before, -1)  # experts that stay on a rank keep their place
    for rank in range(ranks):
        free = np.setdiff1d(np.arange(rank * local, (rank + 1) * local), found)
        found[(home == rank) & (found < 0)] = free
    return found


class Loads(NamedTuple):
    """Loads of the busiest rank by number of guests (the index): rows that it computes, and bytes over its wire with
    and without the weights of guests."""

    computed: Doubles
    dispatched: Doubles
    combined: Doubles


@dataclass(frozen=True)
class Demand:
    """The expected requests of a microbatch's rows; all ranks request alike.

    rows     of a rank: copies of its tokens, one for each of their experts
    first    the most requested expert
    """

    rows: int
    ranks: int
    experts: int
    skew: float = 0.0
    first: int = 0

    @property
    def counts(self) -> Doubles:
        """Rows by rank and expert."""
        return np.tile(self.rows * zipf(self.experts, self.skew, self.first), (self.ranks, 1))


@dataclass(frozen=True)
class Visits:
    """Makes experts guests if that pays, by each microbatch's counts.

    row, byte    seconds of computing a row, forward and backward; seconds of a byte on a rank's wire
    row_bytes, weight_bytes    of what travels: a row, and an expert
    together    either all or none are: rows travel or experts do (Hwang et al., Tutel, MLSys 2023, section 3.2)
    """

    row: float
    byte: float
    row_bytes: int
    weight_bytes: int
    together: bool = False

    def loads(self, counts: Doubles, order: NDArray[np.int64]) -> Loads:
        """The loads for rows by rank and expert, with 0, 1, .. guests in this order."""
        ranks, experts = counts.shape
        home = order // (experts // ranks)
        asked = counts[:, order].T  # [place, rank]
        total = asked.sum(axis=1)
        own = np.zeros((experts, ranks))
        own[np.arange(experts), home] = 1.0
        away = asked * (1 - own)
        far = _without(own * total[:, None])
        comes, goes = _without(own * away.sum(axis=1)[:, None]), _without(away)
        guests: Doubles = np.where(away > 0, 1.0, 0.0)
        lent, borrowed = _with(own * guests.sum(axis=1)[:, None]), _with(guests)
        out = goes * self.row_bytes + lent * self.weight_bytes
        into = comes * self.row_bytes + borrowed * self.weight_bytes
        return Loads(
            (far + _with(asked)).max(axis=1),
            np.maximum(out, into).max(axis=1),
            np.maximum(goes, comes).max(axis=1) * self.row_bytes,
        )

    def seconds(self, counts: Doubles) -> Doubles:
        """Seconds of a layer's forward and backward, for 0, 1, .. guests."""
        loads = self.loads(counts, wanted(counts))
        return self.row * loads.computed + 2 * self.byte * (loads.dispatched + loads.combined)

    def guests(self, counts: Doubles) -> NDArray[np.int64]:
        """The numbers of the guests, in order."""
        seconds = self.seconds(counts)
        if self.together:
            seconds[1:-1] = np.inf
        return np.sort(wanted(counts)[: int(np.argmax(seconds <= seconds.min() * (1 + 1e-9)))])


def wanted(counts: Doubles) -> NDArray[np.int64]:
    """Experts, the most requested first."""
    return np.argsort(-counts.sum(axis=0), kind="stable")


def _with(rows: Doubles) -> Doubles:
    """Sums over the first 0, 1, .. of all."""
    return np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)])


def _without(rows: Doubles) -> Doubles:
    """Sums over all but the first 0, 1, .."""
    return np.asarray(np.maximum(rows.sum(axis=0) - _with(rows), 0.0))
