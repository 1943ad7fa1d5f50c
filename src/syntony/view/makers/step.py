"""Training steps: simulated plans, and recorded steps (Chakra traces), simulated and as measured; comparisons.

Every file is a plan. Several files are policies for one step, on one time axis; a measured step is shown below its
prediction.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from syntony.base.command import UserError
from syntony.base.wording import counted, time
from syntony.overlap.commands.problem import problem
from syntony.overlap.formats.chakra import read_chakra
from syntony.overlap.predict.estimate import estimates
from syntony.overlap.predict.explain import Explanation, describe, explain
from syntony.overlap.predict.simulation import Timeline as Predicted
from syntony.overlap.predict.simulation import Wait, simulate
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.plan import Plan
from syntony.view.models import (
    ANOTHER,
    CRITICAL,
    EXPOSED,
    Curves,
    Grid,
    Panel,
    Question,
    Series,
    Timeline,
    View,
    Words,
    timeline,
)
from syntony.view.wording import size_name

_COLOURS = (
    "forward",
    "backward",
    "recompute, norm, update",
    "all_reduce, reduce_scatter",
    "all_gather, broadcast",
    "all_to_all",
    "messages between stages",
    "other",
)
_COLOUR_OF = {
    Kind.FORWARD: 0,
    Kind.BACKWARD: 1,
    Kind.BACKWARD_INPUT: 1,
    Kind.BACKWARD_WEIGHT: 1,
    Kind.RECOMPUTE: 2,
    Kind.REBUILD: 2,
    Kind.NORM: 2,
    Kind.OPTIMIZE: 2,
    Kind.ALL_REDUCE: 3,
    Kind.REDUCE_SCATTER: 3,
    Kind.ALL_GATHER: 4,
    Kind.BROADCAST: 4,
    Kind.ALL_TO_ALL: 5,
    Kind.SHIFT: 6,
    Kind.SEND: 6,
    Kind.RECV: 6,
}
_EXPLAINED = 5_000
"""The most Ops of an explained plan: an explanation simulates it a dozen times."""
_WAITS = {
    Wait.NOTHING: "waited for nothing",
    Wait.DEPENDENCY: "waited for what it needs",
    Wait.LANE: "waited for its queue",
    Wait.WINDOW: "waited for bytes in flight",
    Wait.LINK: "waited for its link",
    Wait.PARTNER: "waited for the other end",
}


def view(files: Sequence[str], machine: str) -> View:
    """One step, or several policies for it."""
    steps = [_Step(file, machine) for file in files]
    until = max(step.until for step in steps)
    names = _names(steps)
    panels: list[Panel] = []
    if len(steps) > 1:
        panels.append(_compared(steps, names))
    for step, name in zip(steps, names, strict=True):
        panels += [step.lanes(f"{name}: devices over time" if len(steps) > 1 else "devices over time", until)]
    panels.append(_memory(steps, names))
    order = sorted(range(len(steps)), key=lambda at: steps[at].seconds)
    best = steps[order[0]]
    for step, name in zip(steps, names, strict=True):
        panels += step.explained(f"{name}: " if len(steps) > 1 else "", words=step is best)
    questions = [
        Question("Which link limits?", best.limits(names[order[0]]), _title(steps, names, order[0])),
        Question("Who is late?", best.late(), _title(steps, names, order[0])),
    ]
    if len(steps) > 1:
        last = steps[order[-1]]
        words = ", ".join(f"{names[at]} {time(steps[at].seconds)}" for at in order)
        answer = f"{words}: {names[order[0]]} is {last.seconds / best.seconds:.3f} times as fast as {names[order[-1]]}."
        questions.append(Question(ANOTHER, answer, "policies compared"))
        headline = f"{counted(len(steps), 'policy').replace('policys', 'policies')} (predicted): {words}."
    else:
        questions.append(Question("What would help?", best.help(), "why communication is exposed"))
        headline = best.headline
    return View(
        "a training step" if len(steps) > 1 else f"training step: {best.plan.policy}",
        "training step",
        ", ".join(files),
        headline,
        tuple(panels),
        facts=(
            ("devices", str(len(best.plan.graph.devices))),
            ("ops", str(len(best.plan.graph))),
            ("step", time(best.seconds)),
            ("estimate", time(best.estimate)),
            ("efficiency", f"{best.estimate / best.seconds:.1%}" if best.seconds else "-"),
            ("machine", machine),
        ),
        questions=tuple(questions),
    )


def _names(steps: Sequence[_Step]) -> list[str]:
    policies = [step.plan.policy for step in steps]
    return [
        policy if policies.count(policy) == 1 else f"{policy} ({Path(step.file).stem})"
        for policy, step in zip(policies, steps, strict=True)
    ]


def _title(steps: Sequence[_Step], names: Sequence[str], at: int) -> str:
    return f"{names[at]}: devices over time" if len(steps) > 1 else "devices over time"


class _Step:
    """A file's plan with its prediction and, if the file has it, its measurement."""

    def __init__(self, file: str, machine: str) -> None:
        self.file = file
        asked = problem(
            argparse.Namespace(
                file=file, model=None, layout="", batch=1, element=None, machine=machine, on=None, speeds=()
            )
        )
        if asked.plan is None:
            raise UserError(f"{file}: it holds no plan")
        self.plan: Plan = asked.plan
        self.predicted: Predicted = simulate(self.plan, asked.cost)
        self.measured = read_chakra(Path(file)).times if Path(file).suffix == ".et" else {}
        self.seconds = self.predicted.seconds
        found = estimates(self.plan, asked.cost)[0]
        self.estimate, self.witness = found.seconds, found.witness
        small = len(self.plan.graph) <= _EXPLAINED
        self.explanation: Explanation | None = explain(self.predicted, 5) if small else None
        last = max((end for _, end in self.measured.values()), default=0.0)
        self.until = max(float(self.predicted.end.max(initial=0.0)), last - self._first())

    def _first(self) -> float:
        return min((begin for begin, _ in self.measured.values()), default=0.0)

    @property
    def exposed(self) -> float:
        """Seconds of communication not hidden by computation, on the device with most of it."""
        device = {op.key: op.device for op in self.plan.graph}
        found = dict.fromkeys(self.plan.graph.devices, 0.0)
        for key, took in self.predicted.exposed.items():
            found[device[key]] += took
        return max(found.values(), default=0.0)

    @property
    def headline(self) -> str:
        hidden = (
            f" {self.explanation.hidden:.1%} of communication is hidden behind computing." if self.explanation else ""
        )
        return (
            f"A step takes {time(self.seconds)} (predicted); with these costs no order takes less than "
            f"{time(self.estimate)} ({self.witness}).{hidden}"
        )

    def lanes(self, title: str, until: float) -> Timeline:
        """Computation and communication per device as predicted and, below, as measured."""
        ops = self.plan.graph.ops
        lanes = sorted({(op.device, op.lane) for op in ops}, key=lambda lane: (lane[0], lane[1] != COMPUTE, lane[1]))
        place = {lane: at for at, lane in enumerate(lanes)}
        names, groups = (
            [f"device {device} {lane}" for device, lane in lanes],
            [f"device {device}" for device, _ in lanes],
        )
        critical = self._critical()
        exposed = self.predicted.exposed
        rows = [
            (place[op.device, op.lane], float(begin), float(end), op, self._mark(op, row, critical, exposed))
            for row, (op, begin, end) in enumerate(zip(ops, self.predicted.start, self.predicted.end, strict=True))
        ]
        details = [self._detail(op, row) for row, op in enumerate(ops)]
        if self.measured:
            first = self._first()
            names = [f"{name}, predicted" for name in names] + [f"{name}, measured" for name in names]
            groups = groups * 2
            for op in ops:
                if op.key in self.measured:
                    begin, end = self.measured[op.key]
                    rows.append((len(lanes) + place[op.device, op.lane], begin - first, end - first, op, 0))
                    details.append(f"{op.key}, measured")
        labels = list(dict.fromkeys(str(op.key) for *_, op, _ in rows))
        number = {label: at for at, label in enumerate(labels)}
        return timeline(
            title,
            names,
            np.asarray([row[0] for row in rows], np.int32),
            np.asarray([row[1] for row in rows]),
            np.asarray([row[2] for row in rows]),
            np.asarray([_COLOUR_OF.get(row[3].kind, 7) for row in rows]),
            np.asarray([number[str(row[3].key)] for row in rows]),
            labels,
            _COLOURS,
            groups,
            np.asarray([row[4] for row in rows]),
            details,
            until=until,
            clock=False,
            words=f"Hatched: communication while nothing is computed. Framed: the critical path. {self.headline}",
        )

    def _mark(self, op: Op, row: int, critical: set[int], exposed: object) -> int:
        took = self.predicted.exposed.get(op.key, 0.0)
        whole = float(self.predicted.end[row] - self.predicted.start[row])
        return (EXPOSED if op.kind.moves and took > 0.5 * whole > 0 else 0) | (CRITICAL if row in critical else 0)

    def _detail(self, op: Op, row: int) -> str:
        what = size_name(op.amount) if op.kind.moves else f"{op.amount:.3g} operations"
        took = self.predicted.exposed.get(op.key, 0.0)
        told = f"{op.key}: {what}; {_WAITS[Wait(int(self.predicted.wait[row]))]}"
        if (blame := int(self.predicted.blame[row])) >= 0:
            told += f", {self.plan.graph.ops[blame].key}"
        return told + (f"; exposed {time(took)}" if took > 0 else "")

    def _critical(self) -> set[int]:
        """The last Op to end and, going back within the step, what each one waited for last."""
        found: set[int] = set()
        if not len(self.predicted.end):
            return found
        at = int(np.argmax(self.predicted.end))
        while at >= 0 and at not in found:
            found.add(at)
            before = int(self.predicted.blame[at])
            if before < 0 or self.predicted.start[before] > self.predicted.start[at]:
                break  # belongs to the previous step
            at = before
        return found

    def memory(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Per device, bytes held by Ops over time; the maximum is the predicted peak."""
        found = []
        for device in self.plan.graph.devices:
            events: list[tuple[float, float]] = []
            for op, begin, end in zip(self.plan.graph.ops, self.predicted.start, self.predicted.end, strict=True):
                if op.device == device and (op.holds or op.frees):
                    events += [(float(begin), op.holds), (float(end), -op.frees)]
            events.sort()
            if not events:
                continue
            moments = np.asarray([moment for moment, _ in events])
            level = np.cumsum([change for _, change in events])
            level = level + self.predicted.peak.get(device, float(level.max())) - level.max()
            found.append((device, moments, level))
        return found

    def explained(self, before: str, words: bool) -> list[Panel]:
        """The sentences of `explain`, and its groups as a table."""
        found = self.explanation
        if found is None:
            return []
        rows = tuple(
            (
                group.what,
                str(group.reason),
                str(group.count),
                time(group.seconds),
                time(max(0.0, group.saving)),
                group.example.why,
            )
            for group in found.groups
        )
        panels: list[Panel] = []
        if rows:
            columns = ("what", "reason", "ops", "exposed", "saved without it", "for example")
            panels.append(Grid(f"{before}why communication is exposed", columns, rows))
        if found.changes:
            changes = tuple(
                (f"if {change.what}", time(change.saving), f"{change.saving / self.seconds:.1%}")
                for change in found.changes
            )
            panels.append(Grid(f"{before}what would help", ("change", "saves", "of the step"), changes))
        if words:
            panels.append(
                Words(f"{before}in words", tuple(("plain", line) for line in describe(found)), preformatted=True)
            )
        return panels

    def limits(self, name: str) -> str:
        busy: dict[str, float] = {}
        for (_, lane), took in self.predicted.busy.items():
            busy[lane] = max(busy.get(lane, 0.0), took)
        lane = max(busy, key=lambda one: busy[one])
        share = f"{busy[lane] / self.seconds:.1%} of {time(self.seconds)}"
        return f"{name}: {lane} is the busiest, {share}. The estimate: {self.witness}."

    def late(self) -> str:
        idle = {device: self.predicted.idle(device) for device in self.plan.graph.devices}
        worst = max(idle, key=lambda device: idle[device])
        ops = self.plan.graph.ops
        last = ops[int(np.argmax(self.predicted.end))]
        waits = f"Device {worst} waits most: idle {time(idle[worst])} of {time(self.seconds)}."
        return f"{last.key} of device {last.device} ends last. {waits}"

    def help(self) -> str:
        if self.explanation is None or not self.explanation.changes:
            return f"Nothing that was tried helps; the estimate is {time(self.estimate)}."
        return "; ".join(f"if {one.what}, {time(one.saving)} less" for one in self.explanation.changes[:3]) + "."


def _compared(steps: Sequence[_Step], names: Sequence[str]) -> Grid:
    slowest = max(step.seconds for step in steps)
    order = sorted(range(len(steps)), key=lambda at: steps[at].seconds)
    rows = []
    for at in order:
        step = steps[at]
        peak = max(step.predicted.peak.values(), default=0.0)
        measured = max((end for _, end in step.measured.values()), default=0.0) - step._first()
        rows.append(
            (
                names[at],
                time(step.seconds),
                time(measured) if step.measured else "-",
                time(step.estimate),
                f"{step.estimate / step.seconds:.1%}",
                time(step.exposed),
                size_name(peak),
                f"{slowest / step.seconds:.3f}",
            )
        )
    columns = (
        "policy",
        "step, predicted",
        "measured",
        "estimate",
        "efficiency",
        "exposed",
        "memory",
        "over the slowest",
    )
    return Grid("policies compared", columns, tuple(rows), best=(0,))


def _memory(steps: Sequence[_Step], names: Sequence[str]) -> Curves:
    series = []
    for step, name in zip(steps, names, strict=True):
        found = step.memory()
        if len(steps) > 1 and found:
            found = [max(found, key=lambda one: float(one[2].max()))]
        for device, moments, level in found[:8]:
            axis, first = np.unique(moments, return_index=True)
            ends = np.r_[first[1:], len(moments)] - 1
            series.append(
                Series(f"{name}, device {device}" if len(steps) > 1 else f"device {device}", axis, level[ends])
            )
    words = (
        "Activations, gathered weights and sharded gradients that Ops hold; of several policies, the fullest device."
    )
    return Curves(
        "memory over time", ("time", "seconds"), ("bytes held", "bytes"), tuple(series), stepped=True, words=words
    )
