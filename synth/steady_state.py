"""Steady states: what a simulation has lived through once, it need not live through again.

    slice    0  1  2  3  4  5  6  7  8  9 10 11 ..                 997 998 999
    state    a  b  c  d  e  f  d                ─────skip─────▶    d   e   f  g ..
                      └── period ──┘

A simulation is a function of its state: where every lane is, what lies in every FIFO, what is on the wires and how far
from its end; slices and times counted from some lane's slice and from now. (Of a lane that is done with all its slices
only that: it acts no more and keeps nobody waiting.) Where a state comes back, so does all that followed, for as long
as slices stay equally long; so whole periods are skipped there, and the clock moved on.
States are compared after rounding, so a skip is as exact as the rounding; a state that never comes back costs a skip
but no truth.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True)
class Skip:
    """`slices` slices that take `seconds`, to be left out."""

    slices: int
    seconds: float


class SteadyState:
    """Remembers states; `boundaries` are the slices at which lengths of messages change, ascending."""

    def __init__(self, boundaries: list[int]) -> None:
        self._boundaries = boundaries
        self._phase = -1
        self._seen: dict[bytes, tuple[int, float]] = {}

    def skip(self, state: bytes, base: int, lowest: int, highest: int, now: float) -> Skip | None:
        """What may be left out at this state, if anything.

        base             the slice from which `state` counts
        lowest, highest  the least and the greatest slice that any lane is in that is not done
        """
        phase = bisect_right(self._boundaries, lowest)
        if phase == len(self._boundaries) or highest >= self._boundaries[phase]:
            return None
        if phase != self._phase:
            self._phase = phase
            self._seen.clear()
        # Digests, because a simulation without a steady state would remember a state per slice.
        digest = blake2b(state, digest_size=16).digest()
        if digest not in self._seen:
            self._seen[digest] = base, now
            return None
        before, then = self._seen[digest]
        periods = (self._boundaries[phase] - 1 - highest) // (base - before)
        if periods < 1:
            return None
        self._seen.clear()
        return Skip(periods * (base - before), periods * (now - then))
