"""The flight recorder: what it keeps, what survives a failure, and what its readers make of it."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import threading
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import CommunicationError, Communicator
from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.collectives.recorder import records as recorder
from syntony.collectives.recorder.records import Dump, GroupRecord, Operation
from tests import forked
from tests.collectives.ranks import Ranks
from tests.collectives.running import launch
from tests.csrc.runtime.harness import Processes, Rank, run_as_processes
from tests.sampled import examples


def joined(rank: Rank, timeout: float = 30.0) -> Communicator:
    return Communicator(rank.join(timeout=timeout).raw)


def _analyse(folders: Sequence[Path]) -> None:
    from torch.distributed.flight_recorder import fr_trace

    for folder in folders:
        print("====", file=sys.stderr)
        fr_trace.main([str(folder), "-o", f"{folder}.out"])


def torchfrtrace(folders: Sequence[Path]) -> list[str]:
    """What torch's analyzer says about each folder; its database is left beside the records."""
    done = forked.run(_analyse, folders)
    assert done.returncode == 0, done.stderr
    return done.stderr.split("====\n")[1:]


# ---- what is kept ---------------------------------------------------------------------------------------------------


def test_every_operation_is_told_as_it_was() -> None:
    ranks = Ranks(3)

    def job(group: Communicator) -> Dump:
        group.all_reduce(np.ones(5, np.float32), op="max")
        group.broadcast(np.ones(7, np.int16), root=2)
        group.all_gather(np.ones(2), np.ones(6), algorithm="ring")
        group.reduce_scatter(np.ones(6, np.int64), np.ones(2, np.int64))
        group.all_to_all(np.ones(3, np.uint8), np.ones(3, np.uint8))
        group.barrier()
        if group.rank == 0:
            group.send(np.ones(4, np.float32), 1, tag=9)
        if group.rank == 1:
            group.recv(np.ones(4, np.float32), tag=9)
        return group.record()

    dumps = ranks.run(job)
    ranks.close()
    for rank, dump in enumerate(dumps):
        told = [
            (one.sequence, one.collective, one.op, one.dtype, one.input_elements, one.output_elements, one.bytes)
            for one in dump.operations
            if one.sequence
        ]
        assert told[0] == (1, "all_reduce", "max", "float32", 5, 5, 20)
        assert told[1] == (2, "broadcast", "sum", "int16", 7, 7, 14)
        assert told[2] == (3, "all_gather", "sum", "float64", 2, 6, 48)
        assert told[3] == (4, "reduce_scatter", "sum", "int64", 6, 2, 48)
        assert told[4] == (5, "all_to_all", "sum", "uint8", 3, 3, 3)
        assert told[5][1] == "barrier"
        assert len(told) == 6
        assert all(one.state == "completed" and one.finished_by for one in dump.operations)
        assert all(one.created <= (one.started or 0) <= (one.finished or 0) for one in dump.operations)
        assert dump.operations[1].peer == 2
        assert "ring" in dump.operations[2].algorithm
        assert dump.groups[0].members == (0, 1, 2)
        assert (dump.rank, dump.process) == (rank, os.getpid())
    message = dumps[0].operations[-1]
    assert (message.collective, message.peer, message.tag, message.bytes) == ("send", 1, 9, 16)
    assert (dumps[1].operations[-1].collective, dumps[1].operations[-1].peer) == ("receive", -1)


def keep_four(rank: Rank) -> tuple[Dump, Dump]:
    group = joined(rank)
    for _ in range(11):
        group.all_reduce(np.ones(1))
    full = group.record()
    if rank.rank == 0:  # more messages than there is room for, none of which can end
        works: list[Any] = [group.recv(np.ones(1), 1, tag, async_op=True) for tag in range(6)]
        stuck = group.record()
    rank.meet("posted")
    if rank.rank == 1:
        for tag in range(6):
            group.send(np.ones(1), 0, tag)
        return full, full
    for work in works:
        work.wait()
    group.close()
    return full, stuck


