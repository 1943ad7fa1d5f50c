"""More hosts than have a control connection each with each: what one rank knows, its neighbours tell on."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from tests.csrc.runtime.group import Group, failure_of
from tests.csrc.runtime.harness import Processes, Rank

RANKS, DOOMED = 20, 7
DESCRIPTORS = 64


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def until_somebody_dies(rank: Rank) -> tuple[int, str, tuple[int, ...], float, int]:
    before = open_descriptors()
    group = rank.join()
    for _ in range(3):
        data = np.full(1000, rank.rank, np.int64)
        group.all_reduce(data)
        assert (data == sum(range(RANKS))).all()
    used = open_descriptors() - before
    rank.meet("all have summed")
    rank.tell("working")

    def work() -> None:
        while True:
            group.all_reduce(np.ones(1000, np.int64), timeout=60.0)

    kind, ranks, sentence, _ = failure_of(work)
    heard = time.monotonic()
    assert f"rank {DOOMED} (process " in sentence, sentence
    survivors = Group(group.raw.shrink([], 30.0, "survivors"))
    data = np.full(10, rank.rank, np.int64)
    survivors.all_reduce(data)
    assert (data == sum(range(RANKS)) - DOOMED).all()
    survivors.shutdown()
    group.shutdown()
    return used, kind, ranks, heard, survivors.size


def test_all_ranks_hear_of_a_death_and_go_on_without_it() -> None:
    hosts = [f"host{r}" for r in range(RANKS)]
    with Processes(until_somebody_dies, RANKS, hosts=hosts) as ranks:
        ranks.wait_for_event("working")
        killed = time.monotonic()
        ranks.kill(DOOMED)
        values = [value for rank, value in enumerate(ranks.finish()) if rank != DOOMED]
    print(
        "named after", [round(value[3] - killed, 3) for value in values], "descriptors", [value[0] for value in values]
    )
    for used, kind, blamed, _, left in values:
        assert used <= DESCRIPTORS
        assert (kind, blamed, left) == ("dead", (DOOMED,), RANKS - 1)
