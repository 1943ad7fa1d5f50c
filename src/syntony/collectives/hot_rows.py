"""HotRows: sums of sparse gradients, of which the rows that are asked for most go through switches that add.

    rows of rank 0   7 3 3 9         hot, by counts: 3, 7        dense, by the switch:   3, 7
    rows of rank 1   3 7 4                                       rows and values, to all: 4, 9

A few rows of an embedding have most of the accesses. A switch has few slots, and adds what all ranks bring in one
order; so the hot rows travel as one dense buffer, in which every rank has them all, and the others as pairs of row and
values, which everybody adds up. That is the idea of Pan et al., Libra (arXiv 2205.05243; known here from its abstract),
whose cold rows go to servers. Counts are taken while training, summed over all ranks, and halved each time, so that
what is hot follows the demand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.collectives.buffers import UsageError
from syntony.collectives.communicator import Communicator

Rows = NDArray[np.int64]
Values = NDArray[np.float32]


class HotRows:
    """Sums of sparse gradients of one table, over the ranks of a group. All methods are collective.

    rows        of the table
    hot         of them, that go the dense way
    every       sums between two choices of what is hot; until the first, no row is
    algorithm   of the dense sum: `in_network`, or any other of the group's
    """

    def __init__(
        self, group: Communicator, rows: int, hot: int, *, every: int = 100, algorithm: str = "in_network"
    ) -> None:
        if not (0 <= hot <= rows and every >= 1):
            raise UsageError(f"of {rows} rows {hot} cannot be hot, chosen anew every {every} sums")
        self._group, self._rows, self._most, self._every, self._algorithm = group, rows, hot, every, algorithm
        self._counts = np.zeros(rows, np.int64)
        self._place = np.full(rows, -1)  # of a row in the dense buffer
        self._sums = 0
        self.hot: Rows = np.empty(0, np.int64)

    def all_reduce(self, rows: Rows, values: Values) -> tuple[Rows, Values]:
        """The rows that any rank has brought, in ascending order, and the sums of their values.

        `rows` (n, int64) may name a row twice; `values` (n, width, float32), of one width on all ranks. The same bits
        on all ranks: hot rows are added as the algorithm adds, others in the order of ranks.
        """
        if rows.ndim != 1 or values.ndim != 2 or len(rows) != len(values):
            raise UsageError(f"rows of shape {rows.shape} and values of shape {values.shape} do not fit together")
        if rows.size and not (rows.min() >= 0 and rows.max() < self._rows):
            raise UsageError(f"rows are from {rows.min()} to {rows.max()}; the table has 0 to {self._rows - 1}")
        np.add.at(self._counts, rows, 1)
        mine, sums = _coalesced(rows, values)
        place = self._place[mine]
        found = self._hot_sums(place[place >= 0], sums[place >= 0])
        rest = self._other_sums(mine[place < 0], sums[place < 0])
        self._sums += 1
        if self._sums % self._every == 0:
            self._choose()
        all_rows, all_values = np.concatenate([found[0], rest[0]]), np.concatenate([found[1], rest[1]])
        order = np.argsort(all_rows)
        return all_rows[order], all_values[order]

    def _hot_sums(self, place: Rows, sums: Values) -> tuple[Rows, Values]:
        """A column more says how many ranks have brought the row."""
        dense = np.zeros((len(self.hot), sums.shape[1] + 1), np.float32)
        dense[place, :-1], dense[place, -1] = sums, 1
        if dense.size:
            self._group.all_reduce(dense, algorithm=self._algorithm)
        brought = dense[:, -1] > 0
        return self.hot[brought], dense[brought, :-1]

    def _other_sums(self, rows: Rows, sums: Values) -> tuple[Rows, Values]:
        ranks, width = self._group.size, sums.shape[1]
        counts = np.empty(ranks, np.int64)
        self._group.all_gather(np.array([len(rows)]), counts)
        all_rows, all_sums = np.empty(counts.sum(), np.int64), np.empty((counts.sum(), width), np.float32)
        if len(all_rows):
            self._group.all_gather(rows, all_rows, counts=counts.tolist())
            self._group.all_gather(np.ascontiguousarray(sums), all_sums, counts=(counts * width).tolist())
        return _coalesced(all_rows, all_sums)

    def _choose(self) -> None:
        """The rows with the most accesses of all ranks; of equals, the first."""
        asked = self._counts.copy()
        self._group.all_reduce(asked)
        order = np.argsort(-asked, kind="stable")[: self._most]
        self.hot = np.sort(order[asked[order] > 0])
        self._place[:] = -1
        self._place[self.hot] = np.arange(len(self.hot))
        self._counts //= 2


def _coalesced(rows: Rows, values: Values) -> tuple[Rows, Values]:
    """Each row once, its values added in their order."""
    distinct, where = np.unique(rows, return_inverse=True)
    sums = np.zeros((len(distinct), values.shape[1]), np.float32)
    np.add.at(sums, where, values)
    return distinct, sums
