"""Computes who holds which value from which step on, for all transfers at once.

A *holding* is a value at an agent. It begins before step 0 at the rank where a contribution starts; for a copy, at the
end of its step; for a sum, when its last operand is there. An operand is there when a transfer has brought it or, at a
rank, when the rank holds it:

    transfer         step 0: rank 1 ──a──▶ rank 2        step 1: rank 3 ──c──▶ rank 2
    at rank 2        b from the start; a+b at the end of step 0, (a+b)+c at the end of step 1

Sums come after their operands, so one pass over them by depth, shallow ones first, finds all beginnings.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from syntony.base.rows import ascending
from syntony.synth.checker.schedules.columns import Columns, Mask, Numbers
from syntony.synth.checker.verdict import FaultError

NEVER = 1 << 40
START = -1


class Holdings:
    """The holdings of a Schedule, numbered by agent, then value.

    agent, held  per holding: who, and which value
    begin        per holding the step at whose end it begins; START, or NEVER
    made         per transfer the holding that it makes or helps to make
    taken        per transfer the holding that its value comes from
    spent        rows of two holdings: a sum, and an operand that it took from its own rank
    """

    def __init__(self, columns: Columns) -> None:
        """Raises FaultError if a source lacks its value, a sum an operand, or an agent receives what it already has."""
        self._columns = columns
        self._values = max(len(columns.chunk), 1)
        given = np.flatnonzero(columns.rank >= 0)
        starts = columns.rank[given] * self._values + given
        makes = columns.dst * self._values + columns.result
        self._keys, self._number = _numbered(np.r_[starts, makes], columns.agents * self._values)
        self.agent, self.held = np.divmod(self._keys, self._values)
        self.begin: Numbers = np.full(len(self._keys), NEVER, np.int64)
        self.begin[self._of(starts)] = START
        self.made = self._of(makes)
        self.spent: Numbers = np.zeros((0, 2), np.int64)
        self._copy(np.flatnonzero(~columns.reduction))
        added = np.flatnonzero(columns.reduction)
        unfinished = self._add(added) if len(added) else None
        self.taken = self.find(columns.src, columns.value)
        lacking = (self.taken < 0) | (self.begin[self.taken] >= columns.step)
        if (t := self._first(lacking)) is not None:
            source = columns.name(int(columns.src[t]))
            raise columns.at(t, f"{source} does not hold {columns.describe(int(columns.value[t]))} by then")
        if unfinished is not None:
            raise unfinished
        self._check_added(added)

    def find(self, agents: Numbers, values: Numbers) -> Numbers:
        """The numbers of the holdings; -1 if nothing makes them."""
        return self._of(agents * self._values + values)

    def _of(self, keys: Numbers) -> Numbers:
        if self._number is not None:
            return self._number[keys]
        # In ascending order, the search keeps to the same memory: with millions of keys, several times as fast.
        order = np.argsort(keys)
        at = np.empty(len(keys), np.int64)
        at[order] = np.searchsorted(self._keys, keys[order])
        at = np.minimum(at, len(self._keys) - 1)
        return np.where(self._keys[at] == keys, at, -1)

    def _first(self, faulty: Mask) -> int | None:
        """The first of these transfers, by step."""
        found = np.flatnonzero(faulty)
        return int(found[self._columns.step[found].argmin()]) if len(found) else None

    def _copy(self, copies: Numbers) -> None:
        """Each copy begins a holding; all but the earliest are repetitions."""
        columns = self._columns
        made, step = self.made[copies], columns.step[copies]
        order = np.lexsort((step, made))
        again = self.begin[made] == START
        again[order[1:]] |= made[order[1:]] == made[order[:-1]]
        needless = np.zeros(len(self.made), np.bool_)
        needless[copies[again]] = True
        if (t := self._first(needless)) is not None:
            raise self._held_already(t, int(columns.value[t]))
        self.begin[made] = step

    def _add(self, added: Numbers) -> FaultError | None:
        """A sum begins when its last operand is there; returns the fault of one that never does."""
        columns = self._columns
        sums, where = np.unique(self.made[added], return_inverse=True)
        bringing = where * self._values + columns.value[added]
        by_step = np.lexsort((columns.step[added], bringing))
        added, bringing = added[by_step], bringing[by_step]
        self._check_operands(sums, added[1:][bringing[1:] == bringing[:-1]])

        # One row per operand of each sum, shallow sums first.
        sums = sums[order := np.argsort(columns.depth[self.held[sums]], kind="stable")]
        terms = [columns.operands[value] for value in self.held[sums].tolist()]
        first = np.r_[0, np.cumsum([len(operands) for operands in terms])]
        row = np.repeat(np.arange(len(sums)), np.diff(first))
        operand = np.asarray([term for operands in terms for term in operands], np.int64)
        wanted = order[row] * self._values + operand
        at = np.minimum(np.searchsorted(bringing, wanted), len(bringing) - 1)
        comes = bringing[at] == wanted
        there = np.where(comes, columns.step[added[at]], NEVER)
        agent = self.agent[sums[row]]
        own = np.where(agent < columns.ranks, self.find(agent, operand), -1)  # a switch's holdings are not operands
        starts = np.r_[np.flatnonzero(np.diff(columns.depth[self.held[sums]], prepend=-1)), len(sums)]
        for low, high in pairwise(starts.tolist()):
            rows = slice(first[low], first[high])
            held = np.where(own[rows] >= 0, self.begin[own[rows]], NEVER)
            there[rows] = np.minimum(there[rows], held)
            self.begin[sums[low:high]] = np.maximum.reduceat(there[rows], first[low:high] - first[low])
        taken = ~comes & (own >= 0)
        self.spent = np.stack((sums[row[taken]], own[taken]), axis=1)
        if there.max() < NEVER:
            return None
        missing = int((there == NEVER).argmax())
        return self._unfinished(int(sums[row[missing]]), int(operand[missing]))

    def _check_operands(self, sums: Numbers, again: Numbers) -> None:
        """Sums come from their operands, each of which arrives once; `again`: transfers that bring one again."""
        columns = self._columns
        repeated = np.zeros(len(self.made), np.bool_)
        repeated[again] = True
        if (t := self._first(repeated)) is not None:
            raise columns.at(t, f"needless: {self._receiver(t)} gets the same operand twice", int(columns.dst[t]))
        copied = ~columns.reduction & np.isin(self.made, sums)
        if (t := self._first(copied)) is not None:
            value = columns.describe(int(columns.value[t]))
            raise columns.at(t, f"needless: {self._receiver(t)} sums up {value} itself", int(columns.dst[t]))

    def _unfinished(self, total: int, operand: int) -> FaultError:
        columns = self._columns
        bringing = np.flatnonzero(columns.reduction & (self.made == total))
        t = int(bringing[columns.step[bringing].argmax()])
        lacks, whole = columns.describe(operand), columns.describe(int(self.held[total]))
        message = f"{self._receiver(t)} never gets {lacks}, the other operand of {whole}"
        return columns.at(t, message, int(columns.dst[t]))

    def _check_added(self, added: Numbers) -> None:
        """No agent receives an operand that is already there, or an operand of a complete sum."""
        columns = self._columns
        value, src, dst, step = (column[added] for column in (columns.value, columns.src, columns.dst, columns.step))
        own = self.find(dst, value)
        known, late = np.zeros(len(self.made), np.bool_), np.zeros(len(self.made), np.bool_)
        known[added] = (src != dst) & (own >= 0) & (self.begin[own] <= step)
        late[added] = self.begin[self.made[added]] < step
        if (t := self._first(known)) is not None:
            raise self._held_already(t, int(columns.value[t]))
        if (t := self._first(late)) is not None:
            raise self._held_already(t, int(columns.result[t]))

    def _held_already(self, t: int, value: int) -> FaultError:
        told = self._columns.describe(value)
        return self._columns.at(t, f"needless: {self._receiver(t)} holds {told} already", int(self._columns.dst[t]))

    def _receiver(self, t: int) -> str:
        return self._columns.name(int(self._columns.dst[t]))


def _numbered(keys: Numbers, limit: int) -> tuple[Numbers, Numbers | None]:
    """The distinct keys in ascending order; and per number below `limit` its position among them, -1: none.

    The second is None if it would be much larger than the number of keys.
    """
    if limit > 4 * len(keys):
        return ascending(keys), None
    present = np.zeros(limit, np.bool_)
    present[keys] = True
    return np.flatnonzero(present), np.where(present, np.cumsum(present) - 1, -1)
