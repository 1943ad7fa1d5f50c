"""Recursive halving and doubling: members exchange with partners at distances that halve, then double.

    8 members, all_reduce:   0───────4   0───2   0─1   0─1   0───2   0───────4
    share of the size            1/2     1/4   1/8   1/8     1/4     1/2

Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (IJHPCA 2005), sections
4.1 (doubling), 4.3 (halving) and 4.4 (Rabenseifner's all_reduce). For all_reduce with a number of members that is not a
power of two, the last members first fold into the first ones and get the result at the end, as there.
"""

from __future__ import annotations

import numpy as np

from syntony.base.command import UserError
from syntony.synth.traffic.messages import Messages, one_after_another


def doubling(members: int, size: float) -> Messages:
    """all_gather: log n exchanges of size/n, 2 size/n, .. bytes."""
    _require_power("all_gather:doubling", members)
    return _exchanges(members, members, [(1 << i, size * (1 << i) / members) for i in range(_log(members))])


def halving(members: int, size: float) -> Messages:
    """reduce_scatter: log n exchanges of size/2, size/4, .. bytes."""
    _require_power("reduce_scatter:halving", members)
    return _exchanges(members, members, _halving(members, size))


def rabenseifner(members: int, size: float) -> Messages:
    """all_reduce: halving, then doubling."""
    paired = 1 << _log(members)
    there = _halving(paired, size)
    core = _exchanges(members, paired, there + there[::-1])
    rest = np.arange(members - paired)
    if not len(rest):
        return core
    fold = Messages.make(members, paired + rest, rest, size)
    unfold = Messages.make(members, rest, paired + rest, size)
    return one_after_another([fold, core, unfold])


def _log(members: int) -> int:
    return members.bit_length() - 1


def _halving(paired: int, size: float) -> list[tuple[int, float]]:
    return [(paired >> (i + 1), size / (2 << i)) for i in range(_log(paired))]


def _exchanges(members: int, paired: int, rounds: list[tuple[int, float]]) -> Messages:
    """In each round, the first `paired` members each send this many bytes to the partner at that distance."""
    member = np.arange(paired)
    src = np.tile(member, len(rounds))
    dst = np.concatenate([member ^ distance for distance, _ in rounds] or [member[:0]])
    size = np.repeat([share for _, share in rounds], paired)
    row = np.arange(len(src))
    later = row[paired:]
    # A member's partner of the previous round sent it that round's data. It already has older data by the time that it
    # has sent in the previous round.
    partner = dst[later - paired]
    heard = (later // paired - 1) * paired + partner
    follows = np.where(row >= paired, row - paired, -1)
    return Messages.make(members, src, dst, size, (later, heard), follows=follows)


def _require_power(name: str, members: int) -> None:
    if members & (members - 1):
        raise UserError(f"{name}: {members} members; it needs a power of two, such as {1 << _log(members)}")
