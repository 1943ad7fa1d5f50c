"""Who waits long says on stderr for whom: SYNTONY_WAIT_WARNING."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.csrc.runtime.harness import Processes, Rank

SECONDS = 1
LATE = 3.5 * SECONDS  # the second warning comes after 2


def warnings(body: Callable[..., Any], ranks: int, *arguments: Any, after: int = SECONDS, hosts: str = "") -> list[str]:
    """What all ranks print."""
    environment = {"SYNTONY_WAIT_WARNING": str(after)}
    with Processes(body, ranks, *arguments, hosts=hosts, environment=environment) as group:
        group.finish()
        return [line for rank in range(ranks) for line in group.log(rank).splitlines()]


def one_is_late(rank: Rank, late: int) -> None:
    group = rank.join(name="mine")
    group.all_reduce(np.zeros(3, np.float32))
    rank.meet("all have summed")
    if rank.rank == late:
        time.sleep(LATE)
    group.all_reduce(np.zeros(5, np.float32))
    rank.meet("end")


@pytest.mark.parametrize("hosts", ["aaa", "abc"])
@pytest.mark.parametrize("late", [0, 1])
def test_the_first_rank_that_waits_names_who_is_late(hosts: str, late: int) -> None:
    lines = warnings(one_is_late, 3, late, hosts=hosts)
    assert lines
    for line in lines:
        assert line.startswith(f"syntony [rank {1 if late == 0 else 0}] WARN group mine: nothing has moved for "), line
        assert re.search(rf"all_reduce #2 \(sum of 5 x float32\); rank {late} \(process \d+ on [^)]*\) has not ", line)
        assert line.endswith("(its last: all_reduce #1 (sum of 3 x float32))"), line
    assert len(lines) == len(set(lines)), "each tells another time"


def one_is_late_for_the_root(rank: Rank) -> None:
    group = rank.join(name="mine")
    rank.meet("all have joined")
    if rank.rank == 1:
        time.sleep(LATE)
    data = np.zeros(24, np.uint8)
    group.run("reduce", "float64", [3], {0: data}, {0: data} if rank.rank == 2 else {}, root=2)
    rank.meet("end")


@pytest.mark.parametrize("hosts", ["aaa", "abc"])
def test_the_root_speaks_if_the_ranks_before_it_are_done(hosts: str) -> None:
    lines = warnings(one_is_late_for_the_root, 3, hosts=hosts)
    assert lines
    assert all("reduce #1" in line and "; rank 1 (process" in line for line in lines), lines


def one_does_not_send(rank: Rank) -> None:
    group = rank.join(name="mine")
    rank.meet("all have joined")
    if rank.rank == 1:
        time.sleep(LATE)
        group.send(np.zeros(3), 0, 7)
    else:
        group.receive(np.zeros(3), 1, 7)
    rank.meet("end")


def test_a_receive_names_who_does_not_send() -> None:
    lines = warnings(one_does_not_send, 2)
    assert lines
    assert all(line.endswith(" in a receive: rank 1 has sent nothing with tag 7") for line in lines), lines


def test_zero_means_never() -> None:
    assert warnings(one_is_late, 3, 1, after=0) == []


def all_rest(rank: Rank) -> None:
    group = rank.join()
    group.all_reduce(np.zeros(3))
    time.sleep(LATE)
    group.all_reduce(np.zeros(3))
    rank.meet("end")


def test_a_group_that_has_nothing_to_do_waits_for_nobody() -> None:
    assert warnings(all_rest, 3, after=3 * SECONDS) == []
