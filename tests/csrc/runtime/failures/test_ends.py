"""How a group ends by itself: abort, shutdown, fork, exit; and what it refuses to begin with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from syntony import _core
from tests.csrc.runtime.group import failure_of
from tests.csrc.runtime.harness import ROOT, Processes, Rank, run_as_processes, run_as_threads

HOSTS = pytest.mark.parametrize("hosts", ["", "aabb", "abcd"])
PROMISE = 20.0  # seconds until the exceptions: less than the time-out, which would end a wait as well
Failure = tuple[str, tuple[int, ...], str, float]


def one_aborts(rank: Rank) -> Failure:
    group = rank.join(name="mine")
    pending = [group.all_reduce(np.zeros(10), async_op=True) for _ in range(5)] if rank.rank != 2 else []
    receive = group.receive(np.zeros(1, np.uint8), 2, 5, async_op=True)
    if rank.rank == 2:
        rank.meet("all are waiting")
        group.raw.abort("the loss is not a number")
        group.raw.abort("twice is once")
    else:
        rank.meet("all are waiting")
    failures = [failure_of(work.wait) for work in (*pending, receive)]
    failures.append(failure_of(lambda: group.barrier()))
    failures.append(failure_of(lambda: group.send(np.zeros(1, np.uint8), 0)))
    assert len({failure[:2] for failure in failures}) == 1
    rank.meet("end")
    group.shutdown()
    return failures[0]


@HOSTS
def test_an_abort_reaches_everybody_with_its_reason(hosts: str) -> None:
    for kind, guilty, sentence, _ in run_as_processes(one_aborts, 4, hosts=hosts):
        assert (kind, guilty) == ("aborted", (2,))
        assert "rank 2 aborted group mine: the loss is not a number" in sentence


def abort_then_die(rank: Rank) -> Failure | None:
    group = rank.join()
    rank.meet("all have joined")  # who still compares clocks then would hear of it there
    if rank.rank == 0:
        group.raw.abort("last words")
        os.kill(os.getpid(), signal.SIGKILL)
    return failure_of(lambda: group.all_reduce(np.zeros(1)))


@HOSTS
def test_an_abort_is_told_before_it_returns(hosts: str) -> None:
    with Processes(abort_then_die, 4, hosts=hosts) as ranks:
        ranks.kill(0, signal.SIGCONT)  # its death is expected
        results = ranks.finish()
    for rank in (1, 2, 3):
        kind, guilty, sentence, _ = results[rank]
        assert (kind, guilty) == ("aborted", (0,)), sentence
        assert "last words" in sentence


def used_after_the_end(rank: Rank) -> None:
    group = rank.join(name="mine")
    group.barrier()
    group.shutdown()
    group.shutdown()
    for call in (
        lambda: group.barrier(),
        lambda: group.all_reduce(np.zeros(3)),
        lambda: group.all_reduce(np.zeros(3), async_op=True),
        lambda: group.send(np.zeros(1, np.uint8), 1 - rank.rank),
        lambda: group.receive(np.zeros(1, np.uint8), 1 - rank.rank),
    ):
        kind, _, sentence, _ = failure_of(call)
        assert kind == "aborted"
        assert f"rank {rank.rank} has shut group mine down" in sentence
    group.raw.abort("too late to matter")


def test_use_after_shutdown_is_an_error() -> None:
    run_as_processes(used_after_the_end, 2)
    run_as_threads(used_after_the_end, 2, share_process=True)


def foreign_schedule(rank: Rank) -> None:
    group = rank.join()
    with pytest.raises(ValueError, match="the schedule eight is for 8 ranks, the group has 4"):
        group.raw.add_program("eight", _core.build("ring", "all_reduce", 8))
    group.raw.add_program("four", _core.build("ring", "all_reduce", 4))
    array = np.full(5, rank.rank)
    group.all_reduce(array, algorithm="four")
    assert np.all(array == 6)
    with pytest.raises(ValueError, match="the schedule four does all_reduce, not broadcast"):
        group.broadcast(array, algorithm="four")
    group.barrier()
    group.shutdown()


def test_a_schedule_for_eight_ranks_is_refused_by_four() -> None:
    run_as_threads(foreign_schedule, 4)


def forks(rank: Rank) -> None:
    group = rank.join()
    array = np.full(1000, 1)
    group.all_reduce(array)
    children = []
    for way in ("return", "use"):
        child = os.fork()
        if child == 0:
            if way == "use":
                try:
                    group.barrier()
                except ValueError as error:
                    os._exit(7 if "forked" in str(error) else 1)
                os._exit(1)
            del group
            rank.process.close()
            sys.exit(0)  # as a script would: all destructors and exit handlers run
        children.append(child)
    for child, expected in zip(children, (0, 7), strict=True):
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == expected
    for _ in range(50):
        group.all_reduce(array)
    group.shutdown()


@pytest.mark.parametrize("hosts", ["", "ab"])
def test_a_forked_child_goes_quietly_and_the_parent_goes_on(hosts: str) -> None:
    run_as_processes(forks, 2, hosts=hosts)


SCRIPT = """
import threading, numpy as np
from syntony import _core
from tests.csrc.runtime.group import Group
from tests.csrc.runtime.harness import Members, _Meeting
import time
{process}
meeting = _Meeting(time.monotonic() + 20)
groups = [None, None]
def run(rank):
    gather = lambda topic, blob, members: meeting.gather(rank, topic, blob, members)
    groups[rank] = Group(_core.Communicator(process, Members(rank, (0, 1), "g", gather), 20.0, "g"))
    groups[rank].all_reduce(np.zeros(1000))
    {last}
threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
{end}
"""


OWN = "process = _core.Process()"
SHARED = "from syntony.collectives.bootstrap.process import current; process = current()"
IN_FLIGHT = "groups[rank].receive(np.zeros(1, np.uint8), 1 - rank, async_op=True)"


@pytest.mark.parametrize(
    ("process", "end", "last"),
    [
        (OWN, "", "pass"),
        (OWN, "del groups", "pass"),
        (SHARED, "", IN_FLIGHT),
        (SHARED, "del groups", IN_FLIGHT),
        (SHARED, "import sys; sys.exit(0)", IN_FLIGHT),
        (SHARED, "groups[0].shutdown()", IN_FLIGHT),
    ],
)
def test_a_script_may_simply_end(process: str, end: str, last: str) -> None:
    """Without shutdown, with operations in flight, however it ends: soon, quietly and with code 0."""
    script = SCRIPT.format(process=process, end=end, last=last)
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def odd_environment(rank: Rank) -> str:
    try:
        rank.join()
    except (ValueError, _core.CommunicationError) as error:
        return str(error)
    return "joined"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("SYNTONY_SLOT_BYTES", "100", "must be a multiple of 64 between 4096 and 16777216"),
        ("SYNTONY_SLOT_BYTES", "many", "is not a whole number"),
        ("SYNTONY_WAIT_WARNING", "86401", "must be from 0 to 86400 seconds"),
    ],
)
def test_wrong_numbers_are_refused(variable: str, value: str, sentence: str) -> None:
    for said in run_as_processes(odd_environment, 2, environment={variable: value}):
        assert f"{variable}={value} {sentence}" in said


def unequal_environment(rank: Rank, variable: str) -> str:
    values = ("tls", "none") if variable == "SYNTONY_ENCRYPTION" else ("4096", "8192")
    os.environ[variable] = values[rank.rank]
    return odd_environment(rank)


@pytest.mark.parametrize(
    "variable",
    ["SYNTONY_SLOT_BYTES", "SYNTONY_TRACE_ENTRIES", "SYNTONY_BALANCE", "SYNTONY_ENCRYPTION", "SYNTONY_WAIT_WARNING"],
)
def test_settings_that_must_be_equal_are_compared(variable: str) -> None:
    for said in run_as_processes(unequal_environment, 2, variable):
        assert f"has {variable}=" in said
        assert "they must be equal" in said
