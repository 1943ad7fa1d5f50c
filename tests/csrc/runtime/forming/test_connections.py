"""Data connections are made when first needed: a rank has as many as it has neighbours in what has run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.csrc.runtime.harness import Rank, run_as_processes

FLOWS = 1  # data sockets per pair


def sockets(rank: Rank, moment: str) -> int:
    """That this process has open while no rank goes on."""
    rank.meet(f"before {moment}")
    links = (link for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    count = sum(str(link.readlink()).startswith("socket:") for link in links)
    rank.meet(f"after {moment}")
    return count


def counted(rank: Rank) -> tuple[int, int]:
    group = rank.join()
    formed = sockets(rank, "formed")
    for _ in range(3):
        data = np.full(1000, rank.rank, np.int64)
        group.all_reduce(data, algorithm="ring")
        assert (data == sum(range(rank.size))).all()
    ring = sockets(rank, "ring")
    views = {b: np.full(8, rank.rank, np.uint8) for b in range(rank.size**2) if b // rank.size == rank.rank}
    taken = {b: np.empty(8, np.uint8) for b in range(rank.size**2) if b % rank.size == rank.rank}
    group.run("all_to_all", "uint8", [8] * rank.size**2, views, taken, algorithm="direct")
    assert all((block == b // rank.size).all() for b, block in taken.items())
    everyone = sockets(rank, "all_to_all")
    group.shutdown()
    return ring - formed, everyone - ring


def test_a_rank_has_as_many_connections_as_neighbours() -> None:
    size = 6
    for ring, everyone in run_as_processes(counted, size, hosts=[f"host{r}" for r in range(size)]):
        assert ring == 2 * FLOWS
        assert ring + everyone == (size - 1) * FLOWS


def first_messages(rank: Rank, turns: int) -> bool:
    """All ranks send to all at once, in a fresh group each time, and go at once."""
    for turn in range(turns):
        group = rank.join(name=f"turn {turn}")
        taken = {r: np.empty(100_000, np.uint8) for r in range(rank.size) if r != rank.rank}
        works = [group.receive(into, source, timeout=30.0, async_op=True) for source, into in taken.items()]
        works += [
            group.send(np.full(100_000, rank.rank, np.uint8), other, timeout=30.0, async_op=True) for other in taken
        ]
        for work in works:
            work.wait()
        assert all((block == source).all() for source, block in taken.items())
        group.shutdown()
    return True


def test_ranks_that_send_to_each_other_at_once_share_a_connection() -> None:
    assert all(run_as_processes(first_messages, 4, 5, hosts=[f"host{r}" for r in range(4)]))
