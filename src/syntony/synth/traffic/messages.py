"""Messages: one iteration of a pattern as data: sources, destinations, sizes and dependencies.

    message 0   member 0 ──▶ member 1   ·········┐
    message 1   member 1 ──▶ member 2            │ waits until 0 has *arrived*
    message 2   member 0 ──▶ member 1   ─┐       ▼
                                         └ follows 0: waits until 0 has *left*

Members are positions in a job's list of members; the job maps them to ranks, and traffic/choice.py chooses the links of
messages. A message from a member to itself takes no link: it arrives at once, or after its `delay`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syntony.base.command import UserError

Column = NDArray[np.int64]

MOST = 5_000_000
"""The most messages, or flows, simulated at once: a few GB."""


class TooMuchError(UserError):
    """The traffic does not fit; raised before it fills the memory."""


@dataclass(frozen=True, eq=False)
class Messages:
    """Columns, one row per message.

    members       the number of members
    src, dst      int64 (M,)    members
    bytes         float64 (M,)  its size
    delay         float64 (M,)  seconds in addition to alphas and bandwidth: computing
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
        """Marks the messages that wait for no other."""
        alone: NDArray[np.bool_] = (np.diff(self.offset) == 0) & (self.follows < 0)
        return alone

    @property
    def last(self) -> NDArray[np.bool_]:
        """Marks the messages whose arrival no other waits for."""
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
        """Columns from arguments.

        `waits` are two columns: message waits[0][i] waits until message waits[1][i] has arrived. `size` and `delay` may
        be one number for all. Without `follows`, messages with the same source and destination leave in row order.
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
    """Per row, the previous row of the same lane; -1 for the first of a lane."""
    order = np.argsort(lane, kind="stable")
    before = np.full(len(lane), -1, np.int64)
    same = lane[order][1:] == lane[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def one_after_another(parts: Sequence[Messages]) -> Messages:
    """The parts in turn: a member's first messages of a part wait for everything that the previous part brought it.

    A member to which the previous part brought nothing waits for what it has sent in it.
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
    """Pairs: the first messages of the part, and the messages of `whole` from row `begin` on that they wait for."""
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
