"""Simulated seconds of long messages, without a simulation of all of their slices.

A lane's turn i is for slice i of step 0, slice i - 1 of step 1, and so on (simulation/moves.py). A schedule of S steps
that is cut into at least S slices therefore has turns that are all alike, and every further slice takes as long as the
one before:

    seconds                           *  all slices: on the line
            |                *
            |          *  *      S, 3/2 S, 2 S, .. slices, each as long as it will be
            |    *
            |  *                 fewer: the pipeline is never full, and each slice takes longer (or shorter)
            +--------------------------- slices

The line through two points says what all slices take; a third point says whether it is one. Where lanes overtake each
other on shared links, points may lie beside it: then more slices are simulated.

Schedules of more steps than slices have no such line. They are simulated with longer slices, each time half as long:
time falls about linearly with the length, by what the pipeline needs to fill. With few slices and many steps it does
not, so two lines must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf

from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.synth.simulation.schedule_simulator import simulate

AGREED = 1e-3
"""Lines that differ by at most this part say what all slices take."""
LEAST_SLICES = 16
"""The fewest slices from which a line begins, however few the steps."""
HIDDEN = 0.5
"""What all slices but the first take, as a part of the whole, before a line is believed."""
TURNS = 1 << 20
"""Messages that may be simulated to find a line, or all slices where these are fewer: without them, next to nothing is
known of a schedule that has fewer steps than slices."""
STRETCHED = 0.05
"""How far lines through simulations of longer slices are off, as a part, if two of them differ by no more: seldom
more."""
PATIENCE = 8
"""Until they do, this many times as many messages are simulated, or TURNS."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of a schedule in the CPU executor's slices.

    error    they are off by at most about this part: 0 for a whole simulation, infinite if nothing is known
    longest  seconds if the slices are as long as those that were simulated: hardly ever too few
    """

    seconds: float
    error: float
    longest: float

    @property
    def sure(self) -> bool:
        return self.error <= AGREED


def estimate(schedule: Schedule, size: int, most: int) -> Estimate:
    """From simulations of about `most` messages at most, or TURNS."""
    wanted, rows = executor_slice(schedule.collective.ranks), len(schedule.transfers)
    largest = int(schedule.collective.chunks.weight.max(initial=0)) * schedule.collective.unit * size
    slices = max(1, ceil(largest / wanted))
    full = max(LEAST_SLICES, int(schedule.transfers.step.max(initial=0)) + 1)
    turning, line = slices > 2 * full, 9 * full * rows // 2
    turns = max(most, TURNS)
    if slices * rows <= most or (turning and slices * rows <= min(line, turns)):
        seconds = simulate(schedule, size, wanted).seconds
        return Estimate(seconds, 0.0, seconds)
    if turning and line <= turns:
        return _along_a_line(schedule, size, slices, full, most)
    return _of_longer_slices(schedule, size, slices, largest, most)


def _of_longer_slices(schedule: Schedule, size: int, slices: int, largest: Fraction, most: int) -> Estimate:
    """The seconds of `slices`, from fewer; `largest`: bytes of the heaviest chunk."""
    wanted, rows = executor_slice(schedule.collective.ranks), len(schedule.transfers)
    limit = max(most, min(PATIENCE * most, TURNS))
    number, points, lines = min(slices, max(1, most // (4 * rows))), [], []
    while True:
        length = ceil(largest / number) if number < slices else wanted
        found = simulate(schedule, size, length)
        if number == slices:
            return Estimate(found.seconds, 0.0, found.seconds)
        points.append((length, found.seconds))
        if len(points) > 1:
            (longer, before), (length, seconds) = points[-2:]
            line = seconds - (before - seconds) / (longer - length) * (length - wanted)
            lines.append(max(line, float(found.busy.max(initial=0.0))))
        agreed = len(lines) > 1 and abs(lines[-1] / lines[-2] - 1) <= STRETCHED
        if agreed or min(2 * number, slices) * rows > limit:
            return Estimate(lines[-1] if lines else found.seconds, STRETCHED if agreed else inf, found.seconds)
        number = min(2 * number, slices)


def _along_a_line(schedule: Schedule, size: int, slices: int, full: int, most: int) -> Estimate:
    """The seconds of `slices`, from `full` and more."""
    wanted = executor_slice(schedule.collective.ranks)
    points: list[tuple[int, float]] = []
    lines: list[float] = []
    for number in _doubled(full):
        found = simulate(schedule, max(1, size * number // slices), wanted)
        if points:
            slope = (found.seconds - points[-1][1]) / (number - points[-1][0])
            lines.append(found.seconds + slope * (slices - number))
        points.append((number, found.seconds))
        if len(lines) < 2:
            continue
        error = abs(lines[-1] / lines[-2] - 1)
        # Slices that take less than the busiest link needs for their bytes will not go on so; and those of a long path
        # may hide others that take longer.
        if slope * number < max((1 - AGREED) * float(found.busy.max(initial=0.0)), HIDDEN * found.seconds):
            error = inf
        if error <= AGREED or 2 * number * len(schedule.transfers) > most or 2 * number > slices:
            break
    return Estimate(lines[-1], error if error <= AGREED else 2 * error, found.seconds * slices / number)


def _doubled(full: int) -> Iterator[int]:
    """`full`, one and a half times as many, and then powers of two times."""
    yield from (full, full + full // 2)
    while True:
        full *= 2
        yield full
