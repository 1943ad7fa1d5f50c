"""A rank that dies, leaves or is late: all others say who and during what, soon; and nothing is left on the machine."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.csrc.runtime.group import failure_of
from tests.csrc.runtime.harness import ROOT, Processes, Rank, run_as_processes

ALONE = pytest.mark.alone  # counts what is left on the machine, or tells who is late by less than a second
HOSTS = pytest.mark.parametrize("hosts", ["", "aabb", "abcd"])
PROMISE = 20.0  # seconds from a death to the exceptions: less than the time-out, which would end a wait as well
Failure = tuple[str, tuple[int, ...], str, float]


def reduce_for_ever(rank: Rank, count: int) -> tuple[Failure, float]:
    """The failure that ended the loop, and when."""
    group = rank.join()
    array = np.zeros(count, np.float32)

    def loop() -> None:
        for i in range(1 << 30):
            group.all_reduce(array)
            if i == 5:
                rank.tell("looping")

    failure = failure_of(loop)
    when = time.monotonic()
    again = failure_of(lambda: group.all_reduce(array))  # the group stays ended, and says why
    assert again[:2] == failure[:2]
    return failure, when


@HOSTS
@pytest.mark.parametrize("count", [1, 1_000_003])
def test_a_killed_rank_is_named_by_all_others(hosts: str, count: int) -> None:
    with Processes(reduce_for_ever, 4, count, hosts=hosts) as ranks:
        ranks.wait_for_event("looping")
        died = time.monotonic()
        ranks.kill(2)
        results = ranks.finish()
        pids = ranks.pids
    for rank in (0, 1, 3):
        (kind, guilty, sentence, _), when = results[rank]
        assert (kind, guilty) == ("dead", (2,)), sentence
        assert f"rank 2 (process {pids[2]}" in sentence
        assert "during all_reduce #" in sentence, sentence
        assert when - died < PROMISE


def remains(pids: list[int]) -> list[str]:
    """Whatever our runtime could have left on this machine: processes, memory, sockets that no living process holds."""
    found = [f"process {pid}" for pid in pids if Path(f"/proc/{pid}").exists()]
    found += [str(path) for path in Path("/dev/shm").glob("*syntony*")]
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines() if "syntony-" in line]
    held = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/[0-9]*"):
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue  # closed while we looked, as this process's own look into the folder is; or not ours
        held.add(target)
        if "memfd:syntony" in target:
            found.append(f"{descriptor} {target}")
    inodes = Path("/proc/net/unix").read_text()  # still there, so that nobody closed them while we looked for holders
    found += [line[-1] for line in sockets if f"socket:[{line[-2]}]" not in held and line[-2] in inodes]
    return found


@ALONE
@pytest.mark.parametrize("hosts", ["", "aabb"])
def test_nothing_is_left_when_all_are_killed(hosts: str) -> None:
    with Processes(reduce_for_ever, 4, 1000, hosts=hosts) as ranks:
        ranks.wait_for_event("looping")
        before = remains([])
        assert any("memfd:syntony" in thing for thing in before), "the search finds what is there"
        for rank in range(4):
            with suppress(ProcessLookupError):  # it has heard of the others' deaths, and ended
                ranks.kill(rank)
        ranks.finish()
        pids = ranks.pids
    ours = [f"/{pid}/" for pid in pids]
    assert not [thing for thing in remains(pids) if not thing.startswith("/proc/") or any(pid in thing for pid in ours)]


def wait_for_message(rank: Rank) -> Failure | None:
    group = rank.join()
    group.barrier()
    rank.tell("waiting")
    if rank.rank == 2:
        signal.pause()
    source = 2 if rank.rank == 0 else -1
    return failure_of(lambda: group.receive(np.zeros(4, np.uint8), source, 1))


@HOSTS
def test_a_death_ends_receives_too(hosts: str) -> None:
    with Processes(wait_for_message, 4, hosts=hosts) as ranks:
        ranks.wait_for_event("waiting")
        ranks.kill(2)
        results = ranks.finish()
    for rank in (0, 1, 3):
        kind, guilty, sentence, _ = results[rank]
        assert (kind, guilty) == ("dead", (2,)), sentence
        assert "a point-to-point message" in sentence


def exit_early(rank: Rank) -> int:
    """Rank 0 leaves after its last operation; the others go on among themselves."""
    group = rank.join()
    others = rank.join(name="others", members=[1, 2, 3]) if rank.rank else None
    array = np.full(1000, rank.rank, np.int64)
    group.all_reduce(array)
    assert np.all(array == 6)
    # Rank 0's part in a broadcast is over before the others have it.
    group.broadcast(array)
    group.shutdown()
    if rank.rank == 0:
        return 0
    assert others is not None
    for _ in range(100):
        others.all_reduce(array)
    others.shutdown()
    return 1


@HOSTS
def test_a_rank_that_leaves_after_its_last_operation_is_no_failure(hosts: str) -> None:
    assert run_as_processes(exit_early, 4, hosts=hosts) == [0, 1, 1, 1]


def relayed(rank: Rank) -> None:
    """broadcast round a ring 0 -> 1 -> 2 -> 3 whose rank 2 comes late: 0 has left by then, 3 is waiting."""
    group = rank.join()
    array = np.full(10, rank.rank, np.int64)
    if rank.rank == 2:
        rank.meet("0 has left", [0, 2])
    group.broadcast(array, algorithm="ring")
    assert np.all(array == 0)
    group.shutdown()
    if rank.rank == 0:
        rank.meet("0 has left", [0, 2])


@HOSTS
def test_a_rank_may_leave_while_others_still_finish_its_last_operation(hosts: str) -> None:
    run_as_processes(relayed, 4, hosts=hosts)


def leave_too_early(rank: Rank) -> Failure | None:
    group = rank.join()
    group.barrier()
    if rank.rank == 1:
        group.shutdown()
        rank.meet("end")
        return None
    failure = failure_of(lambda: group.all_reduce(np.zeros(10, np.int64)))
    rank.meet("end")
    return failure


@pytest.mark.parametrize("hosts", ["", "aab"])
def test_a_rank_that_leaves_too_early_is_named(hosts: str) -> None:
    results = run_as_processes(leave_too_early, 3, hosts=hosts)
    for rank in (0, 2):
        kind, guilty, sentence, _ = results[rank]
        assert (kind, guilty) == ("aborted", (1,)), sentence
        assert "rank 1 (process" in sentence
        assert "left the group before all_reduce #2 (sum of 10 x int64)" in sentence


def one_never_comes(rank: Rank) -> Failure | None:
    group = rank.join()
    group.all_reduce(np.zeros(77, np.int16), op="max")
    if rank.rank == 1:
        rank.meet("end")
        return None
    failure = failure_of(lambda: group.all_reduce(np.zeros(10, np.float64), timeout=0.6))
    rank.meet("end")
    return failure


@ALONE
@HOSTS
def test_a_rank_that_never_comes_is_named_with_what_it_did_last(hosts: str) -> None:
    results = run_as_processes(one_never_comes, 4, hosts=hosts)
    for rank in (0, 2, 3):
        kind, guilty, sentence, _ = results[rank]
        assert (kind, guilty) == ("timeout", (1,)), sentence
        assert "all_reduce #2 (sum of 10 x float64) timed out after" in sentence
        assert "rank 1 (process" in sentence
        assert "has not started it (its last: all_reduce #1 (max of 77 x int16))" in sentence


def stopped(rank: Rank) -> Failure | None:
    group = rank.join()
    group.barrier()
    rank.tell("ready")
    if rank.rank == 1:
        signal.pause()
    return failure_of(lambda: [group.all_reduce(np.zeros(1000), timeout=0.6) for _ in range(1 << 20)])


@ALONE
@pytest.mark.parametrize("hosts", ["", "aab"])
def test_a_stopped_process_is_late_and_named(hosts: str) -> None:
    """It lives, its sockets are open, it does nothing."""
    with Processes(stopped, 3, hosts=hosts) as ranks:
        ranks.wait_for_event("ready")
        ranks.kill(1, signal.SIGSTOP)
        for rank in (0, 2):
            ranks.wait_for_exit(rank)
        ranks.kill(1)
        results = ranks.finish()
    for rank in (0, 2):
        kind, guilty, sentence, _ = results[rank]
        assert (kind, guilty) == ("timeout", (1,)), sentence


UNREAPED = """
import errno, os, sys
import numpy as np
from syntony import Communicator, TcpBootstrap
from tests.csrc.runtime import seccomp
child = os.fork()  # rank 1, whose parent is rank 0 and does not wait for it
seccomp.refuse("pidfd_open", seccomp.ERRNO + errno.EPERM)  # as older container runtimes do
with TcpBootstrap(int(child == 0), 2, "127.0.0.1", int(sys.argv[1])) as bootstrap:
    group = Communicator.create(bootstrap, timeout=20)
    group.all_reduce(np.ones(4))
    if child == 0:
        os._exit(1)
    try:
        group.all_reduce(np.ones(4))
    except Exception as error:
        print(error)
"""


def test_a_zombie_is_dead_where_there_are_no_pidfds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-c", UNREAPED, str(port)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert re.search(r"rank 1 \(process \d+ on .*\) died", done.stdout), (done.stdout, done.stderr)
