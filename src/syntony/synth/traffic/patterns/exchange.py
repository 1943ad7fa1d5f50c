"""Direct exchange: every member sends to every other one without a relay.

    direct     all n-1 messages of a member at once
    rotated    step s: member i sends to member i+s, and continues when it has received that step's message

The rotation is the pairwise exchange of Thakur, Rabenseifner and Gropp (IJHPCA 2005), section 4.2: at any time a member
sends one message and receives one, so that there is no contention on a crossbar.
"""

from __future__ import annotations

import numpy as np

from syntony.synth.traffic.messages import Messages


def direct(members: int, size: float) -> Messages:
    """all_to_all, all_gather or reduce_scatter: size/n bytes from each to each, all at once."""
    return _all(members, size / members, rotated=False)


def rotated(members: int, size: float) -> Messages:
    """all_to_all in n-1 steps of size/n bytes."""
    return _all(members, size / members, rotated=True)


def in_two_shots(members: int, size: float) -> Messages:
    """all_reduce: direct reduce_scatter, then direct all_gather of the sums."""
    first = _all(members, size / members, rotated=False)
    count, member = len(first), np.arange(members)
    # Between the two, a message of every member to itself waits for everything that it sums.
    second = np.arange(count) + count + members
    return Messages.make(
        members,
        np.r_[first.src, member, first.src],
        np.r_[first.dst, member, first.dst],
        np.r_[first.bytes, np.zeros(members), first.bytes],
        (np.r_[count + first.dst, second], np.r_[np.arange(count), count + first.src]),
    )


def _all(members: int, share: float, rotated: bool) -> Messages:
    step, src = np.divmod(np.arange(members * (members - 1)), members)
    dst = (src + step + 1) % members
    later = np.arange(members, len(src)) if rotated else np.arange(0)
    # In step s member i receives from member i-s; rows are step * n + source.
    heard = (later // members - 1) * members + (src[later] - step[later]) % members
    follows = np.where(step > 0, np.arange(len(src)) - members, -1) if rotated else np.full(len(src), -1)
    return Messages.make(members, src, dst, share, (later, heard), follows=follows)
