"""Rings: every member sends to the next one, in every step.

    step 0    0 ─▶ 1 ─▶ 2 ─▶ 3 ─▶ 0     all at once; data that arrives in step s is forwarded in step s+1

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms" (JPDC 2009), section 3; NCCL's ring.
"""

from __future__ import annotations

import numpy as np

from syntony.synth.traffic.messages import Messages


def one_round(members: int, size: float) -> Messages:
    """all_gather or reduce_scatter: n-1 steps of size/n bytes."""
    return _steps(members, members - 1, size / members)


def two_rounds(members: int, size: float) -> Messages:
    """all_reduce: reduce_scatter, then all_gather: 2(n-1) steps of size/n bytes."""
    return _steps(members, 2 * (members - 1), size / members)


def chain(members: int, size: float, pieces: int = 8) -> Messages:
    """broadcast from member 0: pieces follow one another down the ring, which is open before member 0."""
    hop = np.tile(np.arange(members - 1), pieces)
    row = np.arange(len(hop))
    later = row[hop > 0]
    return Messages.make(members, hop, hop + 1, size / pieces, (later, later - 1))


def _steps(members: int, steps: int, share: float) -> Messages:
    step, src = np.divmod(np.arange(steps * members), members)
    later = np.arange(members, steps * members)
    return Messages.make(
        members, src, (src + 1) % members, share, (later, (step[later] - 1) * members + (src[later] - 1) % members)
    )
