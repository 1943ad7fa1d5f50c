"""When how many bytes begin each plan: a linear program over plans and slots of time.

    plan A begins   ■ ■ ■ ■ . . . .         bytes that begin plan A in slot t are on its first link in slot t,
      its link 1    ■ ■ ■ ■ . . . .         on the next one a hop's time later, and so on: they never wait;
      its link 2    . . ■ ■ ■ ■ . .         no link carries more in a slot than it can
    plan B begins   . . . . ■ ■ ■ ■         plan B takes less time to its end, so it may begin later

The least time in which all bytes can arrive is found by bisection. At that time, bytes take as few hops as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.base.deadline import Deadline
from syntony.synth.engines.pipeline.partial_sums import Plan

Floats = NDArray[np.float64]
NEAR = 1.01
"""The bisection ends with a time at most this many times the least."""


@dataclass(frozen=True, eq=False)
class Wires:
    """Classes of links that plans use alike on average, since the grid is the same seen from its other sides.

    kind    by neighbours, the class
    speed   by class, bytes/s of a link
    number  by class, its links
    """

    kind: Mapping[tuple[int, int], int]
    speed: Floats
    number: NDArray[np.int64]

    def used(self, plan: Plan) -> tuple[tuple[int, float], ...]:
        """The class of each hop's link, and when the hop begins."""
        return tuple(sorted((self.kind[hop.src, hop.dst], hop.start) for hop in plan.hops))


@dataclass(frozen=True, eq=False)
class Departures:
    """bytes[k, t]: how many begin the plans of class k in slot t, which lasts from t * slot to (t + 1) * slot seconds.

    classes  the plans of each, which share its bytes equally
    """

    classes: tuple[tuple[Plan, ...], ...]
    bytes: Floats
    slot: float

    @property
    def seconds(self) -> float:
        """Within which all bytes arrive."""
        return float(self.bytes.shape[1] * self.slot)

    def slices(self, number: int) -> list[tuple[float, Plan]]:
        """As about `number` equal slices: when each begins, and its plan; the first one first."""
        each, random = self.bytes.sum() / number, np.random.default_rng(0)
        found: list[tuple[float, int, Plan]] = []
        for plans, begun in zip(self.classes, self.bytes, strict=True):
            many = round(begun.sum() / each)
            if many:
                until = np.r_[0.0, np.cumsum(begun)] * (many / begun.sum())
                times = np.interp(np.arange(many) + 1e-6, until, np.arange(len(until)) * self.slot).tolist()
                dealt = random.permutation(len(plans))  # classes whose plans take turns in step meet on the same links
                found += [
                    (time, len(found) + place, plans[dealt[place % len(plans)]]) for place, time in enumerate(times)
                ]
        return [(time, plan) for time, _, plan in sorted(found, key=lambda one: one[:2])]


def departures(plans: Sequence[Plan], wires: Wires, size: int, slot: float, deadline: Deadline) -> Departures | None:
    """In the least time. None if there is not enough time to find them."""
    members: dict[tuple[tuple[int, float], ...], list[Plan]] = {}
    for plan in plans:
        members.setdefault(wires.used(plan), []).append(plan)
    classes = tuple(map(tuple, members.values()))
    lasts = np.asarray([like[0].seconds for like in classes])
    hops = np.asarray([len(like[0].hops) for like in classes], np.float64)
    program = _Program(tuple(members), lasts, hops, wires, size, slot)
    low, high = int(program.lasts.min() / slot), 0
    while not high:
        if not deadline.left():
            return None
        ahead = max(low + 1, int(low * 1.3))
        low, high = (low, ahead) if program.arrives(ahead) else (ahead, 0)
    while high - low > max(1, (NEAR - 1) * low):
        if not deadline.left():
            return None
        middle = (low + high) // 2
        low, high = (low, middle) if program.arrives(middle) else (middle, high)
    fewest = program.fewest(high)
    return None if fewest is None else Departures(classes, fewest, slot)


@dataclass(frozen=True, eq=False)
class _Program:
    """By class of plans: the links used, and when; seconds from begin to end; the number of hops."""

    used: tuple[tuple[tuple[int, float], ...], ...]
    lasts: Floats
    hops: Floats
    wires: Wires
    size: int
    slot: float

    def arrives(self, slots: int) -> bool:
        """Whether all bytes can arrive within so many slots."""
        found = self._solved(slots, shortest=False)
        return found is not None and float(found.sum()) >= self.size

    def fewest(self, slots: int) -> Floats | None:
        """Bytes by class and slot that arrive within so many slots, in the fewest hops."""
        return self._solved(slots, shortest=True)

    def _solved(self, slots: int, shortest: bool) -> Floats | None:
        import scipy.optimize
        import scipy.sparse

        begins = np.maximum(0, np.floor(slots - self.lasts / self.slot + 1e-9).astype(np.int64))
        first = np.cumsum(begins) - begins
        total = int(begins.sum())
        if not total:
            return None
        rows, columns, parts = [], [], []
        for place, used in enumerate(self.used):
            begin = np.arange(begins[place])
            for wire, start in used:
                whole, part = divmod(start / self.slot, 1)
                for later, share in ((0, 1 - part), (1, part)):
                    rows.append(wire * slots + int(whole) + later + begin)
                    columns.append(first[place] + begin)
                    parts.append(np.full(len(begin), share / self.wires.number[wire]))
        carried = scipy.sparse.csr_array(
            (np.concatenate(parts), (np.concatenate(rows), np.concatenate(columns))),
            (len(self.wires.number) * slots, total),
        )
        found = scipy.optimize.linprog(
            np.repeat(self.hops, begins) if shortest else np.full(total, -1.0),
            A_ub=carried,
            b_ub=np.repeat(self.wires.speed * self.slot / self.size, slots),
            A_eq=np.ones((1, total)) if shortest else None,
            b_eq=np.ones(1) if shortest else None,
            method="highs",
        )
        if found.x is None:
            return None
        bytes_ = np.zeros((len(self.used), slots))
        bytes_[np.repeat(np.arange(len(begins)), begins), np.arange(total) - np.repeat(first, begins)] = found.x
        return bytes_ * self.size
