"""Starts ranks on this machine, supervises them, and reports their failures.

            launcher (hub)            every rank has a pipe to the launcher, made before the fork:
           /   |    |    \\            nothing listens, so no stranger can join, and a death shows as end of file
       rank0 rank1 rank2 rank3

The ranks meet through the hub: `all_gather(name, blob)` is all that a Communicator needs to bootstrap, and all that a
benchmark or a probe needs to combine its results. A failure of one rank ends the whole run: the launcher kills the
others and names the rank, unless the ranks can continue without it (Replacing).
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import UnionType
from typing import Any, NoReturn, Protocol

from syntony.base.command import FailedError, UserError, tracebacks_wanted
from syntony.base.stopping import be_a_child

_PR_SET_PDEATHSIG = 1
_CAUSE_WINDOW = 1.0  # seconds within which a death explains errors reported by other ranks
_LATE = 10.0  # seconds for which replacements may go on after the ranks that they should have joined


class Exchange(Protocol):
    """How ranks meet and exchange small data outside the measured traffic (bootstraps.py has four of them)."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        """All blobs in rank order. Collective; each name is used once. TimeoutError names the missing ranks."""
        ...


class RankError(FailedError):
    """A rank died, gave up or went silent. The message names it."""


@dataclass(frozen=True)
class Done:
    """The rank has finished; the run's exit code is the largest of all ranks'."""

    code: int


@dataclass(frozen=True)
class Failed:
    """The rank has raised; `mistake` means that it is a user error."""

    sentence: str
    mistake: bool


@dataclass(frozen=True)
class Died:
    """The rank ended without a message."""

    how: str


@dataclass
class HubExchange:
    """The rank's end of its connection to the launcher."""

    rank: int
    size: int
    connection: Connection

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        _send(self.connection, (name, blob))
        blobs: list[bytes] | None = _receive(self.connection)
        if blobs is None:
            raise RankError("the launcher has gone")
        return blobs


@dataclass
class _Member:
    """What the launcher knows about one rank."""

    pid: int
    connection: Connection
    brought: tuple[str, bytes] | None = None  # its part of the gather in progress
    outcome: Done | Failed | Died | None = None
    reaped: bool = False


@dataclass(frozen=True)
class Replacing:
    """After the ranks have met, the others continue if one dies, as long as one is left; this many dead ranks are
    replaced.

    work    run by a process that replaces a dead rank; its Exchange is not connected: it finds the others by itself. If
            it is still running when the others have finished, for instance because it came too late, it is stopped
    """

    times: int
    work: Callable[[Exchange], int]


def run_ranks(ranks: int, work: Callable[[Exchange], int], silence: float, replacing: Replacing | None = None) -> int:
    """Forks `ranks` processes that each run `work(exchange)`, and returns the largest of their exit codes.

    replacing    None: a death ends the run

    Raises RankError that names the rank if one dies or fails, or if some keep the others waiting for more than
    `silence` seconds; UserError if a rank reports a user error. No process is left running in any case.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    members: list[_Member] = []
    try:
        for _ in range(ranks):
            _start(members, ranks, work)
        _serve(members, silence, replacing)
        return max(member.outcome.code for member in members if isinstance(member.outcome, Done))
    finally:
        for member in members:
            member.connection.close()
            if not member.reaped:
                if not isinstance(member.outcome, Done):
                    os.kill(member.pid, signal.SIGKILL)
                os.waitpid(member.pid, 0)


def _start(members: list[_Member], ranks: int, work: Callable[[Exchange], int]) -> None:
    """Forks the next rank."""
    ours, theirs = Pipe()
    pid = os.fork()
    if pid == 0:
        for connection in (ours, *(member.connection for member in members)):
            connection.close()
        _be_a_rank(HubExchange(len(members), ranks, theirs), work)
    theirs.close()
    members.append(_Member(pid, ours))


def _be_a_rank(exchange: HubExchange, work: Callable[[Exchange], int]) -> NoReturn:
    """Never returns into the launcher's stack: a forked child must not run its parent's cleanup."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        be_a_child()  # signals are the launcher's to handle
        outcome: Done | Failed = Done(work(exchange))
    except Exception as error:
        if tracebacks_wanted():
            traceback.print_exc()
        mistake = isinstance(error, UserError)
        outcome = Failed(str(error) if mistake else f"{type(error).__name__}: {error}", mistake)
    try:
        sys.stdout.flush()
        _send(exchange.connection, outcome)
    finally:
        os._exit(0)


