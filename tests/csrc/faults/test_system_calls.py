"""Every system call of the core fails once, in a small group that forms, calls and ends (main.cpp).

A site is a place in the library that calls the system. For every site that a rank comes by, in a group on one host and
in one over TCP, its first call fails, and one later on, with each error that the call may give. Then either nobody
notices, or the rank that it befell says what the system refused, and the others name that rank; nobody hangs, dies,
computes a wrong result, or leaves a descriptor open.

A sample in every run, all of them with `-m soak`.
"""

from __future__ import annotations

import errno
import os
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.programs import program

RANKS = 3
SAMPLE = 25
TURNS = (1, 3)
ERRORS = {
    "accept4": "EINTR ECONNABORTED EMFILE",
    "bind": "EADDRINUSE",
    "connect": "EINTR ECONNREFUSED",
    "dup": "EMFILE",
    "epoll_create1": "EMFILE ENOMEM",
    "epoll_ctl": "ENOMEM ENOSPC",
    "epoll_wait": "EINTR",
    "eventfd": "EMFILE ENOMEM",
    "ftruncate": "ENOSPC",
    "getifaddrs": "ENOMEM",
    "getrandom": "ENOSYS",
    "getsockname": "ENOMEM",
    "getsockopt": "ENOMEM",
    "listen": "EADDRINUSE",
    "memfd_create": "EMFILE ENOMEM EPERM",
    "mmap": "ENOMEM",
    "poll": "EINTR ENOMEM",
    "process_vm_readv": "EPERM ENOMEM EFAULT",
    "read": "EINTR",
    "readv": "EINTR ECONNRESET",
    "recv": "EINTR ECONNRESET",
    "recvmsg": "EINTR ENOMEM EPERM",
    "send": "EINTR EPIPE ENOBUFS",
    "sendmsg": "EINTR EPIPE ENOBUFS",
    "setsockopt": "ENOMEM EPERM",
    "socket": "EMFILE ENOMEM",
    "syscall": "ENOSYS EPERM EMFILE",  # pidfd_open
    "write": "",  # to an eventfd: it cannot fail
}
TRANSIENT = ("EINTR",)  # nobody may notice
OF_A_WIRE = (
    "ECONNABORTED",
    "ECONNREFUSED",
    "ECONNRESET",
    "EPIPE",
    "ENOBUFS",
)  # no rank's fault: either end may be named


@dataclass(frozen=True)
class Fault:
    hosts: str
    rank: int
    offset: int
    call: str
    function: str
    error: str
    turn: int

    def __str__(self) -> str:
        where = f"rank {self.rank} of {self.hosts}, {self.call} in {self.function}"
        return f"{where} fails with {self.error}, turn {self.turn}"


@dataclass(frozen=True)
class Run:
    """How each rank ended: its first word, and the rest of its line."""

    outcomes: dict[int, tuple[str, str]]
    sites: list[tuple[int, str, str]]
    fired: bool


def run(hosts: str, rank: int, offset: int = 0, turn: int = 0, error: str = "") -> Run:
    number = getattr(errno, error) if error else 0
    command = [program("faults"), RANKS, hosts, rank, offset, turn, number]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=True)
    outcomes, sites = {}, []
    for line in done.stdout.splitlines():
        first, *rest = line.split(" ", 3)
        if first == "site":
            sites.append((int(rest[0]), rest[1], rest[2]))
        elif first != "fired":
            word, *sentence = line.split(" ", 2)[1:]
            outcomes[int(first)] = word, "".join(sentence)
    assert len(outcomes) == RANKS, done.stdout + done.stderr
    return Run(outcomes, sites, "fired" in done.stdout.splitlines())


def faults() -> Iterator[Fault]:
    """Of the sites that are met in a run in which nothing fails."""
    for hosts in ("aaa", "abc"):
        for rank in range(2):
            whole = run(hosts, rank)
            assert {word for word, _ in whole.outcomes.values()} == {"ok"}, whole.outcomes
            for offset, call, function in whole.sites:
                for error in ERRORS[call].split():
                    for turn in TURNS:
                        yield Fault(hosts, rank, offset, call, function, error, turn)


def names(rank: int, sentence: str) -> bool:
    """Whether it blames the rank; or the bootstrap, which is this test's, noticed."""
    _, guilty, said = sentence.split(" ", 2)
    return guilty == str(rank) or f"rank {rank}" in said or "a rank is gone" in said


def broken_promises(fault: Fault, told: Run) -> Iterator[str]:
    for rank, (word, sentence) in told.outcomes.items():
        where = f"{fault}: rank {rank}: {word} {sentence}"
        if word not in ("ok", "error"):
            yield where
        elif word == "error" and fault.error in TRANSIENT:
            yield f"{where}: nobody should notice"
        elif word == "error" and fault.error in OF_A_WIRE:
            if not re.search(r"rank \d|a rank is gone", sentence):
                yield f"{where}: names nobody"
        elif word == "error" and rank == fault.rank:
            if os.strerror(getattr(errno, fault.error)) not in sentence:
                yield f"{where}: does not say what the system refused"
        elif word == "error" and not names(fault.rank, sentence):
            yield f"{where}: does not name rank {fault.rank}"
    if told.outcomes[fault.rank][0] == "ok" and any(word == "error" for word, _ in told.outcomes.values()):
        yield f"{fault}: the others are told, the rank is not: {told.outcomes}"


def inject(chosen: list[Fault]) -> str:
    """How many came."""
    wrong, came = [], 0
    for fault in chosen:
        told = run(fault.hosts, fault.rank, fault.offset, fault.turn, fault.error)
        came += told.fired
        wrong += broken_promises(fault, told)
    assert not wrong, f"{len(wrong)} of {came} faults that came\n" + "\n".join(wrong)
    return f"{len(chosen)} faults, {came} came"


def test_a_sample_of_faults() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    print(inject(random.Random(seed).sample(list(faults()), SAMPLE)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_system_call_fails_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = inject(list(faults()))
    with capsys.disabled():
        print("\n" + said)