def test_the_ring_keeps_the_last_ones_and_never_forgets_what_is_unfinished() -> None:
    (full, stuck), _ = run_as_processes(keep_four, 2, environment={"SYNTONY_TRACE_ENTRIES": "4"})
    assert [one.sequence for one in full.operations] == [8, 9, 10, 11]
    assert full.groups[0].launched == 11
    assert [one.tag for one in stuck.operations] == [0, 1, 2, 3]
    assert stuck.groups[0].unrecorded == 2


def record_nothing(rank: Rank) -> tuple[Dump, str]:
    group = joined(rank)
    group.all_reduce(np.ones(1))
    return group.record(), group.counters()


def test_a_recorder_of_no_entries_is_off() -> None:
    dump, counters = run_as_processes(record_nothing, 2, environment={"SYNTONY_TRACE_ENTRIES": "0"})[0]
    assert dump.operations == ()
    assert "all_reduce" not in counters


def count_wrongly(rank: Rank) -> str:
    with pytest.raises(ValueError, match="SYNTONY_") as caught:
        joined(rank)
    return str(caught.value)


@pytest.mark.parametrize(("variable", "value"), [("SYNTONY_TRACE_ENTRIES", "many"), ("SYNTONY_DEBUG", "verbose")])
def test_a_wrong_variable_gets_a_sentence(variable: str, value: str) -> None:
    assert f"{variable}={value} is no" in run_as_processes(count_wrongly, 1, environment={variable: value})[0]


def test_readers_see_whole_records_while_operations_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTONY_TRACE_ENTRIES", "40")
    ranks, stop, seen = Ranks(2), threading.Event(), []

    def read() -> None:
        while not stop.wait(0.0005):
            seen.append(ranks.groups[0].record().operations)

    reader = threading.Thread(target=read)
    reader.start()

    def job(group: Communicator) -> None:
        for i in range(600):  # the ring goes round and round
            group.all_reduce(np.ones(1 + i % 7, np.float32))

    ranks.run(job)
    stop.set()
    reader.join()
    ranks.close()
    assert seen
    for operations in seen:
        sequences = [one.sequence for one in operations]
        assert sequences == sorted(set(sequences))
        for one in operations:
            assert one.bytes == 4 * (1 + (one.sequence - 1) % 7)
            assert one.created <= (one.started or one.created) <= (one.finished or np.inf)
            assert (one.state == "completed") == (one.finished is not None)


