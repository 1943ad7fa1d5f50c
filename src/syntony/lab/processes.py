"""The ranks as processes: each in its host's namespace, output lines prefixed with its name, all ended if one fails.

After a failure the other ranks have `GRACE` seconds to notice and report what they saw; then they are stopped.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from syntony.lab.faults import Change
from syntony.lab.lab_spec import LabError, LabSpec
from syntony.lab.wires.network import device_of

GRACE = 10.0
"""Seconds that the others have after the first failure."""
MASTER_PORT = 29500
"""Any port is free in a separate namespace."""

_FAREWELL = 3.0  # seconds between SIGTERM and SIGKILL
_PATIENCE = 30.0  # seconds in which a service must print its first line
_LINGER = 0.5  # seconds for output of processes that a rank has left behind
_PR_SET_PDEATHSIG = 1
_LAUNCHERS = ("OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_", "SLURM_", "SYNTONY_HOST")
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)


@dataclass(frozen=True)
class Task:
    """One process to start. A `service` starts before the ranks, which wait for its first line, and must not end
    before them."""

    name: str
    namespace: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    service: bool = False


def environment_of(spec: LabSpec, rank: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a rank: `inherited` without the variables of other launchers, plus its own.

    SYNTONY_HOST is a name for messages, equal only for the ranks of one host. SYNTONY_NETWORK keeps what is tuned here
    from other labs and from the real network. GLOO_SOCKET_IFNAME is set because gloo looks up its own address by the
    host's name, and namespaces have none.
    """
    host = spec.host_of[rank]
    told = {
        "RANK": str(rank),
        "WORLD_SIZE": str(spec.topology.ranks),
        "LOCAL_RANK": str(host.ranks.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(host.ranks)),
        "MASTER_ADDR": spec.host_of[0].ports[0].address,
        "MASTER_PORT": str(MASTER_PORT),
        "SYNTONY_HOST": host.name,
        "SYNTONY_NETWORK": f"lab {hashlib.sha256(repr((spec.machines, spec.wires)).encode()).hexdigest()[:16]}",
        "PYTHONUNBUFFERED": "1",
    }
    if device := device_of(spec, host):
        told["GLOO_SOCKET_IFNAME"] = device
    kept = {name: value for name, value in inherited.items() if not name.startswith(_LAUNCHERS)}
    return {"OMP_NUM_THREADS": "1", **kept, **told}


def require_command(command: Sequence[str]) -> None:
    """Raises LabError if there is no such program."""
    if shutil.which(command[0]) is None:
        raise LabError(f"there is no command {command[0]!r} to run")


def run_tasks(
    tasks: Iterable[Task],
    write: Callable[[bytes], object],
    colours: bool,
    changes: Iterator[Change],
    apply: Callable[[Change], None],
) -> int:
    """Starts the tasks and returns when they have ended: 0, or the exit code of the first that failed.

    `write` gets whole lines. `apply` is called for each of `changes` when it is due. A task killed by a signal has the
    exit code 128 plus the signal's number.
    """
    tasks = list(tasks)
    crew = _Crew(write, colours, max(len(task.name) for task in tasks))
    try:
        crew.start([task for task in tasks if task.service])
        crew.await_services()
        crew.start([task for task in tasks if not task.service])
        return crew.serve(changes, apply)
    finally:
        crew.stop()


@dataclass
class _Member:
    task: Task
    process: subprocess.Popen[bytes]
    pidfd: int
    prefix: bytes
    rest: dict[IO[bytes], bytes] = field(default_factory=dict)  # the incomplete last line, by open pipe
    spoken: bool = False
    code: int | None = None


