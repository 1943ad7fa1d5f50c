"""Explain: did communication overlap, and if not, why not?

    exposed      communication while its device computes nothing, Op by Op, and what delayed it
    without it   the step simulated again as if that took no time: a prediction to act upon, and to be verified

    reduce.0     41.9 ms exposed   not ready before bwd.0.0 ends; opt.0 waits for it            without it -41.2 ms
                                   └ what delayed it        └ what it delays

If two Ops are exposed at the same moment both are counted, so savings do not add up; groups are simulated together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from syntony.base.wording import counted, time
from syntony.overlap.predict.estimate import Estimate, estimates, short
from syntony.overlap.predict.simulation import Timeline, Wait, simulate
from syntony.overlap.step.cost import Cost, Doubles, Linear, Wire
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Clip, Plan

_WORTH = 1e-3  # of the step; smaller effects are not shown


class Reason(StrEnum):
    """Why an Op communicated while nothing was computed."""

    NOT_READY = "not ready"
    BUSY = "link busy"
    CLIPPING = "waits for clipping"
    WINDOW = "window full"
    PARTNER = "other end late"
    FIRST = "ready from the start"


@dataclass(frozen=True)
class Exposed:
    """One communication Op. seconds: exposed; whole: all its time on the link; blame: what it waited for last;
    needed: what waited for it next; saving: seconds off the step if it took no time, None if not computed."""

    op: Op
    seconds: float
    whole: float
    reason: Reason
    blame: OpKey | None
    needed: OpKey | None
    saving: float | None = None

    @property
    def why(self) -> str:
        """The reason, for people."""
        blame = "" if self.blame is None else short(self.blame)
        message = {
            Reason.NOT_READY: f"not ready before {blame} ends",
            Reason.BUSY: f"link busy with {blame}",
            Reason.CLIPPING: f"waits for clipping ({blame})",
            Reason.WINDOW: f"window full until {blame} ends",
            Reason.PARTNER: f"the other end, {blame}, is late",
            Reason.FIRST: "ready from the start",
        }[self.reason]
        return message + (f"; {short(self.needed)} waits for it" if self.needed else "")


@dataclass(frozen=True)
class Group:
    """Ops of one kind on one lane with one reason."""

    what: str
    reason: Reason
    count: int
    seconds: float
    saving: float
    example: Exposed


@dataclass(frozen=True)
class Change:
    """A possible change, and the seconds that it would save."""

    what: str
    saving: float


@dataclass(frozen=True)
class Explanation:
    """Explanation of one predicted step; see the module docstring."""

    timeline: Timeline
    estimates: tuple[Estimate, ...]
    ops: tuple[Exposed, ...]
    groups: tuple[Group, ...]
    changes: tuple[Change, ...]

    @property
    def efficiency(self) -> float:
        """Lower bound over step time: 1 is the optimum."""
        return self.estimates[0].seconds / self.timeline.seconds if self.timeline.seconds else 1.0

    @cached_property
    def hidden(self) -> float:
        """The part of all communication that runs while its device computes."""
        moved = sum(took for (_, lane), took in self.timeline.busy.items() if lane != COMPUTE)
        return 1.0 - sum(self.timeline.exposed.values()) / moved if moved else 1.0


@dataclass(frozen=True)
class _Without(Cost):
    """A Cost in which some Ops take no time."""

    gone: frozenset[OpKey] = frozenset()

    def seconds(self, graph: Graph) -> tuple[Doubles, Doubles]:
        taken, waited = super().seconds(graph)
        kept = np.array([op.key not in self.gone for op in graph], float)
        return taken * kept, waited * kept


def without(cost: Cost, keys: Iterable[OpKey]) -> Cost:
    """The same Cost, but these Ops take no time: neither on their link, nor before it."""
    return _Without(**{key: value for key, value in vars(cost).items() if key != "gone"}, gone=frozenset(keys))


class Making(NamedTuple):
    """What a plan was made from, and by which policy."""

    step: Graph
    policy: Callable[[Graph, Cost], Plan]


def explain(timeline: Timeline, top: int = 8, made: Making | None = None) -> Explanation:
    """Explains all exposed communication.

    top     the number of Ops, and of groups of Ops, for which savings are simulated
    made    how the plan was made, so that for other wires and rules the policy makes a new plan; without it, the plan
            stays the same
    """
    plan, cost = timeline.plan, timeline.cost
    found = sorted(_exposed(timeline), key=lambda one: -one.seconds)
    shown = [one for one in found if one.seconds >= _WORTH * timeline.seconds][:top]

    def saved(keys: Iterable[OpKey]) -> float:
        return timeline.seconds - simulate(plan, without(cost, keys)).seconds

    ops = tuple(replace(one, saving=saved(_ends(one.op, plan))) for one in shown)
    kinds: dict[tuple[str, Reason], list[Exposed]] = {}
    for one in found:
        if one.seconds > 0:
            kinds.setdefault((f"{one.op.key.kind} on {one.op.lane}", one.reason), []).append(one)
    largest = sorted(kinds.items(), key=lambda item: -sum(one.seconds for one in item[1]))[:top]
    groups = tuple(
        Group(
            what,
            reason,
            len(members),
            sum(one.seconds for one in members),
            saved(key for one in members for key in _ends(one.op, plan)),
            members[0],
        )
        for (what, reason), members in largest
        if sum(one.seconds for one in members) >= _WORTH * timeline.seconds
    )
    return Explanation(timeline, estimates(plan, cost), ops, groups, tuple(_changes(timeline, made)))


def _ends(op: Op, plan: Plan) -> list[OpKey]:
    """Both ends of a message; else the Op."""
    ends = [op.key._replace(kind=kind) for kind in (Kind.SEND, Kind.RECV)] if op.peer >= 0 else [op.key]
    return [key for key in ends if key in plan.graph.by_key]


def _exposed(timeline: Timeline) -> list[Exposed]:
    ops = timeline.plan.graph.ops
    needed: dict[int, OpKey] = {}
    for row, (wait, blame) in enumerate(zip(timeline.wait.tolist(), timeline.blame.tolist(), strict=True)):
        if ops[row].lane == COMPUTE and wait == Wait.DEPENDENCY and blame >= 0:
            needed.setdefault(blame, ops[row].key)
    found = []
    for row, op in enumerate(ops):
        if op.kind.moves:
            reason, blame = _reason(timeline, row)
            whole = float(timeline.end[row] - timeline.start[row])
            found.append(Exposed(op, timeline.exposed[op.key], whole, reason, blame, needed.get(row)))
    return found


def _reason(timeline: Timeline, row: int) -> tuple[Reason, OpKey | None]:
    ops, wait, blame = timeline.plan.graph.ops, int(timeline.wait[row]), int(timeline.blame[row])
    key = ops[blame].key if blame >= 0 else None
    if wait == Wait.DEPENDENCY:
        # An update that waits for the norm of all gradients passes its wait on to the gather of its weights.
        at = blame
        while at >= 0 and ops[at].kind is Kind.OPTIMIZE and timeline.wait[at] in (Wait.DEPENDENCY, Wait.LANE):
            at = int(timeline.blame[at])
        if at >= 0 and ops[at].kind is Kind.NORM:
            return Reason.CLIPPING, ops[at].key
        return Reason.NOT_READY, key
    reasons = {Wait.LANE: Reason.BUSY, Wait.LINK: Reason.BUSY, Wait.WINDOW: Reason.WINDOW, Wait.PARTNER: Reason.PARTNER}
    return (reasons[Wait(wait)], key) if wait in reasons and key else (Reason.FIRST, None)


def _changes(timeline: Timeline, made: Making | None) -> list[Change]:
    """Simulates other machines and other rules; returns those that help."""
    plan, cost = timeline.plan, timeline.cost
    tried: list[tuple[str, Plan, Cost]] = []

    def at(other: Cost) -> tuple[Plan, Cost]:
        return (made.policy(made.step, other) if made else plan), other

    wires = cost.wires_of(plan.graph)
    for lane in sorted({op.lane for op in plan.graph if op.kind.moves}):
        keys = [op.key for op in plan.graph if op.lane == lane]
        tried.append((f"nothing moved on {lane}", plan, without(cost, keys)))
    for link in sorted({wire.link for lane, wire in wires.items() if any(op.lane == lane for op in plan.graph)}):
        tried.append((f"link {link!r} were twice as fast", *at(_scaled(cost, link, 1.0, 0.5))))
    tried.append(("messages had no latency", *at(_scaled(cost, None, 0.0, 1.0))))
    if plan.windows:
        tried.append(("windows had no limit", replace(plan, windows={}), cost))
    if plan.clip is Clip.EXACT:
        free = made.policy(without_norms(made.step), cost) if made else _unclipped(plan)
        tried.append(("updates did not wait for clipping", free, cost))
    found = [Change(what, timeline.seconds - simulate(other, price).seconds) for what, other, price in tried]
    return sorted((one for one in found if one.saving >= _WORTH * timeline.seconds), key=lambda one: -one.saving)


def _scaled(cost: Cost, link: str | None, alpha: float, beta: float) -> Cost:
    """Scales the latencies and seconds per byte of wires, on one link or on all."""
    level = cost.level

    def scaled(wires: Mapping[str, Wire]) -> dict[str, Wire]:
        return {
            lane: wire
            if link not in (None, wire.link)
            else Wire(
                {kind: Linear(line.alpha * alpha, line.beta * beta, line.fixed) for kind, line in wire.kinds.items()},
                wire.link,
            )
            for lane, wire in wires.items()
        }

    return replace(cost, wires=scaled(cost.wires), level=None if level is None else lambda lay: scaled(level(lay)))


def without_norms(graph: Graph) -> Graph:
    """The step with clip=off: every update may start as soon as its own gradient is summed."""
    norms = {op.key for op in graph if op.kind is Kind.NORM}
    kept = tuple(
        op._replace(deps=tuple(key for key in op.deps if key not in norms)) for op in graph if op.key not in norms
    )
    layout = graph.layout and replace(graph.layout, clip=Clip.OFF)
    return Graph(kept, graph.layers, layout)


def _unclipped(plan: Plan) -> Plan:
    """The plan without norms, everything else in the same order."""
    graph = without_norms(plan.graph)
    orders = {lane: tuple(key for key in keys if key in graph.by_key) for lane, keys in plan.orders.items()}
    return replace(plan, graph=graph, orders=orders, clip=Clip.OFF)


# ---- text -----------------------------------------------------------------------------------------------------------


def describe(found: Explanation) -> list[str]:
    """The explanation as text."""
    timeline, plan = found.timeline, found.timeline.plan
    best = found.estimates[0]
    lines = [
        f"step {time(timeline.seconds)}, predicted; estimate {time(best.seconds)}; efficiency {found.efficiency:.1%}",
        f"  the estimate: {best.witness}",
        "",
    ]
    exposed = sum(timeline.exposed.values())
    if not any(op.kind.moves for op in plan.graph):
        lines.append("did it overlap?  There is nothing to overlap: nothing moves.")
    elif exposed < _WORTH * timeline.seconds:
        lines.append("did it overlap?  Yes: all that moves is hidden behind computing.")
    else:
        word = "Mostly" if found.hidden >= 0.9 else "In part" if found.hidden >= 0.1 else "No"
        lines.append(f"did it overlap?  {word}: {found.hidden:.1%} of communication is hidden behind computing.")
    lines += ["", "  device   computes       idle   " + "   ".join(f"{lane:>8}" for lane in _lanes(plan))]
    for device in plan.graph.devices[:16]:
        busy = timeline.busy.get((device, COMPUTE), 0.0)
        moved = "   ".join(f"{time(timeline.busy.get((device, lane), 0.0)):>8}" for lane in _lanes(plan))
        lines.append(f"  {device:>6} {time(busy):>10} {time(timeline.idle(device)):>10}   {moved}")
    if len(plan.graph.devices) > 16:
        lines.append(f"  .. and {len(plan.graph.devices) - 16} more devices")
    if found.groups:
        lines += ["", "why not", "     exposed  what                          reason                 without it"]
    for group in found.groups:
        what = f"{group.what}, {counted(group.count, 'op')}"
        lines.append(f"  {time(group.seconds):>10}  {what:<29} {group.reason:<20} {_saving(group.saving):>12}")
    if found.ops:
        lines += ["", "the longest", "     exposed  of          op                 without it"]
    for one in found.ops:
        lines.append(
            f"  {time(one.seconds):>10}  {time(one.whole):<10}  {short(one.op.key):<18} {_saving(one.saving):>10}"
            f"   {one.why}"
        )
    if found.changes:
        lines += ["", "what would help"]
    lines += [f"  {_saving(change.saving):>10}   if {change.what}" for change in found.changes]
    return lines


def _lanes(plan: Plan) -> list[str]:
    return sorted({op.lane for op in plan.graph} - {COMPUTE})


def _saving(seconds: float | None) -> str:
    if seconds is None or seconds < 1e-9:
        return "nothing"
    return f"-{time(seconds)}"


def report(found: Explanation) -> dict[str, Any]:
    """The explanation as data; times in seconds."""
    return {
        "step": found.timeline.seconds,
        "estimate": found.estimates[0].seconds,
        "efficiency": found.efficiency,
        "hidden": found.hidden,
        "bounds": [{"seconds": one.seconds, "kind": one.kind, "witness": one.witness} for one in found.estimates],
        "groups": [
            {"what": one.what, "reason": one.reason, "ops": one.count, "exposed": one.seconds, "saving": one.saving}
            for one in found.groups
        ],
        "ops": [
            {"op": str(one.op.key), "exposed": one.seconds, "seconds": one.whole, "reason": one.reason,
             "blame": str(one.blame or ""), "needed": str(one.needed or ""), "saving": one.saving}
            for one in found.ops
        ],
        "changes": [{"if": one.what, "saving": one.saving} for one in found.changes],
    }  # fmt: skip
