"""One lab from beginning to end: `with Lab(spec) as lab:` builds it, and leaves nothing behind. What a lab that was
killed has left goes first.

namespaces ─▶ wires ─▶ addresses, routes, rates ─▶ ceilings ─▶ ranks, faults on schedule ─▶ removal
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from syntony.collectives.aggregators import VARIABLE
from syntony.lab import runs
from syntony.lab.aggregators import services, ways
from syntony.lab.faults import Change, Fault, changes, rate_under
from syntony.lab.lab_spec import LabError, LabSpec
from syntony.lab.processes import Task, environment_of, require_command, run_tasks
from syntony.lab.wires import kernel, network
from syntony.lab.wires.ceiling import Ceiling, measure
from syntony.lab.wires.delay import DelayFigures, DelayLine
from syntony.lab.wires.routes import routes_of


class Lab:
    """A lab that exists while the context lasts. Raises LabError, after removing everything, if it cannot be built."""

    def __init__(self, spec: LabSpec, ecmp: bool = False) -> None:
        kernel.require_tools()
        self.spec = spec
        self.paths = "ECMP: connections are hashed over all shortest paths" if ecmp else "one shortest path per pair"
        self.delay_figures: DelayFigures | None = None  # known once the lab has been removed
        self._routes = routes_of(spec, ecmp)
        self._run: runs.Run | None = None
        self._delay_line: DelayLine | None = None

    def __enter__(self) -> Lab:
        with suppress(LabError):  # this lab does not need it; `syntony lab clean` tells what is wrong
            runs.remove_left_behind()
        self._run = runs.Run(self.spec.topology.name)
        try:
            network.make_machines(self.spec, self.namespace)
            network.make_cables(self.spec, self.namespace)
            if any(wire.by_process for wire in self.spec.wires):
                self._delay_line = DelayLine(self.spec, self.namespace)
            network.configure(self.spec, self._routes, self.namespace)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    @property
    def id(self) -> str:
        assert self._run is not None, "the lab is not built"
        return self._run.id

    def namespace(self, machine: str) -> str:
        """The name of the namespace of the machine with that name."""
        assert self._run is not None, "the lab is not built"
        return self._run.namespace(machine)

    def ceilings(self) -> tuple[Ceiling, ...]:
        """Measures the wires; takes some seconds."""
        return measure(self.spec, self.namespace)

    def run(
        self,
        command: Sequence[str],
        faults: Sequence[Fault] = (),
        write: Callable[[bytes], object] | None = None,
        colours: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Runs `command` once per rank, with `faults` timed from its start, and returns the exit code.

        The exit code is 0, or that of the first rank that failed. `write` gets the ranks' output in whole lines
        (default: this process's stdout); `environment` is what they inherit (default: this process's).
        """
        require_command(command)
        inherited = os.environ if environment is None else environment
        lasting: set[int] = set()

        def apply(change: Change) -> None:
            (lasting.add if change.begins else lasting.discard)(change.fault)
            self._apply(faults, lasting, faults[change.fault])

        way = ways(self.spec)
        secret = {"SYNTONY_SECRET": secrets.token_hex()}
        adding = [
            Task(switch.name, self.namespace(switch.name), command, {**inherited, **secret}, service=True)
            for switch, command in services(self.spec)
        ]
        ranks = [
            Task(
                f"rank {rank}",
                self.namespace(self.spec.host_of[rank].name),
                tuple(command),
                environment_of(self.spec, rank, inherited) | secret | ({VARIABLE: way[rank]} if way else {}),
            )
            for rank in range(self.spec.topology.ranks)
        ]
        try:
            return run_tasks([*adding, *ranks], write or _write_to_stdout, colours, changes(faults), apply)
        finally:
            for number in list(lasting):
                lasting.discard(number)
                self._apply(faults, lasting, faults[number])

    def _apply(self, faults: Sequence[Fault], lasting: set[int], changed: Fault) -> None:
        """Sets the wires of `changed` to the rates that the active faults leave."""
        lines: dict[int, list[str]] = {}
        for wire in changed.wires:
            hit = [faults[number] for number in lasting if wire in faults[number].wires]
            for end in wire.ends:
                lines.setdefault(end.machine, []).append(network.shape_line(wire, rate_under(end.rate, hit)))
        for machine, batch in lines.items():
            kernel.tc(self.namespace(self.spec.machines[machine].name), batch)

    def _remove(self) -> None:
        """Removes everything, even if signals arrive meanwhile."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        try:
            if self._delay_line is not None:
                self.delay_figures = self._delay_line.close()
                self._delay_line = None
        finally:
            try:
                if self._run is not None:
                    self._run.close()
                    self._run = None
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _write_to_stdout(lines: bytes) -> None:
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()