def _serve(members: list[_Member], silence: float, replacing: Replacing | None) -> None:
    """Relays gathers until all ranks are done. Raises the error of `_verdict` if they cannot finish."""
    ranks, left = len(members), replacing.times if replacing is not None else 0
    finished = False
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.connection, selectors.EVENT_READ, member)
        deadline = time.monotonic() + silence
        failing = False
        while any(member.outcome is None for member in members):
            events = selector.select(max(0.0, deadline - time.monotonic()))
            if not events:
                break
            for key, _ in events:
                member = key.data
                message = _receive(member.connection)
                if message is None:
                    selector.unregister(member.connection)
                    _bury(member)
                    again = isinstance(member.outcome, Died) and _go_on(members) and not _finished(members[:ranks])
                    if replacing is not None and left and again:
                        left -= 1
                        _start(members, ranks, replacing.work)
                        selector.register(members[-1].connection, selectors.EVENT_READ, members[-1])
                elif isinstance(message, Done | Failed):
                    member.outcome = message
                else:
                    member.brought = message
                    if _relay(members):
                        deadline = time.monotonic() + silence
            died = any(isinstance(member.outcome, Died) for member in members)
            if died and not (replacing is not None and _go_on(members)):
                break
            if not failing and any(isinstance(member.outcome, Failed) for member in members):
                failing, deadline = True, time.monotonic() + _CAUSE_WINDOW
            if not finished and _finished(members[:ranks]):
                finished, deadline = True, time.monotonic() + _LATE
    if finished:
        return
    fine: type | UnionType = Done if replacing is None else Done | Died
    if not all(isinstance(member.outcome, fine) for member in members) or not any(
        isinstance(member.outcome, Done) for member in members
    ):
        raise _verdict(members, silence, fine)


def _finished(members: list[_Member]) -> bool:
    """Whether the job is done: all have ended, one of them well, and the others are dead."""
    outcomes = [member.outcome for member in members]
    return all(isinstance(one, Done | Died) for one in outcomes) and any(isinstance(one, Done) for one in outcomes)


def _go_on(members: list[_Member]) -> bool:
    """Whether the other ranks can continue without a dead one: some are left, and none of them waits for it here."""
    return any(not isinstance(member.outcome, Died) for member in members) and not any(
        member.brought is not None for member in members if member.outcome is None
    )


def _relay(members: list[_Member]) -> bool:
    """Completes a gather once every rank has brought its part."""
    parts = [member.brought for member in members if member.brought is not None]
    if len(parts) < len(members):
        return False
    if len({name for name, _ in parts}) > 1:
        meetings = ", ".join(f"rank {rank} for {name}" for rank, (name, _) in enumerate(parts))
        raise RankError(f"ranks meet for different things: {meetings}")
    for member in members:
        member.brought = None
        _send(member.connection, [blob for _, blob in parts])
    return True


def _bury(member: _Member) -> None:
    """Records that a rank has closed its connection, which happens only when it ends."""
    _, status = os.waitpid(member.pid, 0)
    member.reaped = True
    if member.outcome is None:
        signalled = os.WIFSIGNALED(status)
        how = (
            f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
            if signalled
            else "ended before its work was done"
        )
        member.outcome = Died(how)


def _verdict(members: list[_Member], silence: float, fine: type | UnionType) -> Exception:
    """The error that names rank and cause. A death takes precedence over a user error, then other errors, then
    silence. A `fine` result is a cause only if all ranks have it or some wait for it."""
    all_fine = all(isinstance(member.outcome, fine) for member in members)
    for rank, member in enumerate(members):
        if isinstance(member.outcome, Died) and (
            all_fine or not isinstance(member.outcome, fine) or not _go_on(members)
        ):
            return RankError(
                f"rank {rank} (process {member.pid}) {member.outcome.how}; the other ranks have been stopped"
            )
    failures = [(rank, member.outcome) for rank, member in enumerate(members) if isinstance(member.outcome, Failed)]
    for _, failure in failures:
        if failure.mistake:
            return UserError(failure.sentence)
    for rank, failure in failures:
        return RankError(f"rank {rank}: {failure.sentence}")
    late = [rank for rank, member in enumerate(members) if member.brought is None and member.outcome is None]
    who = f"rank{'s' * (len(late) > 1)} {', '.join(map(str, late))}"
    return RankError(f"no sign of {who} for {silence:g} s; all ranks have been stopped (--timeout changes the limit)")


def _send(connection: Connection, message: object) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # the reader's end of file reports it better
        connection.send(message)


def _receive(connection: Connection) -> Any:
    """The next message, or None at the end of the stream."""
    try:
        return connection.recv()
    except (EOFError, OSError):  # OSError: the stream ended within a message
        return None
