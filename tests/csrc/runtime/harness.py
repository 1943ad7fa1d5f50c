"""Ranks for tests: a process each, or threads of this process.

A test gives a *body*, a module-level function `body(rank: Rank, *arguments)`; every rank runs it and returns a value.

    values = run_as_processes(body, 4, arguments)          # results in rank order
    with Processes(body, 4, arguments) as ranks:           # or step by step: wait for events, kill, collect
        ranks.wait_for_event("looping")
        ranks.kill(2)
        values = ranks.finish()

Ranks meet over a socket pair each, whose other ends this process holds. Whatever happens ends at the deadline: ranks
that are late print their stacks and are killed. A rank that fails ends the test with its standard error.
"""

from __future__ import annotations

import faulthandler
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

from syntony import _core
from tests.csrc.runtime.group import Group
from tests.forked import start

ROOT = Path(__file__).parents[3]
DEADLINE = 150.0  # seconds; generous, as the machine may be busy: nothing is measured by it, nothing waits for it
Gather = Callable[[str, bytes, Sequence[int]], list[bytes]]


class RankFailedError(AssertionError):
    """A rank raised, died, or did not finish in time."""


class Members:
    """An Exchange over some of a test's ranks."""

    def __init__(self, rank: int, members: Sequence[int], name: str, gather: Gather) -> None:
        self.rank, self.size = members.index(rank), len(members)
        self._members, self._name, self._gather = tuple(members), name, gather

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        return self._gather(f"{self._name}/{name}", blob, self._members)


class Rank:
    """What a body knows of itself."""

    def __init__(
        self, rank: int, size: int, gather: Gather, tell: Callable[[str], None], process: _core.Process
    ) -> None:
        self.rank, self.size, self.tell, self.process = rank, size, tell, process
        self._gather = gather
        self._joined: dict[tuple[str, tuple[int, ...]], int] = defaultdict(int)

    def bootstrap(self, name: str, members: Sequence[int] | None = None) -> Members:
        members = tuple(range(self.size)) if members is None else tuple(members)
        turn = self._joined[name, members] = self._joined[name, members] + 1
        return Members(self.rank, members, f"{name}{turn}{members}", self._gather)

    def join(self, *, name: str = "test", members: Sequence[int] | None = None, timeout: float = 30.0) -> Group:
        return Group(_core.Communicator(self.process, self.bootstrap(name, members), timeout, name))

    def meet(self, name: str, members: Sequence[int] | None = None) -> None:
        """Waits until all of `members` (default: all ranks) are here, without the runtime."""
        self._gather(f"meet/{name}", b"", range(self.size) if members is None else members)

    def all_say(self, name: str, word: bytes) -> list[bytes]:
        """What each rank says here, once all of them have, without the runtime."""
        return self._gather(f"say/{name}", word, range(self.size))


# ---- processes ------------------------------------------------------------------------------------------------------


