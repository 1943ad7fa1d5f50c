"""`in_network`, the algorithm of groups whose ranks have aggregators: sums, refusals and ends, and a torch script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from syntony import CommunicationError, Communicator
from syntony.base.command import UserError
from syntony.collectives.bootstrap.launch import Exchange, run_ranks
from tests.collectives.running import HERE, launch

RANKS = 4
GROUPS = [[0, 1], [2, 3]]
WAITING = 30.0


@contextmanager
def aggregator() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "syntony.lab.aggregator", "--tenants", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[2].rstrip(":"), process
        process.kill()


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two leaves and a root; by rank, its SYNTONY_AGGREGATOR."""
    monkeypatch.setenv("SYNTONY_SECRET", "sesame")
    with aggregator() as (root, _), aggregator() as (one, _), aggregator() as (other, _):
        yield [f"{leaf},{root}" for leaf in (one, one, other, other)]


def on_ranks(folder: Path, job: Callable[[Communicator], object], ways: list[str], **environment: str) -> list[object]:
    """What `job` returns on each rank, a process of its own, or the sentence that it raised."""

    def work(exchange: Exchange) -> int:
        os.environ.update(environment)
        if ways[exchange.rank]:
            os.environ["SYNTONY_AGGREGATOR"] = ways[exchange.rank]
        try:
            with Communicator.create(exchange, timeout=WAITING) as group:
                answer = job(group)
                group.barrier()
        except (CommunicationError, UserError, ValueError) as error:
            answer = f"{type(error).__name__}: {error}"
        (folder / str(exchange.rank)).write_text(json.dumps(answer))
        return 0

    run_ranks(len(ways), work, 2 * WAITING)
    return [json.loads((folder / str(rank)).read_text()) for rank in range(len(ways))]


def numbers(rank: int, elements: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng((seed, rank)).standard_normal(elements, np.float32)


def group_by_group(elements: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    one, other = (numbers(first, elements, seed) + numbers(second, elements, seed) for first, second in GROUPS)
    return one + other


def test_sums_have_the_bits_of_the_tree(ways: list[str], tmp_path: Path) -> None:
    """In place and apart, one behind the other and several at once, averaged and scaled; half of each by each of two
    trees, which here are the same."""

    def job(group: Communicator) -> object:
        rank, right = group.rank, []
        for elements in (1, 1000, 100_000):
            mine = numbers(rank, elements)
            apart = np.empty_like(mine)
            group.all_reduce(mine, apart, algorithm="in_network")
            right.append(np.array_equal(apart, group_by_group(elements)))
            group.all_reduce(mine, op="avg", algorithm="in_network")
            right.append(np.array_equal(mine, group_by_group(elements) / np.float32(RANKS)))
        many = [numbers(rank, 5000, seed) for seed in range(12)]
        for work in [group.all_reduce(each, algorithm="in_network", async_op=True) for each in many]:
            work.wait()
        right += [np.array_equal(each, group_by_group(5000, seed)) for seed, each in enumerate(many)]
        whole = np.full(100, rank, np.int32)
        group.all_reduce(whole, algorithm="in_network")
        return [*map(bool, right), bool(np.all(whole == 6))]

    assert on_ranks(tmp_path, job, [f"{way};{way}" for way in ways]) == [[True] * 19] * RANKS


def test_by_a_rule_what_aggregators_cannot_add_goes_another_way(ways: list[str], tmp_path: Path) -> None:
    def job(group: Communicator) -> object:
        most, wide = np.full(8, group.rank, np.float32), np.full(8, group.rank, np.int64)
        group.all_reduce(most, op="max")
        group.all_reduce(wide)
        sums = np.full(8, group.rank, np.float32)
        group.all_reduce(sums)
        refused = ""
        try:
            group.all_reduce(wide, algorithm="in_network")
        except ValueError as error:
            refused = str(error)
        return [most.tolist(), wide.tolist(), sums.tolist(), group._core.choice("all_reduce", 0, 32)[0], refused]

    sentence = "algorithm in_network adds float32, float16, bfloat16, float64 and int32, and nothing but sums; this is "
    expected = [[3.0] * 8, [6] * 8, [6.0] * 8, "in_network", f"{sentence}sum of int64"]
    assert on_ranks(tmp_path, job, ways, SYNTONY_ALGO="all_reduce:in_network") == [expected] * RANKS


def test_without_an_aggregator_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SYNTONY_AGGREGATOR", raising=False)

    def job(group: Communicator) -> object:
        group.all_reduce(np.ones(4, np.float32), algorithm="in_network")
        return None

    sentence = "ValueError: algorithm in_network needs an aggregator: SYNTONY_AGGREGATOR=HOST:PORT is not set at rank 1"
    for told in on_ranks(tmp_path, job, ["127.0.0.1:1", ""]):
        assert str(told).endswith(sentence)
    for told in on_ranks(tmp_path, job, ["127.0.0.1:1", "127.0.0.1:1;127.0.0.1:2"]):
        assert "rank 0 says 1 ways to aggregators, rank 1 says 2" in str(told)
    told = on_ranks(tmp_path, lambda group: None, ["127.0.0.1:1", "nonsense"])
    assert all("rank 1: the aggregator's address is 'nonsense'; it must be HOST:PORT" in str(one) for one in told)


def test_an_aggregator_s_death_is_named_on_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTONY_SECRET", "sesame")
    with aggregator() as (address, process):

        def job(group: Communicator) -> object:
            data = np.ones(1000, np.float32)
            group.all_reduce(data, algorithm="in_network")
            group.barrier()
            if group.rank == 0:
                os.kill(process.pid, signal.SIGKILL)
            while True:
                group.all_reduce(data, algorithm="in_network")

        for told in on_ranks(tmp_path, job, [address] * 3):
            assert f"the aggregator at {address} is gone" in str(told)


def test_another_secret_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTONY_SECRET", "sesame")
    with aggregator() as (address, _):
        monkeypatch.setenv("SYNTONY_SECRET", "poppy")

        def job(group: Communicator) -> object:
            group.all_reduce(np.ones(1000, np.float32), algorithm="in_network")
            return None

        for told in on_ranks(tmp_path, job, [address] * 2):
            assert "does not know the secret of the aggregator" in str(told)


def test_an_unmodified_script_trains_through_it(ways: list[str]) -> None:
    """DistributedDataParallel with gradient accumulation, buckets, a sparse embedding and join."""
    pytest.importorskip("torch")
    printed = {}
    for algorithm in ("ring", "in_network"):
        told = {"SYNTONY_ALGO": f"all_reduce:{algorithm}", "SYNTONY_AGGREGATOR": ways[0], "SYNTONY_DEBUG": "INFO"}
        done = launch(2, HERE / "torch_backend" / "scripts" / "ddp.py", "syntony", **told)
        assert done.returncode == 0, f"{algorithm}:\n{done.stdout}\n{done.stderr[-3000:]}"
        printed[algorithm] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
        assert f"{algorithm} (SYNTONY_ALGO)" in done.stderr
    assert printed["in_network"] == pytest.approx(printed["ring"], rel=1e-5)
