"""Contenders take turns: the time of a step of each, on the same ranks and in the same minutes.

    round 1:  A A A A A | B B B B B | C C ..      a block of steps each; the first step of a block is not counted,
    round 2:  A A A A A | B B B B B | C C ..      because it overlaps with the end of the block before it

A rank of a contest is started in the lab, or on one host by syntony.collectives.bootstrap.launch. Its work is given as
JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from syntony.lab.lab import Lab
from syntony.lab.lab_spec import LabError, LabSpec


@dataclass(frozen=True)
class Entry:
    """A contender: who it is (a key of `contenders.MAKERS`), and what it is made with."""

    label: str
    maker: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What every rank is given. `steps` of a block, the first of which is not counted; `rounds` of blocks."""

    entries: tuple[Entry, ...]
    steps: int
    rounds: int


@dataclass(frozen=True)
class Timed:
    """Seconds from each step's end on the last rank to the next one's; and what else the contender has to tell, beside
    `whole`, seconds of a block with finish() by step (the least on rank 0), and `sent`, bytes that its host sent by
    step."""

    label: str
    steps: tuple[float, ...]
    told: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        return median(self.steps)

    @property
    def name(self) -> str:
        """The label; of a search also what it has found."""
        return f"{self.label} ({self.told['policy']})" if "search" in self.label else self.label


class Contender(Protocol):
    """One rank's part."""

    def step(self) -> None:
        """One training step. What it leaves unfinished, the next step or finish() ends."""

    def finish(self) -> Mapping[str, Any]:
        """Ends what is under way, checks the result (AssertionError), and says what the table wants to know."""

    def close(self) -> None:
        """Gives everything back."""


def ends_of(contender: Contender, steps: int, clock: Callable[[], float] = time.monotonic) -> list[float]:
    """When each of so many steps had ended, in seconds of a clock that all of this machine's processes share.

    A step has ended when it has on the last rank: where steps overlap, ranks end them by turns sooner and later, and
    the largest of the ranks' own durations would be longer than a step is.
    """
    ends = []
    for _ in range(steps):
        contender.step()
        ends.append(clock())
    return ends


def hold(spec: LabSpec, work: Work) -> list[Timed]:
    """The contest on a rank per host of a lab. Raises LabError where a rank fails or a result is wrong."""
    with tempfile.TemporaryDirectory(prefix="syntony-contest-") as folder:
        given, results = Path(folder, "work"), Path(folder, "results")
        given.write_text(json.dumps(asdict(work)))
        said: list[bytes] = []
        rank = [sys.executable, "-m", "syntony.benchmarks.overlap.contenders.rank", str(given), str(results)]
        with Lab(spec) as lab:
            code = lab.run(rank, write=said.append)
        if code:
            raise LabError(f"{spec.topology.name}: the ranks failed\n" + b"".join(said).decode(errors="replace"))
        return [Timed(**timed) for timed in json.loads(results.read_text())]


def work_of(text: str) -> Work:
    """The inverse of what hold() writes."""
    given = json.loads(text)
    return Work(tuple(Entry(**entry) for entry in given["entries"]), given["steps"], given["rounds"])


def best(timed: Sequence[Timed], *labels: str) -> Timed:
    """The fastest of those whose label begins with one of `labels`."""
    return min((one for one in timed if one.label.startswith(labels)), key=lambda one: one.seconds)