class Processes:
    """`size` operating system processes that run `body`. `hosts[rank]` names the host that a rank believes to be on."""

    def __init__(
        self,
        body: Callable[..., Any],
        size: int,
        *arguments: Any,
        hosts: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self.size = size
        self._log = [tempfile.NamedTemporaryFile() for _ in range(size)]  # noqa: SIM115 (closed by __exit__)
        self._values: dict[int, Any] = {}
        self._events: dict[int, list[str]] = defaultdict(list)
        self._exits: dict[int, int] = {}
        self._killed: set[int] = set()
        self._gathers: dict[tuple[str, tuple[int, ...]], dict[int, bytes]] = defaultdict(dict)
        self._connections: dict[int, Connection] = {}
        self.processes: list[BaseProcess] = []
        for rank in range(size):
            own = {"SYNTONY_HOST": hosts[rank]} if hosts else {}
            here, there = multiprocessing.Pipe()
            with there:
                log = self._log[rank].name
                given = (there, rank, size, body, arguments)
                process = start(
                    _be_a_rank,
                    *given,
                    environment={**os.environ, **(environment or {}), **own},
                    output=log,
                    errors=log,
                )
            self.processes.append(process)
            self._connections[rank] = here
        self._end = time.monotonic() + deadline

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        for connection in self._connections.values():
            connection.close()
        for log in self._log:
            log.close()

    @property
    def pids(self) -> list[int]:
        return [process.pid or 0 for process in self.processes]

    def kill(self, rank: int, number: signal.Signals = signal.SIGKILL) -> None:
        self._killed.add(rank)
        self._send_signal(rank, number)

    def wait_for_event(self, event: str, ranks: Sequence[int] | None = None) -> None:
        """Serves the ranks until all of `ranks` have told `event`."""
        wanted = range(self.size) if ranks is None else ranks
        self._serve(lambda: all(event in self._events[rank] for rank in wanted), f"for all ranks to reach {event!r}")

    def wait_for_exit(self, rank: int) -> int:
        self._serve(lambda: rank in self._exits, f"for rank {rank} to exit")
        return self._exits[rank]

    def finish(self) -> list[Any]:
        """What the bodies returned, in rank order; None from ranks that were killed."""
        self._serve(lambda: len(self._exits) == self.size, "for all ranks to finish")
        return [self._values.get(rank) for rank in range(self.size)]

    def log(self, rank: int) -> str:
        return Path(self._log[rank].name).read_text(errors="replace")

    # ---- serving

    def _serve(self, done: Callable[[], bool], what: str) -> None:
        while not done():
            left = self._end - time.monotonic()
            if left <= 0:
                self._give_up(what)
            ready = multiprocessing.connection.wait(list(self._connections.values()), left)
            for rank, connection in list(self._connections.items()):
                if connection in ready:
                    self._receive(rank, connection)

    def _receive(self, rank: int, connection: Connection) -> None:
        try:
            kind, *content = connection.recv()
        except (EOFError, ConnectionResetError):
            self._ended(rank)
            return
        if kind == "gather":
            self._gather(rank, *content)
        elif kind == "event":
            self._events[rank].append(content[0])
        elif kind == "value":
            self._values[rank] = content[0]
        else:
            raise RankFailedError(f"rank {rank} failed:\n{content[0]}\n{self.log(rank)}")

    def _ended(self, rank: int) -> None:
        self._connections.pop(rank).close()
        self.processes[rank].join(max(1.0, self._end - time.monotonic()))
        code = self.processes[rank].exitcode
        if code is None:
            self._give_up(f"for rank {rank} to exit")
        self._exits[rank] = code
        if rank not in self._killed and (code != 0 or rank not in self._values):
            raise RankFailedError(f"rank {rank} exited with {code} and no result:\n{self.log(rank)}")

    def _gather(self, rank: int, name: str, blob: bytes, members: tuple[int, ...]) -> None:
        came = self._gathers[name, members]
        came[rank] = blob
        if len(came) == len(members):
            blobs = [came[member] for member in members]
            del self._gathers[name, members]
            for member in members:
                self._connections[member].send(blobs)

    def _send_signal(self, rank: int, number: signal.Signals) -> None:
        if self.processes[rank].is_alive():
            os.kill(self.pids[rank], number)

    def _give_up(self, what: str) -> NoReturn:
        late = [rank for rank in range(self.size) if rank not in self._exits]
        for rank in late:
            self._send_signal(rank, signal.SIGABRT)  # faulthandler prints the stacks
        for rank in late:
            self.processes[rank].join(10)
        logs = "\n".join(f"--- rank {rank}\n{self.log(rank)}" for rank in late)
        waiting = {name: sorted(came) for (name, _), came in self._gathers.items()}
        raise RankFailedError(f"waited in vain {what}; late: {late}; meeting: {waiting}\n{logs}")


def run_as_processes(body: Callable[..., Any], size: int, *arguments: Any, **options: Any) -> list[Any]:
    with Processes(body, size, *arguments, **options) as ranks:
        return ranks.finish()


def _be_a_rank(
    connection: Connection, rank: int, size: int, body: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    faulthandler.enable()
    lock = threading.Lock()

    def gather(topic: str, blob: bytes, members: Sequence[int]) -> list[bytes]:
        with lock:  # one conversation at a time
            connection.send(("gather", topic, bytes(blob), tuple(members)))
            answer: list[bytes] = connection.recv()
            return answer

    try:
        process = _core.Process()
        value = body(Rank(rank, size, gather, lambda event: connection.send(("event", event)), process), *arguments)
        process.close()
        connection.send(("value", value))
    except Exception:
        connection.send(("failure", traceback.format_exc()))
        sys.stderr.flush()
        os._exit(1)


# ---- threads --------------------------------------------------------------------------------------------------------


class _Meeting:
    """all_gather between threads. A failure anywhere releases everybody."""

    def __init__(self, end: float) -> None:
        self._changed = threading.Condition()
        self._came: dict[tuple[str, tuple[int, ...]], dict[int, bytes]] = defaultdict(dict)
        self._end = end
        self.failed = False

    def gather(self, rank: int, topic: str, blob: bytes, members: Sequence[int]) -> list[bytes]:
        key = (topic, tuple(members))
        with self._changed:
            came = self._came[key]
            came[rank] = bytes(blob)
            self._changed.notify_all()
            left = self._end - time.monotonic()
            self._changed.wait_for(lambda: self.failed or len(came) == len(members), left)
            if len(came) < len(members):
                raise RankFailedError(f"{topic}: only ranks {sorted(came)} of {list(members)} came")
            return [came[member] for member in members]

    def fail(self) -> None:
        with self._changed:
            self.failed = True
            self._changed.notify_all()


def run_as_threads(
    body: Callable[..., Any], size: int, *arguments: Any, share_process: bool = False, deadline: float = DEADLINE
) -> list[Any]:
    """Runs `body` on threads of this process, each with a runtime of its own or all with one."""
    meeting = _Meeting(time.monotonic() + deadline)
    values: list[Any] = [None] * size
    faults: list[str] = []
    runtimes = [_core.Process()] * size if share_process else [_core.Process() for _ in range(size)]

    def run(rank: int) -> None:
        def gather(topic: str, blob: bytes, members: Sequence[int]) -> list[bytes]:
            return meeting.gather(rank, topic, blob, members)

        try:
            values[rank] = body(Rank(rank, size, gather, lambda event: None, runtimes[rank]), *arguments)
        except BaseException:
            faults.append(f"rank {rank} failed:\n{traceback.format_exc()}")
            meeting.fail()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + deadline
    for thread in threads:
        while thread.is_alive() and not faults and time.monotonic() < end:
            thread.join(0.2)
    if not faults and any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback(all_threads=True)
        faults.append(f"ranks {[r for r, t in enumerate(threads) if t.is_alive()]} did not finish in {deadline} s")
    if faults:
        raise RankFailedError("\n".join(faults))
    for runtime in {id(runtime): runtime for runtime in runtimes}.values():
        runtime.close()
    return values