class _Crew:
    def __init__(self, write: Callable[[bytes], object], colours: bool, width: int) -> None:
        self._write = write
        self._colours = colours
        self._width = width
        self._members: list[_Member] = []
        self._selector = selectors.DefaultSelector()

    def start(self, tasks: list[Task]) -> None:
        libc = ctypes.CDLL(None)

        def end_with_the_lab() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        for task in tasks:
            process = subprocess.Popen(
                ["ip", "netns", "exec", task.namespace, *task.command],
                env=task.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=end_with_the_lab,
            )
            prefix = f"{task.name:>{self._width}} | "
            if self._colours:
                prefix = f"\x1b[{_COLOURS[len(self._members) % len(_COLOURS)]}m{prefix}\x1b[0m"
            member = _Member(task, process, os.pidfd_open(process.pid), prefix.encode())
            self._members.append(member)
            self._selector.register(member.pidfd, selectors.EVENT_READ, (member, None))
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
                member.rest[pipe] = b""
                self._selector.register(pipe, selectors.EVENT_READ, (member, pipe))

    def await_services(self) -> None:
        """Waits until each has printed its first line. Raises LabError naming one that ends or stays silent."""
        deadline = time.monotonic() + _PATIENCE
        while silent := [member for member in self._members if not member.spoken]:
            ended = [member for member in silent if member.code is not None]
            left = deadline - time.monotonic()
            if ended or left <= 0:
                how = f"ended with exit code {ended[0].code}" if ended else f"said nothing for {_PATIENCE:g} s"
                raise LabError(f"the process of switch {(ended or silent)[0].task.name} {how}; nothing has been run")
            self._listen(left)

    def serve(self, changes: Iterator[Change], apply: Callable[[Change], None]) -> int:
        start = time.monotonic()
        change = next(changes, None)
        stop_at: float | None = None
        first = 0
        early = [member for member in self._members if member.code is not None]  # while their first lines were awaited
        while any(member.code is None and not member.task.service for member in self._members):
            now = time.monotonic()
            if stop_at is not None and now >= stop_at:
                break
            while change is not None and now - start >= change.seconds:
                apply(change)
                change = next(changes, None)
            wakes = [] if change is None else [start + change.seconds - now]
            wakes += [] if stop_at is None else [stop_at - now]
            ended, early = early or self._listen(min(wakes, default=None)), []
            for member in ended:
                wrong = member.code if not member.task.service else member.code or 1
                if wrong and not first:
                    first = wrong
                    stop_at = time.monotonic() + GRACE
                    self._say(member, f"ended with exit code {member.code}; the others have {GRACE:g} s to end, too")
        return first

    def _listen(self, timeout: float | None) -> list[_Member]:
        """Forwards pending output, waiting at most `timeout` seconds; returns the members that have ended."""
        ended = []
        for key, _ in self._selector.select(timeout):
            member, pipe = key.data
            if pipe is not None:
                self._pass_on(member, pipe)
                continue
            self._selector.unregister(member.pidfd)
            os.close(member.pidfd)
            code = member.process.wait()
            member.code = code if code >= 0 else 128 - code
            ended.append(member)
        return ended

    def _pass_on(self, member: _Member, pipe: IO[bytes]) -> None:
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return
        *lines, rest = (member.rest[pipe] + data).split(b"\n")
        if not data and rest:
            lines.append(rest)
        for line in lines:
            member.spoken = True
            self._write(member.prefix + line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n")
        if data:
            member.rest[pipe] = rest
        else:
            del member.rest[pipe]
            self._selector.unregister(pipe)
            pipe.close()

    def _say(self, member: _Member, sentence: str) -> None:
        self._write(member.prefix + b"(lab) " + sentence.encode() + b"\n")

    def stop(self) -> None:
        """Kills all running members with their sessions, and forwards their last output."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for member in self._members:
                if member.code is None:
                    with suppress(ProcessLookupError):
                        os.killpg(member.process.pid, signal_number)
            deadline = time.monotonic() + _FAREWELL
            while any(member.code is None for member in self._members) and time.monotonic() < deadline:
                self._listen(max(0.0, deadline - time.monotonic()))
        deadline = time.monotonic() + _LINGER
        while any(member.rest for member in self._members) and time.monotonic() < deadline:
            self._listen(max(0.0, deadline - time.monotonic()))
        self._selector.close()
