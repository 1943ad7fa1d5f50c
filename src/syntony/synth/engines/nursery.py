"""Processes that are forked from one that has imported what they need.

    caller ──(two connections, a module)──▶ nursery    imports the module, forks
           ◀───────────(its process)───────  worker    answers questions (workers.py)

The caller itself is not forked, because it may have threads, GPUs or MPI. Without the nursery, each worker would import
solvers anew, which takes longer than many searches. What many of them need is imported while nobody waits for a worker.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection, Pipe

from syntony.base.deadline import CLOCK, WallClock
from syntony.base.supervised import die_with_parent

PAUSE = signal.SIGUSR1
"""Tells a process that its turn is over."""
COMMON = "scipy.optimize"
"""What most engines import when they need it."""
Work = Callable[[Connection, Callable[[object], None], Callable[[], float]], None]
"""Answers through a connection, with a function that sends and a clock, see `Child.seconds`."""


class Nursery:
    """The process that forks, made at the first `fork`. It runs the module `program`, which calls `forks`.

    `processor`: see `Child.seconds`.
    """

    def __init__(self, program: str, processor: bool) -> None:
        self._program, self.processor = program, processor
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def fork(self, module: str = "") -> Child:
        """A new process, in which the module is imported, if one is given; it works while this returns."""
        if self._socket is None:
            self._socket, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-m", self._program, str(there.fileno()), *["processor"] * self.processor]
            self._process = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
            there.close()
        (answers, its_answers), (turns, its_turns) = Pipe(), Pipe()
        with suppress(ConnectionError):  # it has ended, as the connections will tell
            socket.send_fds(
                self._socket, [(module or self._program).encode()], [its_answers.fileno(), its_turns.fileno()]
            )
        its_answers.close()
        its_turns.close()
        return Child(self, answers, turns)

    def seconds(self) -> float:
        """Processor seconds so far."""
        return _processor_seconds(self._process.pid) or 0.0 if self._process else 0.0

    def end(self) -> None:
        """Ends it, and all of its children."""
        if self._process and self._socket:
            self._socket.close()
            self._process.kill()
            self._process.wait()
            self._process = self._socket = None


class Child:
    """A forked process: `answers` is for what it does, `turns` for its pauses.

    A pause begins between two steps of its interpreter, and then stops all of its threads. So it begins neither within
    a solver whose limits are of wall clock, nor while it sends an answer, but within CP-SAT (cp_sat.py).
    """

    def __init__(self, nursery: Nursery, answers: Connection, turns: Connection) -> None:
        self._nursery, self.answers, self.turns = nursery, answers, turns
        self._process: tuple[int, int] | None = None  # its number and descriptor, once it has begun
        self._before, self._last = 0.0, 0.0
        self.began = 0.0  # what its clock showed then
        self._told = False

    def seconds(self) -> float:
        """A clock: of wall, or of the processor time of this process and, before it began, of its nursery."""
        if not self._nursery.processor:
            return time.monotonic()
        if not self.begun():
            self._last = self._nursery.seconds()
        elif self._process and (spent := _processor_seconds(self._process[0])) is not None:
            self._last = self._before + spent
        return self._last

    def begun(self) -> bool:
        """Whether it has."""
        with suppress(EOFError, OSError):  # it has ended
            if self._process is None and self.turns.poll():
                number, self._before, self.began = self.turns.recv()
                self._process = number, os.pidfd_open(number)
        return self._process is not None

    def pause(self) -> None:
        """Tells it to pause; it must have begun."""
        self._signal(PAUSE)
        self._told = True

    def pauses(self) -> bool:
        """Whether it was told to, and has paused, or ended."""
        return self._told and self.turns.poll()

    def stop(self) -> None:
        """Stops its other threads, too, once it pauses."""
        if self.pauses():
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on, if it was told to pause."""
        if self._told:
            self._told = False
            self._signal(signal.SIGCONT)
            with suppress(EOFError, ConnectionError):
                self.turns.recv()
                self.turns.send(None)

    def end(self) -> None:
        """Ends it."""
        self.answers.close()
        if self.begun() and self._process:
            self._signal(signal.SIGKILL)
            os.close(self._process[1])
            self._process = None
        self.turns.close()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process
        with suppress(ProcessLookupError):  # it has ended
            signal.pidfd_send_signal(self._process[1], number)


def _processor_seconds(process: int) -> float | None:
    """None if it has ended."""
    with suppress(OSError):
        return time.clock_gettime(~process << 3 | 2)  # as clock_getcpuclockid(3) numbers clocks
    return None


def forks(arguments: list[str], work: Work) -> None:
    """What the process does, until its caller is gone: every child does `work`. `arguments`: of its command."""
    requests, processor = socket.socket(fileno=int(arguments[0])), bool(arguments[1:])
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks is interrupted, and ends this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for children
    while True:
        if not select.select([requests], [], [], 0.0)[0]:
            import_module(COMMON)
        module, handed, _, _ = socket.recv_fds(requests, 1 << 12, 2)
        if not module:
            return
        import_module(module.decode())
        before = time.process_time()  # of this process, not of its child
        if not os.fork():
            with suppress(EOFError, ConnectionError):  # whoever asked is gone, or wants no more
                requests.close()
                _begin(Connection(handed[0]), Connection(handed[1]), before, processor, work)
            os._exit(0)
        for descriptor in handed:
            os.close(descriptor)


def _begin(answers: Connection, turns: Connection, before: float, processor: bool, work: Work) -> None:
    """The child. `before`: processor seconds of its nursery."""
    die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    clock = WallClock()
    CLOCK.set(time.process_time if processor else clock)

    def seconds() -> float:
        return before + time.process_time() if processor else time.monotonic()

    def pause(*_: object) -> None:
        with clock.stopped():
            turns.send(None)
            turns.recv()

    def tell(answer: object) -> None:
        unmasked = signal.pthread_sigmask(signal.SIG_BLOCK, {PAUSE})  # half an answer would keep its reader waiting
        answers.send(answer)
        signal.pthread_sigmask(signal.SIG_SETMASK, unmasked)

    signal.signal(PAUSE, pause)
    turns.send((os.getpid(), before, seconds()))
    work(answers, tell, seconds)
