"""Messages: one iteration of a pattern, as data. Who sends how much to whom, and what it waits for.

    message 0   member 0 ──▶ member 1   ·········┐
    message 1   member 1 ──▶ member 2            │ waits until 0 has *arrived*
    message 2   member 0 ──▶ member 1   ─┐       ▼
                                         └ follows 0: waits until 0 has *left*

Members are positions in a job's list of members; where they stand in the network is the job's business, and which links
the messages take is that of traffic/choice.py. A message from a member to itself takes no link: it is there at
once, or after its `delay`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntony.base.command import UserError

Column = NDArray[np.int64]

MOST = 5_000_000
"""Messages, or flows, that are simulated at once: a few GB."""


class TooMuchError(UserError):
    """More traffic than fits: refused before it fills the memory."""


@dataclass(frozen=True, eq=False)
class Messages:
    """Columns, one row per message.

    members       how many members there are
    src, dst      int64 (M,)    members
    bytes         float64 (M,)  what it carries
    delay         float64 (M,)  seconds it takes besides alphas and bandwidth: computing
    offset        int64 (M+1,)  message m waits until after[offset[m]:offset[m+1]] have arrived
    after         int64
    follows       int64 (M,)    the message that must have left before it starts; -1 for none
    """

    members: int
    src: Column
    dst: Column
    bytes: NDArray[np.float64]
    delay: NDArray[np.float64]
    offset: Column
    after: Column
    follows: Column

    def __len__(self) -> int:
        return len(self.src)

    @property
    def first(self) -> NDArray[np.bool_]:
        """Which messages wait for no other."""
        alone: NDArray[np.bool_] = (np.diff(self.offset) == 0) & (self.follows < 0)
        return alone

    @property
    def last(self) -> NDArray[np.bool_]:
        """Which messages no other waits for to arrive."""
        awaited = np.zeros(len(self), bool)
        awaited[self.after] = True
        return ~awaited

    @staticmethod
    def make(
        members: int,
        src: ArrayLike,
        dst: ArrayLike,
        size: ArrayLike,
        waits: tuple[ArrayLike, ArrayLike] = ((), ()),
        delay: ArrayLike = 0.0,
        follows: ArrayLike | None = None,
    ) -> Messages:
        """Columns of what is told.

        `waits` are two columns: message waits[0][i] waits until message waits[1][i] has arrived. `size` and `delay` may
        be one number for all. Without `follows`, messages of one source and destination leave in the order of rows.
        """
        sources, ends = np.asarray(src, np.int64).ravel(), np.asarray(dst, np.int64).ravel()
        count = len(sources)
        later, earlier = (np.asarray(column, np.int64).ravel() for column in waits)
        order = np.argsort(later, kind="stable")
        offset = np.concatenate(([0], np.cumsum(np.bincount(later, minlength=count)))).astype(np.int64)
        behind = in_order(sources * members + ends) if follows is None else np.asarray(follows, np.int64).ravel()
        return Messages(
            members,
            sources,
            ends,
            np.broadcast_to(np.asarray(size, float), count).astype(float),
            np.broadcast_to(np.asarray(delay, float), count).astype(float),
            offset,
            earlier[order],
            behind,
        )


def in_order(lane: Column) -> Column:
    """Per row the row before it of the same lane; -1 for the first of a lane."""
    order = np.argsort(lane, kind="stable")
    before = np.full(len(lane), -1, np.int64)
    same = lane[order][1:] == lane[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def one_after_another(parts: Sequence[Messages]) -> Messages:
    """The parts in turn: a member's first messages of a part wait for all that the part before brought it.

    A member to which the part before brought nothing waits for what it has sent there.
    """
    whole, begin = parts[0], 0
    for part in parts[1:]:
        count = len(whole)
        later, earlier = _joined(whole, part, begin)
        owner = np.repeat(np.arange(len(part)), np.diff(part.offset)) + count
        mine = np.repeat(np.arange(count), np.diff(whole.offset))
        whole = Messages.make(
            whole.members,
            np.r_[whole.src, part.src],
            np.r_[whole.dst, part.dst],
            np.r_[whole.bytes, part.bytes],
            (np.r_[mine, owner, later + count], np.r_[whole.after, part.after + count, earlier]),
            np.r_[whole.delay, part.delay],
            np.r_[whole.follows, np.where(part.follows >= 0, part.follows + count, -1)],
        )
        begin = count
    return whole


def _joined(whole: Messages, part: Messages, begin: int) -> tuple[Column, Column]:
    """Which first messages of the part wait for which messages of `whole` from row `begin` on."""
    reach: dict[int, list[int]] = {}
    sent: dict[int, list[int]] = {}
    for row in range(begin, len(whole)):
        reach.setdefault(int(whole.dst[row]), []).append(row)
        sent.setdefault(int(whole.src[row]), []).append(row)
    pairs = [
        (row, before)
        for row in np.flatnonzero(part.first).tolist()
        for before in reach.get(int(part.src[row])) or sent.get(int(part.src[row]), [])
    ]
    later, earlier = np.asarray(pairs, np.int64).reshape(-1, 2).T
    return later, earlier
