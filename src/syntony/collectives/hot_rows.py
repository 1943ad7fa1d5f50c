"""HotRows: sums of sparse gradients in which the most accessed rows go through aggregating switches.

    rows of rank 0   7 3 3 9         hot, by counts: 3, 7        dense, by the switch:   3, 7
    rows of rank 1   3 7 4                                       rows and values, to all: 4, 9

A few rows of an embedding get most of the accesses. A switch has few slots and adds elements at the same position of
all ranks' buffers. So the hot rows travel as one dense buffer that every rank fills completely; the others travel as
pairs of row and values, which every rank adds up. The idea is from Pan et al., Libra (arXiv 2205.05243; known here from
its abstract), whose cold rows go to servers. Access counts are taken while training, summed over all ranks, and halved
at each choice, so that the hot rows follow the demand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.collectives.buffers import UsageError
from syntony.collectives.communicator import Communicator

Rows = NDArray[np.int64]
Values = NDArray[np.float32]


class HotRows:
    """Sums of sparse gradients of one table over the ranks of a group. All methods are collective.

    rows        number of rows of the table
    hot         how many of them are sent dense
    every       sums between two choices of the hot rows; until the first choice, no row is hot
    algorithm   for the dense sum: `in_network`, or any other of the group's
    """

    def __init__(
        self, group: Communicator, rows: int, hot: int, *, every: int = 100, algorithm: str = "in_network"
    ) -> None:
        if not (0 <= hot <= rows and every >= 1):
            raise UsageError(f"of {rows} rows {hot} cannot be hot, chosen anew every {every} sums")
        self._group, self._rows, self._most, self._every, self._algorithm = group, rows, hot, every, algorithm
        self._counts = np.zeros(rows, np.int64)
        self._place = np.full(rows, -1)  # by row: its place in the dense buffer
        self._sums = 0
        self.hot: Rows = np.empty(0, np.int64)

    def all_reduce(self, rows: Rows, values: Values) -> tuple[Rows, Values]:
        """Returns all rows that any rank brings, in ascending order, and the sums of their values.

        `rows` (n, int64) may repeat a row; `values` is (n, width, float32) with the same width on all ranks. All ranks
        get the same bits: hot rows are added in the algorithm's order, others in the order of ranks.
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
        """An extra column counts how many ranks have brought the row."""
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
        """Chooses the rows with the most accesses over all ranks; ties go to the lower row."""
        asked = self._counts.copy()
        self._group.all_reduce(asked)
        order = np.argsort(-asked, kind="stable")[: self._most]
        self.hot = np.sort(order[asked[order] > 0])
        self._place[:] = -1
        self._place[self.hot] = np.arange(len(self.hot))
        self._counts //= 2


def _coalesced(rows: Rows, values: Values) -> tuple[Rows, Values]:
    """Merges duplicate rows, adding their values in order."""
    distinct, where = np.unique(rows, return_inverse=True)
    sums = np.zeros((len(distinct), values.shape[1]), np.float32)
    np.add.at(sums, where, values)
    return distinct, sums