def test_counters_add_up() -> None:
    ranks = Ranks(2)

    def job(group: Communicator) -> str:
        for _ in range(5):
            group.all_reduce(np.ones(10, np.float32))
        group.barrier()
        return group.counters()

    text = ranks.run(job)[1]
    ranks.close()
    values = dict(re.findall(r"^(syntony_\w+\{.*\}) ([\d.]+)$", text, re.MULTILINE))
    labels = '{group="kept",rank="1",collective="all_reduce"}'
    assert values[f"syntony_operations_total{labels}"] == "5"
    assert values[f"syntony_bytes_total{labels}"] == "200"
    assert values[f"syntony_failures_total{labels}"] == "0"
    assert float(values[f"syntony_running_seconds_total{labels}"]) > 0
    assert values['syntony_operations_total{group="kept",rank="1",collective="barrier"}'] == "1"
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) syntony_\w+ .+|syntony_\w+\{(\w+="[^"]*",?)+\} [\d.]+', line), line


# ---- failures -------------------------------------------------------------------------------------------------------


def stop_early(rank: Rank, steps: Sequence[int], what: str) -> str:
    """Rank r does steps[r] all_reduces; then, unless all do equally many, some wait in vain."""
    group = joined(rank)
    for _ in range(min(steps)):
        group.all_reduce(np.ones(4, np.float32))
    try:
        for _ in range(steps[rank.rank] - min(steps)):
            group.all_reduce(np.ones(4, np.float32), timeout=0.5)
        if what == "mismatch":
            group.all_reduce(np.ones(8 if rank.rank == 2 else 4, np.float32))
        if what == "kill":  # of rank 1, which others wait for: who hears of it before it calls has nothing to record
            waiting = group.all_reduce(np.ones(4, np.float32), async_op=True) if rank.rank != 1 else None
            rank.tell("together")
            if waiting is None:
                rank.meet("never")
            else:
                waiting.wait()
    except CommunicationError as error:
        sentence = str(error)
        group.close()
        return sentence
    while what == "miss" and not group.record().groups[0].failure:
        time.sleep(0.02)
    if what == "healthy":
        group.dump(os.environ["SYNTONY_TRACE_DIR"])
        rank.meet("dumped")
    group.close()
    return ""


def left_by(folder: Path, what: str, steps: Sequence[int]) -> list[str]:
    with Processes(stop_early, len(steps), steps, what, environment={"SYNTONY_TRACE_DIR": str(folder)}) as ranks:
        if what == "kill":
            ranks.wait_for_event("together")
            ranks.kill(1)
        return ranks.finish()


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """What three jobs left behind, and what torch's analyzer says about it."""
    pytest.importorskip("torch")
    jobs = {"healthy": (3, 3), "miss": (3, 3, 2, 3), "mismatch": (2, 2, 2)}
    folders = [tmp_path_factory.mktemp("records") / what for what in jobs]
    for folder, (what, steps) in zip(folders, jobs.items(), strict=True):
        left_by(folder, what, steps)
        # Who hears that others disagree before it calls has nothing to record: once more.
        while what == "mismatch" and len({one.groups[0].launched for one in recorder.read_folder(folder)}) > 1:
            left_by(folder, what, steps)
    return dict(zip(jobs, zip(folders, torchfrtrace(folders), strict=True), strict=True))


def test_a_healthy_job(analysed: dict[str, tuple[Path, str]], capsys: pytest.CaptureFixture[str]) -> None:
    folder, analysis = analysed["healthy"]
    assert "errors" not in analysis
    assert "Not all ranks" not in analysis
    _, database = pickle.loads(folder.with_suffix(".out").read_bytes())
    assert [one.collective_seq_id for one in database.collectives if one.pass_check] == [1, 2, 3]
    assert main(["trace", str(folder), "--table", "--last", "2"]) == 0
    told = capsys.readouterr().out
    assert "2 ranks, 6 operations\nall ranks have come equally far" in told
    assert len(re.findall(r"all_reduce #[23]", told)) == 4


def test_a_missing_rank_is_named(
    analysed: dict[str, tuple[Path, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, analysis = analysed["miss"]
    assert "Not all ranks joining collective, sequence number: 3" in analysis
    assert "missing ranks: {2}" in analysis
    assert main(["trace", str(folder), "-o", str(tmp_path / "t.json")]) == 1
    told = capsys.readouterr().out
    assert re.search(r"ended because all_reduce #3 .+ timed out .+ rank 2 .+ has not started it", told)
    assert "rank 2 is after all_reduce #2, all others are stopped in all_reduce #3" in told
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    third = [event for event in events if event["name"] == "all_reduce #3"]
    assert sorted(event["pid"] for event in third) == [0, 1, 3]
    assert {event["args"]["state"] for event in third} == {"failed"}


def test_a_mismatch_is_named(analysed: dict[str, tuple[Path, str]], capsys: pytest.CaptureFixture[str]) -> None:
    folder, analysis = analysed["mismatch"]
    assert "Culprit rank 2; Error type: SIZE_OR_SYNTAX_MISMATCH" in analysis
    assert main(["trace", str(folder)]) == 1
    assert (
        "operation #3 differs: rank 2: all_reduce of 32 bytes of float32 (sum); "
        "ranks 0, 1: all_reduce of 16 bytes of float32 (sum)"
    ) in capsys.readouterr().out


def test_a_killed_rank_leaves_no_record_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_by(tmp_path, "kill", (5, 5, 5))
    assert main(["trace", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert re.search(r"ended because rank 1 \(process \d+ on .+\) died during all_reduce #\d+", told)
    assert "rank 1 left no record" in told
    states = [one.state for one in recorder.read_folder(tmp_path)[0].operations]
    assert set(states[:-1]) == {"completed"}
    assert states[-1] == "failed"


def hang(rank: Rank) -> int:
    group = joined(rank)
    group.all_reduce(np.ones(1))
    rank.meet("apart")
    if rank.rank == 0:
        group.all_reduce(np.ones(1))
        return 0
    rank.tell("hanging")
    folder = Path(os.environ["SYNTONY_TRACE_DIR"])
    while not (folder / "go").exists():
        time.sleep(0.02)
    group.all_reduce(np.ones(1))
    return 0


def test_running_ranks_answer_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = "ab"  # over TCP: the same on every host
    with Processes(hang, 2, hosts=hosts, environment={"SYNTONY_TRACE_DIR": str(tmp_path)}) as ranks:
        ranks.wait_for_event("hanging", [1])
        assert main(["trace", str(tmp_path), "--now", "--wait", "20", "--json"]) == 1
        (tmp_path / "go").touch()
        ranks.finish()
    told = json.loads(capsys.readouterr().out)
    assert told["findings"] == ["rank 1 is after all_reduce #1, all others are waiting in all_reduce #2"]
    assert abs(told["ranks"][1]["groups"][0]["clock_offset"]) < 1.0  # one machine, one clock: the error of the exchange


def explain(rank: Rank) -> int:
    group = joined(rank)
    group.all_reduce(np.ones(1))
    group.all_reduce(np.ones(1))
    group.all_reduce(np.ones(1 << 18))
    return 0


def test_levels_of_debug_say_more_and_more() -> None:
    with Processes(explain, 2, hosts="ab", environment={"SYNTONY_DEBUG": "TRACE"}) as ranks:
        ranks.finish()
        log = ranks.log(1)
    assert "syntony [rank 1] INFO tcp: listening on " in log
    assert "INFO group test: 2 ranks on 2 hosts (0 | 1), made in " in log
    assert log.count("INFO all_reduce of 8 bytes: direct (") == 1
    assert "INFO all_reduce of 2097152 bytes: ring (" in log
    assert "TRACE all_reduce #3 of group test done, 2097152 bytes" in log


def test_torch_groups_are_recorded_under_the_ranks_of_the_job(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    result = launch(3, Path(__file__).with_name("recorder_script.py"), tmp_path)
    assert result.returncode == 0, result.stderr
    dumps = recorder.read_folder(tmp_path)
    assert recorder.findings(dumps) == []
    assert [sorted(group.members for group in dump.groups) for dump in dumps] == [
        [(0, 1, 2)],
        [(0, 1, 2), (1, 2)],
        [(0, 1, 2), (1, 2)],
    ]
    told = [(one.collective, one.dtype, one.bytes) for one in dumps[2].operations if one.collective == "broadcast"]
    assert told == [("broadcast", "bfloat16", 6)]


# ---- readers --------------------------------------------------------------------------------------------------------


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("it_ran"),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_dump_cannot_run_code(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "syntony_rank_0").write_bytes(pickle.dumps({"entries": [Hostile()]}, protocol))
    with pytest.raises(UserError, match=r"syntony_rank_0 is not a flight record"):
        recorder.read_folder(tmp_path)
    assert not Path("it_ran").exists()


@given(st.binary(max_size=64))
def test_garbage_is_refused_with_a_sentence(content: bytes) -> None:
    with pytest.raises(UserError, match="not a flight record"):
        recorder.parse(content)


@pytest.mark.parametrize("content", [b"\x80\x02Nr\xff\xff\xff\x0f.", b"\x80\x05\x96\x00\x00\x00\x80\x00\x00\x00\x00."])
def test_a_few_bytes_take_no_gigabytes(content: bytes) -> None:
    """Numbers of values that are not there: Python's reader in C makes room for them."""
    tracemalloc.start()
    with pytest.raises(UserError, match="not a flight record"):
        recorder.parse(content)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("words", [["/nowhere"], ["/nowhere", "--now"], [".", "-o", "x.txt"]])
def test_mistakes_get_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *words]) == 2
    assert "Traceback" not in capsys.readouterr().err


def operation(sequence: int, created: float, state: str = "completed", length: float = 0.5) -> Operation:
    finished = created + length if state in ("completed", "failed") else None
    return Operation("g", sequence, "all_reduce", "float32", "sum", "ring", 0, 0, 1, 1, 4, state, "caller", created,
                     created + length / 2, finished)  # fmt: skip


def dump_of(rank: int, size: int, operations: Sequence[Operation], offset: float = 0.0) -> Dump:
    group = GroupRecord("g", rank, tuple(range(size)), len(operations), 0, "", offset)
    return Dump(rank, f"host{rank}", 1, 100.0, 1000.0, (group,), tuple(operations))


@given(st.lists(st.integers(0, 6), min_size=2, max_size=5), st.data())
@examples(60)
def test_whoever_is_behind_is_named(done: list[int], data: st.DataObject) -> None:
    """Rank r has completed done[r] operations; those behind the last may be inside the next one or not."""
    dumps = []
    for rank, count in enumerate(done):
        operations = [operation(i + 1, float(i)) for i in range(count)]
        if count < max(done) and data.draw(st.booleans()):
            operations.append(operation(count + 1, float(count), "started"))
        dumps.append(dump_of(rank, len(done), operations))
    told = " ".join(recorder.findings(dumps))
    for rank, count in enumerate(done):
        named = re.search(rf"ranks? (\d, )*{rank}\b[^;]*? (is|are) ", told)
        assert bool(named) or count == max(done), (told, rank)
    if len(set(done)) == 1:
        assert told == ""


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.001, 3)), min_size=1, max_size=12), st.floats(-50, 50))
def test_boxes_of_a_row_do_not_overlap_and_clocks_are_aligned(spans: list[tuple[float, float]], offset: float) -> None:
    spans = sorted(spans)
    operations = [operation(i + 1, start, length=length) for i, (start, length) in enumerate(spans)]
    shifted = [operation(i + 1, start - offset, length=length) for i, (start, length) in enumerate(spans)]
    events = recorder.chrome_trace([dump_of(0, 2, operations), dump_of(1, 2, shifted, offset)]).events
    boxes = [event for event in events if event["ph"] == "X" and event["name"] != "queued"]
    for one, other in zip(boxes[: len(spans)], boxes[len(spans) :], strict=True):
        assert one["ts"] == pytest.approx(other["ts"], abs=1)  # microseconds
    for event in boxes:
        for other in boxes:
            if event is not other and (event["pid"], event["tid"]) == (other["pid"], other["tid"]):
                first, second = sorted((event, other), key=lambda box: box["ts"])
                assert first["ts"] + first["dur"] <= second["ts"] + 1e-2


# ---- the folder, and runs that go well -------------------------------------------------------------------------------


def reduce_twice(rank: Rank) -> bool:
    """Whether the folder was there before anything had gone wrong."""
    group = joined(rank)
    there = Path(os.environ["SYNTONY_TRACE_DIR"]).is_dir()
    for _ in range(2):
        group.all_reduce(np.ones(4, np.float32))
    rank.meet("done")
    group.close()
    return there


@pytest.mark.parametrize("at_end", ["0", "1"])
def test_the_folder_is_there_from_the_start_and_a_good_run_is_traced_on_request(
    at_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deep" / "records"
    monkeypatch.setenv("SYNTONY_TRACE_DIR", str(folder))
    monkeypatch.setenv("SYNTONY_TRACE_AT_END", at_end)
    monkeypatch.setenv("SYNTONY_DEBUG", "Warn")  # levels in any case
    assert run_as_processes(reduce_twice, 2) == [True, True]
    if at_end == "0":
        assert list(folder.iterdir()) == []
        with pytest.raises(UserError, match="with SYNTONY_TRACE_AT_END=1 at the end of a job"):
            recorder.read_folder(folder)
        return
    assert sorted(path.name for path in folder.iterdir()) == ["syntony_rank_0", "syntony_rank_1"]
    trace = tmp_path / "t.json"
    assert main(["trace", str(folder), "-o", str(trace)]) == 0
    assert "all ranks have come equally far" in capsys.readouterr().out
    assert json.loads(trace.read_text())["traceEvents"]
