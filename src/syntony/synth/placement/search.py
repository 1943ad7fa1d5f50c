"""Search: every placement with every program, timed by the simulator, all groups at once.

A step runs at once in all groups of the placement, which share wires; steps follow one another. A step is a ring (or,
for reduce and broadcast, a chain) through its ranks in order, as in a collective library; equal steps are simulated
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syntony.synth.placement.matrices import Axis, Placement, placements
from syntony.synth.placement.reductions import Program, Step, programs
from syntony.synth.symmetry.levels import Levels
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.patterns import ring
from syntony.synth.traffic.run import run
from syntony.topologies.topology import Topology


@dataclass(frozen=True)
class Candidate:
    """A placement with the program by which each of its groups reduces; `default` is one all_reduce over the group."""

    placement: Placement
    program: Program
    seconds: float
    default: float
    programs: int

    @property
    def speedup(self) -> float:
        """Over one all_reduce."""
        return self.default / self.seconds if self.seconds else 1.0


class Timer:
    """Simulated seconds of steps of `size` bytes per rank."""

    def __init__(self, topology: Topology, size: int) -> None:
        self._topology, self._size = topology, size
        self._known: dict[tuple[str, float, int, bytes], float] = {}

    def seconds(self, program: Program, groups: NDArray[np.int64]) -> float:
        """Time of the program in all groups at once."""
        return sum(self._step(step, np.concatenate([step.groups(group) for group in groups])) for step in program)

    def _step(self, step: Step, groups: NDArray[np.int64]) -> float:
        key = (step.collective, step.share, groups.shape[1], np.ascontiguousarray(groups).tobytes())
        if key not in self._known:
            size, count = self._size * step.share, groups.shape[1]
            make = {"all_reduce": ring.two_rounds, "broadcast": ring.chain, "reduce": ring.chain}
            messages = make.get(step.collective, ring.one_round)(count, size)
            turned = groups[:, ::-1] if step.collective == "reduce" else groups
            jobs = [Job(str(number), tuple(group), messages) for number, group in enumerate(turned.tolist())]
            self._known[key] = run(self._topology, jobs, Choice("spray")).seconds
        return self._known[key]


def search(
    topology: Topology, levels: Levels, axes: Sequence[Axis], reduced: Sequence[str], size: int
) -> list[Candidate]:
    """The best program of every placement, the fastest first. Raises UserError for groups that are too large."""
    timer = Timer(topology, size)
    candidates = []
    for placement in placements(levels, axes):
        groups = placement.groups(reduced)
        found = [(timer.seconds(program, groups), program) for program in programs(groups.shape[1:])]
        everyone = Step("all_reduce", tuple(range(groups.ndim - 1)), False, 1.0)
        seconds, program = min(found, key=lambda one: (one[0], len(one[1])))
        candidates.append(Candidate(placement, program, seconds, timer.seconds((everyone,), groups), len(found)))
    return sorted(candidates, key=lambda candidate: candidate.seconds)
