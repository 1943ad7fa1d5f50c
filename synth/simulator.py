"""The simulator of Schedules; that of Programs is synth/program_simulator.py.

    lane 0 -> 1   [== chunk 0 ==][== chunk 4 ==]
                                ·· alpha ··▶ 1 holds chunk 0
    lane 1 -> 2                              [== chunk 0 ==]

A transfer starts when its source holds its value and its predecessor on the lane (same source, destination and route)
has put its last byte on the wire. What happens on the wires is in synth/wires.py. Adding costs nothing; steps are no
barriers.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from synth.bounds.throughput import bounds_of
from synth.schedule import Schedule
from synth.simulation import Messages, Simulation, StuckError, busy_seconds
from synth.wires import Wires


def simulate(schedule: Schedule, size: int) -> Simulation:
    """Simulates `size` bytes (as `Collective` defines size). Raises StuckError where a transfer can never start.

    Bounds are the schedule's own, or computed where it has none.
    """
    whole = schedule.expand()
    bounds = whole.bounds or bounds_of(whole.topology, whole.collective)
    run = _Run(whole, size)
    run.finish()
    count = len(whole.transfers)
    route = np.asarray(run.route, np.int64)
    carried = np.zeros(len(run.routes))
    np.add.at(carried, route, run.bytes)
    messages = Messages(np.arange(count), np.zeros(count, np.int64), route, run.start, run.left, run.arrival)
    return Simulation(
        whole,
        whole.topology,
        whole.collective,
        size,
        float(run.arrival.max(initial=0.0)),
        bounds.seconds(size),
        run.routes,
        messages,
        busy_seconds(whole.topology, run.routes, carried),
    )


class _Run:
    """One simulation: the state between two events."""

    def __init__(self, schedule: Schedule, size: int) -> None:
        transfers, values, collective = schedule.transfers, schedule.values, schedule.collective
        count = len(transfers)
        self._rows = transfers.rows()
        self._values = values
        shares = [float(size * collective.share(chunk)) for chunk in range(len(collective.chunks))]
        self.bytes = np.asarray(shares)[values.chunk[transfers.value]]
        numbers: dict[tuple[int, ...], int] = {}
        self.route = [numbers.setdefault(row.route, len(numbers)) for row in self._rows]
        self.routes = list(numbers)
        self.start, self.left, self.arrival = (np.full(count, np.inf) for _ in range(3))
        self._wires = Wires(schedule.topology, self.routes)

        self._lanes: dict[tuple[int, int, tuple[int, ...]], deque[int]] = {}
        for number in sorted(range(count), key=lambda number: (self._rows[number].step, number)):
            row = self._rows[number]
            self._lanes.setdefault((row.src, row.dst, row.route), deque()).append(number)
        self._lane_idle = dict.fromkeys(self._lanes, True)

        self._held: set[tuple[int, int]] = set()
        self._lanes_waiting: dict[tuple[int, int], list[tuple[int, int, tuple[int, ...]]]] = {}
        self._brought: set[tuple[int, int, int]] = set()
        self._sums_with: dict[tuple[int, int], set[int]] = {}
        for row in self._rows:
            if row.value != row.result:
                for operand in values.operands(row.result):
                    self._sums_with.setdefault((row.dst, operand), set()).add(row.result)
        for value, rank in enumerate(values.rank.tolist()):
            if rank >= 0 and rank in collective.pre(int(values.chunk[value])):
                self._hold(rank, value)

    def finish(self) -> None:
        """Runs to the end."""
        for lane in self._lanes:
            self._advance(lane)
        while events := self._wires.advance():
            for arrived, number in events:
                if arrived:
                    self._arrive(number)
                else:
                    self._leave(number)
        for (src, dst, _), queue in self._lanes.items():
            if queue:
                row = self._rows[queue[0]]
                raise StuckError(
                    f"transfer {queue[0]} (value {row.value}, rank {src} -> {dst}, step {row.step}) never starts: "
                    f"rank {src} never holds value {row.value}"
                )

    def _advance(self, lane: tuple[int, int, tuple[int, ...]]) -> None:
        """Starts what the lane can start now."""
        queue = self._lanes[lane]
        if not queue or not self._lane_idle[lane]:
            return
        row = self._rows[queue[0]]
        if (row.src, row.value) not in self._held:
            self._lanes_waiting.setdefault((row.src, row.value), []).append(lane)
            return
        number = queue.popleft()
        self.start[number] = self._wires.now
        self._lane_idle[lane] = False
        self._wires.send(number, self.route[number], float(self.bytes[number]))

    def _leave(self, number: int) -> None:
        row = self._rows[number]
        self.left[number] = self._wires.now
        self._lane_idle[row.src, row.dst, row.route] = True
        self._advance((row.src, row.dst, row.route))

    def _arrive(self, number: int) -> None:
        row = self._rows[number]
        self.arrival[number] = self._wires.now
        if row.value == row.result:
            self._hold(row.dst, row.value)
        else:
            self._brought.add((row.dst, row.result, row.value))
            self._try_sum(row.dst, row.result)

    def _hold(self, rank: int, value: int) -> None:
        if (rank, value) in self._held:
            return
        self._held.add((rank, value))
        for lane in self._lanes_waiting.pop((rank, value), ()):
            self._advance(lane)
        for total in sorted(self._sums_with.get((rank, value), ())):
            self._try_sum(rank, total)

    def _try_sum(self, rank: int, total: int) -> None:
        operands = self._values.operands(total)
        brought = {operand for operand in operands if (rank, total, operand) in self._brought}
        if brought and all(operand in brought or (rank, operand) in self._held for operand in operands):
            self._hold(rank, total)
