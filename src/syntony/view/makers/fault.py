"""A file that the checker refuses or that cannot be read: the first fault in place, a deadlock as a cycle."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from syntony.base.wording import counted
from syntony.synth.checker import Verdict
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.groups import expand
from syntony.view.makers.moving import COLOURS
from syntony.view.makers.network import drawing_of
from syntony.view.makers.program import listing
from syntony.view.models import FAULT, Circle, Grid, Highlight, Panel, Question, View, Waiter, Words, timeline


def refused(content: Schedule | Program | None, verdict: Verdict, file: str, kind: str) -> View:
    """A readable file whose schedule or program is wrong."""
    fault = verdict.fault or "the checker refuses it"
    panels: list[Panel] = []
    questions = [Question("What is wrong?", fault, "the first fault")]
    facts = [
        (name, str(value))
        for name, value in (
            ("rank", verdict.agent),
            ("lane", verdict.lane),
            ("instruction", verdict.instruction),
            ("step", verdict.step),
            ("transfer", verdict.transfer),
            ("chunk", verdict.chunk),
        )
        if value is not None
    ]
    if verdict.circle:
        waiters = tuple(
            Waiter(f"rank {one.agent} lane {one.lane}", one.instruction, one.why, one.done, one.total)
            for one in verdict.circle
        )
        panels.append(Circle("who waits for whom", waiters))
        around = " → ".join(f"rank {one.agent}" for one in (*verdict.circle[:12], verdict.circle[0]))
        questions.append(
            Question(
                "Who waits for whom?",
                f"In a circle: {around}. Each waits for the next, so none goes on.",
                "who waits for whom",
            )
        )
    panels.append(Words("the first fault", (("bad", fault), *(("plain", hint) for hint in _hints(fault)))))
    if isinstance(content, Program):
        place = (verdict.agent, verdict.lane, verdict.instruction)
        panels.append(listing(content, None if None in place else place))  # type: ignore[arg-type]
        if verdict.timeline:
            panels.append(Words("all lanes that wait", tuple(("plain", line) for line in verdict.timeline), True))
    elif isinstance(content, Schedule):
        panels += _in_schedule(content, verdict)
    name = (
        content.name
        if isinstance(content, Program)
        else f"{content.collective.kind} on {content.topology.name}"
        if content
        else file
    )
    return View(
        f"{name}: refused", f"invalid {kind}", file, fault, tuple(panels), "bad", tuple(facts), tuple(questions)
    )


def unreadable(file: str, sentence: str) -> View:
    """A file of a known kind that is malformed: the place of the error in the text."""
    panels: list[Panel] = [Words("the first fault", (("bad", sentence),))]
    place = re.search(r"line (\d+)", sentence) or re.search(re.escape(file) + r":(\d+)", sentence)
    if place:
        try:
            with Path(file).open(encoding="utf-8", errors="replace") as text:
                lines = text.read(1 << 22).split("\n")
        except OSError:
            lines = []
        at = int(place[1]) - 1
        if 0 <= at < len(lines):
            first = max(0, at - 12)
            shown = [
                (
                    "bad" if number == at else "plain",
                    f"{number + 1:6d}  {lines[number][:240]}{'      <-- here' if number == at else ''}",
                )
                for number in range(first, min(len(lines), at + 13))
            ]
            panels.append(Words("its place", tuple(shown), True))  # type: ignore[arg-type]
    return View(
        f"{file}: cannot be read",
        "invalid",
        file,
        sentence,
        tuple(panels),
        "bad",
        questions=(Question("What is wrong?", sentence, "the first fault"),),
    )


_HINTS = (
    ("waits for room in", "More room would end this wait: a larger FIFO depth, or an earlier receive."),
    ("at any FIFO depth", "No FIFO depth helps: the order of the instructions itself closes the circle."),
    ("does not hold", "The value must arrive, by a transfer of a smaller step, before it can be sent on."),
    ("nobody receives", "Add the receive, or remove the send."),
    ("nobody sends", "Add the send, or remove the receive."),
)


def _hints(fault: str) -> list[str]:
    return [hint for words, hint in _HINTS if words in fault]


def _in_schedule(schedule: Schedule, verdict: Verdict) -> list[Panel]:
    """The transfers by step with the faulty one marked, and the network with its route."""
    try:
        whole = expand(schedule)
    except ValueError:
        whole = replace(schedule, symmetry=())
    moved, values = whole.transfers, whole.values
    if len(moved) > 200_000 or (len(moved) and moved.value.max() >= len(values)):
        return []
    agents = len(whole.agents)
    bad = np.zeros(len(moved), bool)
    if verdict.transfer is not None and verdict.transfer < len(moved):
        bad[verdict.transfer] = True
    chunk = values.chunk[moved.value]
    names = [whole.name_of(agent) for agent in range(agents)]
    inside = (moved.src >= 0) & (moved.src < agents) & (moved.dst >= 0) & (moved.dst < agents)
    lanes = timeline(
        "transfers by step",
        [f"{name} sends" for name in names],
        np.where(inside, moved.src, 0).astype(np.int32),
        moved.step.astype(np.float64) * 1e-6,
        (moved.step.astype(np.float64) + 0.94) * 1e-6,
        chunk % COLOURS,
        chunk,
        [f"chunk {number}" for number in range(int(chunk.max(initial=0)) + 1)],
        [f"chunks {first}, {first + COLOURS}, .." for first in range(COLOURS)],
        mark=np.where(bad, FAULT, 0),
        details=[
            f"transfer {at}: chunk {one}, {names[src]} → {names[dst]}, step {step}"
            for at, (one, src, dst, step) in enumerate(
                zip(
                    chunk.tolist(),
                    np.where(inside, moved.src, 0).tolist(),
                    np.where(inside, moved.dst, 0).tolist(),
                    moved.step.tolist(),
                    strict=True,
                )
            )
        ],
        clock=False,
        words="A microsecond of the axis is a step. The faulty transfer is framed.",
    )
    routes = tuple(
        link
        for at in np.flatnonzero(bad).tolist()
        for link in whole.transfers.route(at)
        if link < len(schedule.topology.links)
    )
    nodes = () if verdict.agent is None else (whole.agents[verdict.agent],)
    highlight = Highlight("the fault", verdict.fault or "", nodes, routes)
    rows = tuple(
        (
            str(at),
            str(int(moved.step[at])),
            f"chunk {int(chunk[at])}",
            names[int(moved.src[at])],
            names[int(moved.dst[at])],
        )
        for at in np.flatnonzero(inside)[:500].tolist()
    )
    marked = tuple(
        at for at, row in enumerate(rows) if verdict.transfer is not None and row[0] == str(verdict.transfer)
    )
    return [
        drawing_of(schedule.topology, "where it happens", [highlight]),
        lanes,
        Grid(
            f"transfers ({counted(len(moved), 'row')})", ("transfer", "step", "chunk", "from", "to"), rows, bad=marked
        ),
    ]
