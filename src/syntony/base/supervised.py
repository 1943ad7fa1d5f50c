"""Runs a command's work in a child process, so that its limits hold whatever a solver does.

    parent   waits; ends the child at the time limit, on Ctrl-C, or if it takes too much memory; reports why
    child    does the work, and records the best answer that it has so far

Solvers are third-party C++: some check no clock for minutes, Python handles Ctrl-C only when they return, and a failed
allocation would abort them midway. So no allocation is refused; a process that takes too much is ended. Files are
written beside their place and then renamed, so none is left incomplete.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from syntony.base.command import UserError
from syntony.base.stopping import Stopped

GRACE = 2.0
"""Seconds beyond the time limit for the work after a search: its proof, its file."""
_WATCH = 0.05
"""Seconds between two checks of the memory."""
_PARTING = 0.5
"""Seconds that an interrupted child has to clean up."""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


@dataclass(frozen=True)
class Standby:
    """The output in case the work must be ended: recorded by the child, printed by the parent.

    notes  a file in memory, one line per answer; None in an unsupervised process
    """

    notes: int | None = None

    def answer(self, output: str, note: str) -> None:
        """From now on, if ended, the command prints `output` on stdout, and "stopped after ..; `note`" on stderr."""
        if self.notes is not None:
            os.write(self.notes, json.dumps([output, note]).encode() + b"\n")

    def last(self) -> tuple[str, str] | None:
        """The last complete answer, if there is any; a partial line does not count."""
        if self.notes is None:
            return None
        lines = os.pread(self.notes, os.fstat(self.notes).st_size, 0).split(b"\n")
        return tuple(json.loads(lines[-2])) if len(lines) > 1 else None


def supervise(what: str, seconds: float | None = None, memory: int | None = None) -> Standby:
    """From here on a child does the work; this returns only in the child.

    The parent exits with the child's code. At the time limit it exits with 0 if there is an answer, else it raises
    UserError about `what`; after Ctrl-C it exits with 130. `memory`: limit in bytes for the child and its children.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    standby = Standby(os.memfd_create("answers"))
    # A signal that comes while there are two processes waits until each can answer it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    child = os.fork()
    if child:
        raise SystemExit(_exit_code(child, standby, before, what, seconds, memory))
    die_with_parent()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return standby


def die_with_parent() -> None:
    """Makes this process end when its parent does."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _exit_code(
    child: int,
    standby: Standby,
    signals: set[int | signal.Signals],
    what: str,
    seconds: float | None,
    memory: int | None,
) -> int:
    """`signals`: those that were blocked before."""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        outcome = _wait(child, None if seconds is None else seconds + GRACE, memory)
    except KeyboardInterrupt as stopped:
        _end(child, _PARTING)
        output, note = standby.last() or ("", "nothing was found so far")
        print(output, end="", flush=True)
        print(f"syntony: stopped; {note}", file=sys.stderr)
        return stopped.code if isinstance(stopped, Stopped) else 130
    if outcome == "ended":
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code if code >= 0 else 128 - code
    _end(child, 0.0)
    if outcome == "memory":
        raise UserError(f"{what} takes more than the {(memory or 0) >> 20} MiB that --memory allows")
    answer = standby.last()
    if answer is None:
        raise UserError(f"{what}: no answer within {seconds:g} s; --timeout allows more")
    print(answer[0], end="", flush=True)
    print(f"syntony: stopped after {seconds:g} s; {answer[1]}", file=sys.stderr)
    return 0


def _wait(child: int, seconds: float | None, memory: int | None) -> Literal["ended", "late", "memory"]:
    """Waits until the child ends or exceeds a limit."""
    end = None if seconds is None else time.monotonic() + seconds
    pidfd = os.pidfd_open(child)
    try:
        while True:
            left = None if end is None else max(0.0, end - time.monotonic())
            if select.select([pidfd], [], [], left if memory is None else _WATCH)[0]:
                return "ended"
            if memory is not None and _resident(child) > memory:
                return "memory"
            if left == 0.0:
                return "late"
    finally:
        os.close(pidfd)


def _end(child: int, parting: float) -> None:
    """Ends the child, after giving it some seconds to do so itself."""
    if parting:
        os.kill(child, signal.SIGINT)
        pidfd = os.pidfd_open(child)
        select.select([pidfd], [], [], parting)
        os.close(pidfd)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _resident(process: int) -> int:
    """Resident bytes of the process and its children."""
    total = 0
    try:
        total = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
        for thread in Path(f"/proc/{process}/task").iterdir():
            total += sum(_resident(int(one)) for one in (thread / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has just ended
    return total
