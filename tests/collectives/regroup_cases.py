"""Groups that are made out of groups, by real processes.

main() forks `ranks` ranks that meet through TcpBootstrap. `hosts` is "one" (shared memory), "each" (every rank claims a
host of its own: TCP) or "two" (both). `victim` is the rank that dies. 0 when every rank that should live did all it
should.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable

import numpy as np
import pytest

from syntony import CommunicationError, Communicator, TcpBootstrap
from syntony.collectives.bootstrap import process

Case = Callable[[Communicator, int], None]


def summed(group: Communicator, values: list[int]) -> None:
    """All members add their old ranks, three times, by each way of moving data."""
    for elements in (1, 1000, 300_000):
        array = np.full(elements, values[group.rank], np.int64)
        group.all_reduce(array)
        assert (array == sum(values)).all(), (array[0], values)


def fails(call: Callable[[], object], *words: str) -> CommunicationError:
    with pytest.raises(CommunicationError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value
    return caught.value


def split(group: Communicator, victim: int) -> None:
    """Twice by colour, with reversed keys, and without a colour; a split of a split; the old group goes on."""
    for turn in range(3):
        parts = group.split(group.rank % 2, key=-group.rank)
        assert parts is not None
        expected = sorted(range(group.rank % 2, group.size, 2), reverse=True)
        assert parts.members == expected, (turn, parts.members)
        assert parts.members[parts.rank] == group.rank
        summed(parts, expected)
        alone = parts.split(parts.rank)
        assert alone is not None
        assert (alone.size, alone.rank) == (1, 0)
        some = group.split(5 if group.rank else None)
        assert (some is None) == (group.rank == 0)
        if some is not None:
            summed(some, list(range(1, group.size)))
            some.close()
        parts.close()
        summed(group, list(range(group.size)))


def killed(group: Communicator, victim: int) -> None:
    """In the middle of large all_reduces one rank is killed; the others shrink and go on, and the old group is over."""
    others = [rank for rank in range(group.size) if rank != victim]
    array = np.ones(1 << 20, np.float32)
    if group.rank == victim:
        group.all_reduce(array)
        group.all_reduce(array, op="max", async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def work_on() -> None:
        group.all_reduce(array)  # the death may be heard of before its last bytes
        while True:
            group.all_reduce(array, op="max")

    error = fails(work_on, f"rank {victim}")
    assert error.ranks == (victim,), error.ranks
    started = time.monotonic()
    survivors = group.shrink()
    assert time.monotonic() - started < 5
    assert survivors.members == others, survivors.members
    summed(survivors, others)
    fails(lambda: group.all_reduce(array), f"rank {victim}")
    again = survivors.split(survivors.rank % 2)
    assert again is not None
    summed(again, survivors.members[survivors.rank % 2 :: 2])


def killed_one_after_another(group: Communicator, victim: int) -> None:
    """A second rank dies when the first is noticed, while the others shrink: they find one group, perhaps at once."""
    second = (victim + 1) % group.size
    array = np.ones(1 << 16, np.float32)
    if group.rank == victim:
        group.barrier()  # all have joined
        os.kill(os.getpid(), signal.SIGKILL)
    fails(lambda: [group.barrier(), *(group.all_reduce(array) for _ in range(1000))])
    if group.rank == second:
        os.kill(os.getpid(), signal.SIGKILL)
    survivors = group.shrink()
    if survivors.size == group.size - 1:  # the second died after all had agreed
        fails(lambda: [survivors.all_reduce(array) for _ in range(1000)])
        survivors = survivors.shrink()
    assert survivors.size == group.size - 2
    array[:] = 1
    survivors.all_reduce(array)
    assert (array == survivors.size).all()


def excluded(group: Communicator, victim: int) -> None:
    """A healthy group goes on without one that lives: that one is told when it goes on alone."""
    others = [rank for rank in range(group.size) if rank != victim]
    if group.rank == victim:
        fails(lambda: group.all_reduce(np.ones(10)), "left the group")
        return
    survivors = group.shrink([victim])
    assert survivors.members == others
    summed(survivors, others)


def excluded_by_one(group: Communicator, victim: int) -> None:
    """Only the first survivor excludes; the others learn it, and so does the excluded one, by name."""
    first = (victim + 1) % group.size
    if group.rank == victim:
        fails(lambda: group.shrink(), "has shrunk group", f"without rank {victim}")
        return
    survivors = group.shrink([victim] if group.rank == first else [])
    assert survivors.size == group.size - 1


def late(group: Communicator, victim: int) -> None:
    """A rank that does not come to a split, nor to a shrink, is named."""
    if group.rank == victim:
        time.sleep(1.5)
        return
    error = fails(lambda: group.split(0, timeout=0.4), f"rank {victim}", "did not come")
    assert error.kind == "timeout"
    assert error.ranks == (victim,)
    error = fails(lambda: group.shrink(timeout=0.4), f"rank {victim}", "did not come")
    assert error.kind == "timeout"


CASES: dict[str, Case] = {
    case.__name__: case for case in (split, killed, killed_one_after_another, excluded, excluded_by_one, late)
}
HOSTS: dict[str, Callable[[int], str]] = {
    "one": lambda rank: "",
    "each": lambda rank: f"host-{rank}",
    "two": lambda rank: f"host-{rank % 2}",
}


def main(case: str, ranks: int, hosts: str, victim: int) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child != 0:
            children.append(child)
            continue
        status = 1
        try:
            os.environ["SYNTONY_HOST"] = HOSTS[hosts](rank)
            bootstrap = TcpBootstrap(rank, ranks, "127.0.0.1", port, 60)
            CASES[case](Communicator.create(bootstrap, timeout=30.0), victim)
            process.current().close()  # as every exit but the one below: who still reads our last bytes is told goodbye
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(statuses)
    return 0 if all(status in (0, -signal.SIGKILL) for status in statuses) else 1
