"""The table of two hosts on a fast wire. The lab itself needs root."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from syntony.benchmarks.mpi.lab_hosts import LabHosts
from syntony.benchmarks.runtime.measured.wire_rank import GLOO, IN_PLACE, OURS, RAW, Crossing, RawTcp, Work, carried
from syntony.benchmarks.runtime.wire import missed
from syntony.collectives.bootstrap.launch import Exchange, run_ranks


@pytest.mark.parametrize(
    ("size", "ours", "wrong", "said"),
    [
        (16 << 20, 1.1, 0, ""),
        (16 << 20, 1.2, 0, "less than 0.85 of raw TCP"),
        (16 << 20, 1.0, 3, "3 wrong elements"),
        (1 << 20, 9.0, 0, ""),
        (8, 1.2, 0, ""),
        (8, 1.4, 0, "more than 1.3 times raw TCP"),
    ],
)
def test_goals(size: int, ours: float, wrong: int, said: str) -> None:
    assert missed(Crossing("all_gather", size, {OURS: ours, IN_PLACE: ours, GLOO: 2.0, RAW: 1.0}, wrong)) == said


def test_gloo_must_be_beaten_by_far() -> None:
    assert (
        missed(Crossing("all_reduce", 16 << 20, {OURS: 1.0, IN_PLACE: 1.0, GLOO: 1.4, RAW: 1.0}, 0))
        == "less than 1.5 x gloo"
    )


@pytest.mark.parametrize(("size", "said"), [(16 << 20, "less than 1.2 x MPI"), (1 << 20, "")])
def test_the_best_mpi_must_be_beaten(size: int, said: str) -> None:
    seconds = {OURS: 1.0, IN_PLACE: 1.0, GLOO: 2.0, RAW: 1.0, "mpich": 1.1, "impi": 1.3}
    assert missed(Crossing("all_reduce", size, seconds, 0)) == said


def test_work_is_read_as_it_was_written() -> None:
    work = Work(("all_gather",), (8, 16), 2, ("impi",), LabHosts(("10.0.0.1", "10.0.0.2"), "/bin/sh"))
    assert Work.of(json.loads(json.dumps(asdict(work)))) == work
    assert Work.of(json.loads(json.dumps(asdict(Work((), (), 1))))).hosts is None


def test_bytes_that_must_travel() -> None:
    assert [carried(name, 1000) for name in ("all_reduce", "all_gather")] == [1000, 500]


def _swaps(exchange: Exchange) -> int:
    raw = RawTcp(exchange, 3_000_000)
    raw._sent[:] = memoryview(np.full(3_000_000, exchange.rank + 1, np.uint8))
    for size in (1, 3_000_000, 17):
        raw.swap(size)
        assert set(bytes(raw._received[:size])) == {2 - exchange.rank}, size
    raw.close()
    return 0


def test_both_send_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    run_ranks(2, _swaps, 60.0)
