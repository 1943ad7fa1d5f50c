"""Lower bounds on any order of a Plan's Ops, given their costs; each with a witness to check by hand.

They bound a simulated step. A measured one may be faster, since costs are measured or assumed.

    compute    total computation of a device
    link       total time of a link
    cycle      a chain of Ops from a layer's update to its next one
    pipeline   head-body-tail: all work of a device (or a link) for one update lies between two updates of a layer,
               after the least that precedes it and before the least that follows

        update of layer 0 ──head──▶ [ body: device 3's forwards and backwards ] ──tail──▶ next update of layer 0

The last is Carlier's one-machine bound (EJOR 11, 1982) in a cycle. For 1F1B it gives (m + p - 1) times a microbatch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from syntony.base.wording import time
from syntony.overlap.step.cost import Cost, Wire
from syntony.overlap.step.graph import in_turn
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan

_MOST_ANCHORS = 4
_LARGE = 30_000  # ops; for larger plans, one anchor must suffice


@dataclass(frozen=True)
class Estimate:
    """kind: compute, link, cycle or pipeline; witness: a sentence; ops: those named or added up in it."""

    seconds: float
    kind: str
    witness: str
    ops: tuple[OpKey, ...]


def estimates(plan: Plan, cost: Cost) -> tuple[Estimate, ...]:
    """The best of each kind, the highest first; an empty plan has one of 0 seconds."""
    step = _Step(plan, cost)
    best: dict[str, Estimate] = {}
    for estimate in step.found():
        if estimate.kind not in best or estimate.seconds > best[estimate.kind].seconds:
            best[estimate.kind] = estimate
    ordered = sorted(best.values(), key=lambda estimate: -estimate.seconds)
    return tuple(ordered) or (Estimate(0.0, "compute", "nothing is computed", ()),)


def short(key: OpKey) -> str:
    """A short form of an Op's name: `reduce.9+..+0` for a union."""
    members = key.members
    return str(key) if len(members) <= 3 else str(OpKey.union((members[0], members[-1]))).replace("+", "+..+")


class _Step:
    def __init__(self, plan: Plan, cost: Cost) -> None:
        self.plan, self.ops = plan, plan.graph.ops
        every = [plan.graph.every(op) for op in self.ops]  # of these steps, each takes its share
        taken, waited = (seconds / every for seconds in cost.seconds(plan.graph))
        self.taken: list[float] = taken.tolist()
        self.whole: list[float] = (taken + waited).tolist()
        row = {op.key: number for number, op in enumerate(self.ops)}
        sends = {op.key: op for op in self.ops if op.kind is Kind.SEND}
        self.before: list[list[int]] = []
        for op in self.ops:
            # A message ends when both ends are there and its bytes have moved.
            other = sends[op.key.sender].deps if op.kind is Kind.RECV else ()
            self.before.append([row[key] for key in (*op.deps, *other)])
        self.resources: dict[tuple[int, str, str], list[int]] = {}
        wires = cost.wires_of(plan.graph)
        for number, op in enumerate(self.ops):
            for resource in _resources(op, wires):
                self.resources.setdefault(resource, []).append(number)

    def found(self) -> Iterator[Estimate]:
        for (device, link, way), rows in self.resources.items():
            total = sum(self.taken[row] for row in rows)
            keys = tuple(self.ops[row].key for row in rows)
            if link == COMPUTE:
                yield Estimate(total, "compute", f"device {device} computes {time(total)}", keys)
            else:
                said = f"what device {device} {way} occupies its link {link!r} for {time(total)}"
                yield Estimate(total, "link", said, keys)
        order = in_turn(dict(enumerate(self.before)))
        for anchor in self._anchors():
            yield from self._around(anchor, order)

    def _anchors(self) -> list[int]:
        """The Ops of the previous step that the first forward of each device waits for."""
        row = {op.key: number for number, op in enumerate(self.ops)}
        found: dict[int, None] = {}
        for device in self.plan.graph.devices:
            lagged = (op for op in self.ops if op.device == device and op.kind is Kind.FORWARD and op.lagged)
            for op in (next(lagged, None),):
                found |= dict.fromkeys(row[key] for key in op.lagged) if op else {}
        return list(found)[: 1 if len(self.ops) > _LARGE else _MOST_ANCHORS]

    def _around(self, anchor: int, order: list[int]) -> Iterator[Estimate]:
        key, none = self.ops[anchor].key, -1.0
        head, via = [none] * len(self.ops), [-1] * len(self.ops)  # from the anchor's end to the Op's start
        for row in order:
            if key in self.ops[row].lagged:
                head[row] = 0.0
            for before in self.before[row]:
                if head[before] >= 0 and head[before] + self.whole[before] > head[row]:
                    head[row], via[row] = head[before] + self.whole[before], before
        tail = [none] * len(self.ops)  # from the Op's end to the anchor's
        tail[anchor] = 0.0
        for row in reversed(order):
            if tail[row] >= 0:
                for before in self.before[row]:
                    tail[before] = max(tail[before], tail[row] + self.whole[row])
        if head[anchor] < 0:
            return
        path, at = [anchor], anchor
        while via[at] >= 0:
            at = via[at]
            path.append(at)
        chain = tuple(self.ops[row].key for row in reversed(path))
        names = [short(one) for one in chain]
        shown = " > ".join(names if len(names) <= 5 else [*names[:2], "..", *names[-2:]])
        total = head[anchor] + self.whole[anchor]
        yield Estimate(
            total, "cycle", f"a chain of {len(chain)} ops leads from {short(key)} to the next step: {shown}", chain
        )
        for (device, link, way), rows in self.resources.items():
            body = [row for row in rows if head[row] >= 0 and tail[row] >= 0]
            if not body:
                continue
            first, last = min(head[row] for row in body), min(tail[row] for row in body)
            work = sum(self.taken[row] for row in body)
            what = f"device {device} computes" if link == COMPUTE else f"link {link!r} of device {device} {way}"
            said = (
                f"between two {short(key)}, {what} {time(work)}, not before {time(first)} have gone "
                f"and {time(last)} before the end"
            )
            yield Estimate(first + work + last, "pipeline", said, tuple(self.ops[row].key for row in body))


def _resources(op: Op, wires: Mapping[str, Wire]) -> Iterator[tuple[int, str, str]]:
    if op.lane == COMPUTE:
        yield op.device, COMPUTE, ""
        return
    link = wires[op.lane].link
    if op.kind is not Kind.RECV:
        yield op.device, link, "sends"
    if op.kind is not Kind.SEND:
        yield op.device, link, "receives"
