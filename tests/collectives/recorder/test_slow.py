"""Ranks that the others wait for: found from durations alone, in made-up records, in real processes, by the command."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import Communicator
from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.collectives.recorder import metrics
from syntony.collectives.recorder.records import Dump, GroupRecord, Operation, counters
from syntony.collectives.recorder.slow import FEWEST, slow_ranks
from tests.collectives.recorder.slow_script import free_port, run_slowed
from tests.csrc.runtime.harness import Processes, Rank
from tests.sampled import examples

STEP = 0.05  # seconds


def job(delays: np.ndarray, clocks: np.ndarray) -> list[Dump]:
    """Each rank computes a step and its delay (collectives x ranks), then all_reduces; its clock is off by `clocks`."""
    count, size = delays.shape
    dumps = []
    now = np.zeros(size)
    operations: list[list[Operation]] = [[] for _ in range(size)]
    for sequence in range(count):
        calls = now + STEP + delays[sequence]
        end = calls.max() + 0.001
        for rank in range(size):
            times = (calls[rank] + clocks[rank], calls[rank] + clocks[rank], end + clocks[rank])
            operations[rank].append(
                Operation("g", sequence + 1, "all_reduce", "float32", "sum", "ring", 0, 0, 1, 1, 4, "completed",
                          "caller", *times)
            )  # fmt: skip
        now[:] = end
    for rank in range(size):
        group = GroupRecord("g", rank, tuple(range(size)), count, 0, "", 0.0)
        monotonic = float(now[rank] + clocks[rank])
        dumps.append(Dump(rank, f"host{rank}", 1, monotonic, 1000.0, (group,), tuple(operations[rank])))
    return dumps


@given(st.integers(2, 9), st.integers(0, 1 << 30), st.data())
@examples(25)
def test_a_slow_rank_is_named_and_no_other(size: int, seed: int, data: st.DataObject) -> None:
    """At 70 % of its speed, steadily or in bursts, among noise, whatever the clocks say."""
    random = np.random.default_rng(seed)
    noise = random.exponential(STEP / 20, (200, size))
    clocks = random.uniform(-1e5, 1e5, size)
    assert slow_ranks(job(noise, clocks)) == []
    victim = data.draw(st.integers(0, size - 1))
    bursts = data.draw(st.booleans())
    late = np.where(np.arange(200) % 10 < 3, STEP * 3 / 7 / 0.3, 0.0) if bursts else np.full(200, STEP * 3 / 7)
    noise[:, victim] += late
    found = slow_ranks(job(noise, clocks))
    assert [one.rank for one in found] == [victim]
    assert found[0].waited == pytest.approx(late.sum(), rel=0.15)
    assert re.fullmatch(
        rf"rank {victim} is slow: in 200 collectives the others waited [\d.]+ s for it, \d+% of the last [\d.]+ s",
        str(found[0]),
    )


def test_what_happened_once_is_no_slowness() -> None:
    delays = np.zeros((100, 4))
    delays[50, 2] = 3.0  # a checkpoint, say: a third of all the time
    assert slow_ranks(job(delays, np.zeros(4))) == []


def test_who_leaves_a_broadcast_last_is_not_slow() -> None:
    """Rank 2 begins late because its broadcast ended late. Nor is hidden who is slow: rank 0, which computes long."""
    late = np.zeros((200, 3))
    late[:, 2] = STEP / 3
    dumps = job(late, np.zeros(3))
    assert [one.rank for one in slow_ranks(dumps)] == [2]

    def with_broadcasts(dump: Dump, tail: float) -> Dump:
        """Every second operation is a broadcast, which ends `tail` before the all_reduce after it begins."""
        operations = []
        for one in dump.operations:
            end = one.created - tail
            times = (end - STEP / 2, end - STEP / 2, end)
            operations.append(replace(one, sequence=2 * one.sequence - 1, collective="broadcast",
                                      created=times[0], started=times[1], finished=times[2]))  # fmt: skip
            operations.append(replace(one, sequence=2 * one.sequence))
        return replace(dump, operations=tuple(operations))

    assert slow_ranks([with_broadcasts(dump, STEP / 10) for dump in dumps]) == []
    computing = [STEP / 2 if dump.rank == 0 else STEP / 10 for dump in dumps]
    early = job(np.where(np.arange(3) == 0, STEP / 3, 0.0) + np.zeros((200, 1)), np.zeros(3))
    found = slow_ranks([with_broadcasts(dump, tail) for dump, tail in zip(early, computing, strict=True)])
    assert [one.rank for one in found] == [0]


def test_there_is_no_verdict_on_little() -> None:
    assert slow_ranks(job(np.full((FEWEST - 1, 2), [0.0, 1.0]), np.zeros(2))) == []
    dumps = job(np.full((100, 3), [0.0, 0.0, 1.0]), np.zeros(3))
    assert [one.rank for one in slow_ranks(dumps)] == [2]
    assert slow_ranks(dumps[:2]) == [], "nobody knows what the rank without a record did"


def work(rank: Rank) -> int:
    group = Communicator(rank.join(timeout=60.0).raw)
    folder = Path(os.environ["SYNTONY_TRACE_DIR"])
    data = np.ones(1000, np.float32)
    going = np.ones(1, np.int32)
    step = 0
    while going[0]:
        time.sleep(0.02 if rank.rank == 1 else 0.005)
        group.all_reduce(data, op="max")
        going[0] = not (folder / "stop").exists()
        group.all_reduce(going, op="min")
        step += 1
        if step == 60:
            rank.tell("busy")
    return 0


def test_running_ranks_say_who_is_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Processes(work, 3, hosts="aab", environment={"SYNTONY_TRACE_DIR": str(tmp_path)}) as ranks:
        ranks.wait_for_event("busy", [0, 1, 2])
        assert main(["trace", str(tmp_path), "--now", "--wait", "20"]) == 1
        assert "rank 1 is slow: " in capsys.readouterr().out
        for record in tmp_path.glob("syntony_rank_*"):
            record.unlink()  # as before the first one
        ended = threading.Timer(2.0, (tmp_path / "stop").touch)
        ended.start()
        assert main(["trace", str(tmp_path), "--every", "0.5", "--wait", "1"]) == 0
        ranks.finish()
    told = capsys.readouterr().out
    assert re.search(r"^\d\d:\d\d:\d\d rank 1 is slow: ", told, re.MULTILINE)
    assert told.rstrip().endswith("no rank answers any more")


@pytest.mark.soak
@pytest.mark.timeout(1600)
def test_a_rank_that_becomes_slow_is_named_within_a_minute_and_nothing_else_in_twenty(tmp_path: Path) -> None:
    told = run_slowed(tmp_path, seconds=1290, victim=2, since=30, until=90)
    named = [(when, text) for when, text in told if "is slow" in text and "no rank" not in text]
    assert named, told
    assert all(text.startswith("rank 2 is slow: ") and 30 < when < 120 for when, text in named), told
    assert named[0][0] < 90, told


# ---- SYNTONY_METRICS ------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(metrics, "_process", 0)
    monkeypatch.setattr(metrics, "INTERVAL", 0.02)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return monkeypatch


def test_counters_are_served_at_a_port(fresh: pytest.MonkeyPatch) -> None:
    from syntony import LocalBootstrap

    port = free_port()
    fresh.setenv("SYNTONY_METRICS", str(port - 1))
    fresh.setenv("LOCAL_RANK", "1")
    with Communicator.create(LocalBootstrap.group(1)[0], name="measured") as group:
        group.all_reduce(np.ones(4))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            text = answer.read().decode()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert re.search(
            r'^syntony_operations_total\{group="measured",rank="0",collective="all_reduce"\} 1$', text, re.M
        )
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/etc/passwd", timeout=20)


def test_counters_are_written_to_a_file_again_and_again(fresh: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from syntony import LocalBootstrap

    fresh.setenv("SYNTONY_METRICS", str(tmp_path / "%r-%p%%.prom"))
    file = tmp_path / f"7-{os.getpid()}%.prom"
    with Communicator.create(LocalBootstrap.group(1)[0], name="written", job_ranks=[7]) as group:
        assert file.exists()
        group.all_reduce(np.ones(4))
        deadline = time.monotonic() + 30
        while 'group="written",rank="0",collective="all_reduce"} 1' not in file.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    while [path.name for path in tmp_path.iterdir()] != [file.name]:  # it may be written once more just now
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("{taken}", r"cannot listen on 127\.0\.0\.1:\d+: Address already in use"),
        ("65536", "65536 is not a port"),
        ("/nowhere/%r.prom", "/nowhere/0.prom: cannot be written"),
    ],
)
def test_metrics_that_cannot_be_get_a_sentence(value: str, sentence: str, fresh: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        fresh.setenv("SYNTONY_METRICS", value.format(taken=server.getsockname()[1]))
        with pytest.raises(UserError, match=f"^SYNTONY_METRICS.*{sentence}"):
            metrics.offer_if_asked(0)


def test_the_dashboard_asks_for_counters_that_there_are() -> None:
    """Every metric and label in its queries is in our text."""
    board = json.loads((Path(__file__).parents[3] / "docs" / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) == len(board["panels"]) > 4
    told = set(re.findall(r"^# TYPE (\S+)", counters(), re.MULTILINE))
    assert {name for query in queries for name in re.findall(r"syntony_\w+", query)} <= told
    labels = {
        label for query in queries for found in re.findall(r"by \(([^)]*)\)", query) for label in found.split(", ")
    }
    assert labels <= {"group", "rank", "collective", "peer"}
