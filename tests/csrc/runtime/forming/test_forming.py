"""How a group is formed: many ranks of an ordinary user, strangers at the door, and ranks that cannot: all are told."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from syntony import _core
from tests.csrc.runtime.group import Group
from tests.csrc.runtime.harness import Rank, run_as_processes

NOBODY = 65534
PR_SET_DUMPABLE = 4


def be_ordinary(descriptors: int) -> None:
    """Limits hold for root only in part."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # as a process that was nobody's from the beginning


def failure(join: Callable[[], object]) -> str:
    try:
        join()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "formed"


# ---- many ranks -----------------------------------------------------------------------------------------------------


def form_as_ordinary_user(rank: Rank, descriptors: int) -> tuple[float, int]:
    be_ordinary(descriptors)
    rank.meet("ready")
    begin = time.monotonic()
    group = rank.join()
    took = time.monotonic() - begin
    array = np.full(3, rank.rank, np.int64)
    group.all_reduce(array)
    group.shutdown()
    return took, int(array[0])


@pytest.mark.parametrize(
    ("ranks", "descriptors"), [(48, 1024), (48, 128), pytest.param(128, 1024, marks=pytest.mark.sweep)]
)
def test_many_ranks_of_an_ordinary_user_form_a_group(ranks: int, descriptors: int) -> None:
    values = run_as_processes(form_as_ordinary_user, ranks, descriptors, deadline=120.0)
    print(f"{ranks} ranks: formed in {max(took for took, _ in values):.2f} s")
    assert {total for _, total in values} == {ranks * (ranks - 1) // 2}


# ---- ranks that cannot ----------------------------------------------------------------------------------------------


def form_without(rank: Rank, poor: int, what: str) -> str:
    if rank.rank == poor:
        if what == "descriptors":
            spare = os.open("/dev/null", os.O_RDONLY)
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 1, spare + 1))
        elif what == "memory":
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))
        elif what == "setting":
            os.environ["SYNTONY_SLOT_BYTES"] = "12"
    said = failure(rank.join)
    if what != "setting":
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return said


@pytest.mark.parametrize("poor", [0, 2])
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("descriptors", "Too many open files"),
        ("memory", r"cannot map \d+ bytes of shared memory"),
        ("setting", "SYNTONY_SLOT_BYTES=12 must be a multiple of 64"),
    ],
)
def test_what_one_rank_lacks_all_are_told(poor: int, what: str, why: str) -> None:
    said = run_as_processes(form_without, 4, poor, what, deadline=20.0)  # not the 30 s that join() has
    for rank, sentence in enumerate(said):
        assert re.search(why, sentence), (rank, said)
        assert rank == poor or f"rank {poor}" in sentence


class HomelessTuner:
    """As a tuner that looks for a table where there is no HOME."""

    def __init__(self, homeless: int) -> None:
        self._homeless = homeless

    def note(self, rank: int, boxes: object) -> str:
        if rank == self._homeless:
            raise RuntimeError("Could not determine home directory.")
        return ""

    def agreed(self, boxes: object, notes: object) -> tuple[list[object], list[object], list[object], object]:
        return [], [], [], ([], "")


def form_homeless(rank: Rank, homeless: int) -> str:
    bootstrap = rank.bootstrap("homeless")
    return failure(lambda: _core.Communicator(rank.process, bootstrap, 30.0, "homeless", tuner=HomelessTuner(homeless)))


@pytest.mark.parametrize("homeless", [0, 1])
def test_what_a_tuner_raises_on_one_rank_all_hear(homeless: int) -> None:
    said = run_as_processes(form_homeless, 3, homeless, deadline=20.0)
    for rank, sentence in enumerate(said):
        assert "Could not determine home directory." in sentence, said
        assert rank == homeless or f"rank {homeless} (process" in sentence


# ---- strangers ------------------------------------------------------------------------------------------------------


def form_beside_strangers(rank: Rank, strangers: int) -> str:
    """Rank 1 finds rank 0's door and sends strangers there before it goes there itself."""
    mob: list[subprocess.Popen[bytes]] = []

    class Gathering:
        def __init__(self) -> None:
            self.rank, self.size = rank.rank, rank.size

        def all_gather(self, name: str, blob: bytes) -> list[bytes]:
            blobs = bootstrap.all_gather(name, blob)
            if name == "introduce" and rank.rank == 1:
                mob.append(crowd(strangers))
            return blobs

    bootstrap = rank.bootstrap("crowded")
    group = Group(_core.Communicator(rank.process, Gathering(), 30.0, "crowded"))
    array = np.ones(1)
    group.all_reduce(array)
    group.shutdown()
    for process in mob:
        process.kill()
        process.wait()
    return str(array[0])


def crowd(strangers: int) -> subprocess.Popen[bytes]:
    """A process that stands idle at all doors of ours, so many times at each."""
    script = """
import contextlib, socket, sys, pathlib
doors = [line.split()[-1] for line in pathlib.Path("/proc/net/unix").read_text().splitlines()
         if "@syntony-" in line and " 00010000 " in line]
idle = []
for door in doors:
    for _ in range(int(sys.argv[1])):
        idle.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        with contextlib.suppress(ConnectionRefusedError):  # a door of another test that has ended meanwhile
            idle[-1].connect("\\0" + door[1:])
print("here", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(strangers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    return process


def test_idle_strangers_delay_nobody() -> None:
    values = run_as_processes(form_beside_strangers, 3, 20, deadline=25.0)  # each used to cost 5 s
    assert values == ["3.0"] * 3


def form_with_secrets_of_ones_own(rank: Rank) -> str:
    os.environ["SYNTONY_SECRET"] = "poppy" if rank.rank == 1 else "sesame"
    bootstrap = rank.bootstrap("secrets")
    return failure(lambda: _core.Communicator(rank.process, bootstrap, 30.0, "secrets"))


def test_ranks_with_unlike_secrets_are_named_however_they_meet() -> None:
    said = run_as_processes(form_with_secrets_of_ones_own, 3, deadline=20.0)
    for rank in (0, 2):
        assert (
            f"rank 1 does not know the secret of rank {rank}: SYNTONY_SECRET should be set to one value" in said[rank]
        )
    assert not any(secret in sentence for sentence in said for secret in ("poppy", "sesame"))


def form_beside_another_version(rank: Rank) -> str:
    class Other:
        """Rank 1 is of another build."""

        def __init__(self) -> None:
            self.rank, self.size = rank.rank, rank.size

        def all_gather(self, name: str, blob: bytes) -> list[bytes]:
            if rank.rank == 1 and name == "introduce":
                length, _, rest = blob[1:].partition(b":")
                blob = blob[:1] + length + b":" + b"0" + rest[1:]
            return bootstrap.all_gather(name, blob)

    bootstrap = rank.bootstrap("versions")
    return failure(lambda: _core.Communicator(rank.process, Other(), 30.0, "versions"))


def test_ranks_of_unlike_versions_are_named() -> None:
    said = run_as_processes(form_beside_another_version, 3, deadline=20.0)
    for sentence in (said[0], said[2]):
        assert re.search(r"rank 1 has Syntony's protocol version=0[\d.]+ and rank [02] \d", sentence), said
