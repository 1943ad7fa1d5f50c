"""`syntony bench --device cuda`: its rows on a GPU of the host, NCCL's functions, what it says and refuses."""

from __future__ import annotations

import argparse
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.benchmarks.bench import options, report
from syntony.benchmarks.cuda import nccl, one_gpu, session
from syntony.benchmarks.cuda.threads import ThreadExchange, run_threads
from syntony.collectives.bootstrap.launch import Exchange, RankError
from tests import forked
from tests.benchmarks.cuda.gpu_of_the_host import HostCuda, _cuda
from tests.programs import program

RANKS = 3
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter")


def chosen(*words: str) -> options.Options:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    options.configure(parser)
    return options.read(parser.parse_args([*words, "--device", "cuda", "-t", str(RANKS)]))


def bench(*words: str, **how: Any) -> int:
    what, cuda = chosen(*words), HostCuda(RANKS, **how)
    return run_threads(RANKS, partial(session.run_rank, options=what, cuda=cuda), 60.0)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def libnccl() -> str:
    return str(program("nccl_of_the_host.so"))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_right_results_pass_in_every_form(collective: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(collective, "-b", "0", "-e", "3K", "-i", "1000", "-n", "2", "-r", "all", "-d", "int32") == 0
    table = rows(capsys.readouterr().out)
    assert table
    for row in table:
        assert len(row) == 13
        assert {row[8], row[12]} <= {"0", "N/A"}
        assert "0" in (row[8], row[12])


def test_a_wrong_byte_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("all_reduce", "-b", "64", "-n", "1", "-d", "int32", faulty=True) == 1
    assert rows(capsys.readouterr().out)[0][8] == "1"


@pytest.mark.parametrize("algorithm", ["ring", "pull", "two_shot"])
def test_algorithms_and_protocols_are_contenders(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-b", "256", "--algo", f"auto,{algorithm}", "--protocol", "simple,ll,bulk", "-n", "2", "-G", "2")
    assert bench("all_reduce", *words) == 0
    printed = capsys.readouterr().out
    for label in ("auto", "auto/ll", "auto/bulk", algorithm, f"{algorithm}/ll", f"{algorithm}/bulk"):
        assert label in printed
    assert "graph: 2" in printed
    assert "nThread 3 nGpus 1" in printed


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_switches_are_a_contender(collective: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(collective, "-b", "3000", "-n", "2", "--algo", "nvls", gpus=RANKS, switches=True) == 0
    printed = capsys.readouterr().out
    assert f"starting: {collective} (nvls)" in printed
    assert rows(printed)[0][8] == rows(printed)[0][12] == "0"


@pytest.mark.parametrize(
    ("words", "how", "why"),
    [
        (("all_reduce",), {}, "nvls needs a GPU for each rank: ranks 0, 1, 2 share GPU 0"),
        (("all_reduce",), {"gpus": 3}, r"nvls needs GPUs that NVLink switches connect.*GPU 0 \(Host GPU\)"),
        (("broadcast",), {"gpus": 3, "switches": True}, "nvls runs all_reduce, all_gather and reduce_scatter"),
        (("all_reduce", "-d", "float", "-o", "max"), {"gpus": 3, "switches": True}, "nvls cannot run max of float32"),
    ],
)
def test_switches_say_what_they_cannot(words: tuple[str, ...], how: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        bench(*words, "-b", "64", "--algo", "nvls", **how)


def test_what_ranks_share_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("all_gather", "-b", "256", "-n", "1", gpus=1) == 0
    assert "# one GPU, several ranks: 3 ranks share GPU 0" in capsys.readouterr().out
    assert bench("all_gather", "-b", "256", "-n", "1", gpus=3) == 0
    assert "several ranks" not in capsys.readouterr().out


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_nccl_is_called_as_its_header_says(
    collective: str, libnccl: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl, "find", lambda: libnccl)
    monkeypatch.delenv(nccl.SHARED_GPU_SWITCH, raising=False)
    assert bench(collective, "-b", "3000", "-n", "2", "-r", "all", "--peers", "nccl", "-d", "int32") == 0
    printed = capsys.readouterr().out
    assert "nccl is 2.30.7, several ranks on one GPU by its experimental switch NCCL_MULTI_RANK_GPU_ENABLE" in printed
    for row in rows(printed):
        assert row[15] == "0", "checked, and right"


def test_an_old_nccl_does_not_share_gpus(monkeypatch: pytest.MonkeyPatch, libnccl: str) -> None:
    monkeypatch.setattr(nccl, "find", lambda: libnccl)
    monkeypatch.setattr(nccl, "SHARES_GPUS_SINCE", 23100)
    with pytest.raises(UserError, match=r"peer nccl is 2\.30\.7, and ranks 0 and 1 share GPU 0"):
        bench("all_reduce", "-b", "64", "--peers", "nccl")


def test_a_missing_nccl_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "find", lambda: "libnccl-that-is-not-there.so")
    with pytest.raises(UserError, match="peer nccl cannot be loaded: libnccl-that-is-not-there"):
        bench("all_reduce", "-b", "64", "--peers", "nccl")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sendrecv",), "point to point"),
        (("all_reduce", "--ranks", "2"), "--nthreads and --ranks exclude each other"),
        (("all_reduce", "-G", "1", "-I"), "--per_iter_timing and --cudagraph exclude each other"),
        (("all_reduce", "--peers", "gloo"), "--peers: no such name 'gloo'; there are nccl"),
        (
            ("all_reduce", "--algo", "rnig"),
            "--algo of all_reduce: no such name 'rnig' .did you mean ring.*; there are auto, .*pull",
        ),
        (
            ("all_reduce", "--protocol", "lll"),
            "--protocol: no such name 'lll' .did you mean ll.*; there are simple, ll, ll128, bulk",
        ),
        (("all_gather", "-b", "64", "--algo", "pull_two_shot"), "pull_two_shot is an algorithm of all_reduce"),
    ],
)
def test_a_mistake_is_told_by_name(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(UserError, match=why):
        bench(*words)


def test_without_a_gpu_it_is_one_sentence() -> None:
    if _cuda.device_count() > 0:
        pytest.skip("there is a GPU here")
    for words in (("--ranks", "2"), ("-t", "2")):
        done = forked.run(main, ["bench", "all_reduce", "--device", "cuda", *words], timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "syntony: --device cuda needs a CUDA GPU and its driver; there is none here\n"


def test_a_rank_that_fails_ends_the_others() -> None:
    def work(exchange: Exchange) -> int:
        if exchange.rank == 1:
            raise RankError("rank 1 has had enough")
        exchange.all_gather("never", b"")
        return 0

    with pytest.raises(RankError, match="rank 1 has had enough"):
        run_threads(3, work, 30.0)


def test_threads_meet() -> None:
    def work(exchange: Exchange) -> int:
        assert isinstance(exchange, ThreadExchange)
        for turn in range(50):
            assert exchange.all_gather("", bytes([exchange.rank, turn])) == [bytes([r, turn]) for r in range(4)]
        return exchange.rank

    assert run_threads(4, work, 30.0) == 3


def test_a_page_says_when_where_and_with_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-b", "64", "-e", "128", "-f", "2", "--results", str(tmp_path), "-J", str(tmp_path / "f.json"))
    assert bench("all_reduce", *words) == 0
    capsys.readouterr()
    (page,) = tmp_path.glob("*.md")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-Host-GPU-all_reduce\.md", page.name)
    text = page.read_text()
    document = json.loads((tmp_path / "f.json").read_text())
    assert document["config"]["nthreads"] == 3
    for words in ("one GPU, several ranks", "CUDA 13.1, driver for 13.0", "Host GPU: 1 for 3 ranks", "syntony "):
        assert words in text
    assert text.count("| out of place |") == 2
    assert text.count("| in place |") == 2


def test_a_page_of_made_up_numbers() -> None:
    form = {"time": 10.0, "alg_bw": 2.5, "bus_bw": 3.75, "nwrong": 0}
    row = {"size": 25000, "type": "float", "redop": "sum", "experiment_name": "pull", "out_of_place": form}
    row |= {"in_place": None, "peers": [{"name": "nccl", "out_of_place": form | {"time": 13.0}, "in_place": None}]}
    device = {"hostname": "box", "device_hex": "0000:01:00.0", "device_info": "NVIDIA H200"}
    config = {"devices": [device] * 4, "warmup_iters": 1, "iterations": 20, "graph": 3, "validation": 1}
    document = {
        "collective": "all_reduce", "start_time": "2027-01-02T03:04:05+00:00", "config": config, "results": [row],
        "notes": ["one GPU, several ranks: 4"], "args": ["/bin/syntony", "bench"], "nccl_version": "syntony 1",
        "out_of_bounds": {"count": 0},
    }  # fmt: skip
    assert report.name(document) == "2027-01-02-NVIDIA-H200-all_reduce.md"
    lines = report.page(document).splitlines()
    assert "- **When:** 2027-01-02T03:04:05+00:00" in lines
    assert "- **Note:** one GPU, several ranks: 4" in lines
    assert lines[-1] == "| 25000 | float | sum | out of place | 10.00 | 2.50 | 3.75 | 13.00 | 1.30 |"
    assert lines[-3] == "| bytes | type | op | form | pull us | algbw | busbw | nccl us | x ours |"


def test_the_table_of_one_gpu_measures_every_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_gpu, "LARGE", 1 << 16)  # what is copied for comparison
    rows = list(one_gpu.part(2, [1024, 1 << 20], False, HostCuda(2)).rows())
    assert {row.cells[1] for row in rows if row.cells[2] == "pull/bulk"} == {"all_gather", "all_to_all"}
    assert {row.cells[1] for row in rows} == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}


def test_the_table_of_one_gpu_has_goals() -> None:
    measured = one_gpu.Measured("all_reduce", 256 << 20, {"pull_two_shot": 1.0, "nccl": 1.2}, 0)
    ours, theirs = one_gpu.rows_of(measured, 4, 8 * (256 << 20) / 0.9)
    assert (ours.cells[4:], ours.missed) == (("0.900", "1.20"), "1.3 x NCCL")
    assert (theirs.cells[5], theirs.missed) == ("", "")
    slow = one_gpu.Measured("all_reduce", 8 << 10, {"ring/ll": 9e-6, "pull": 1e-5}, 1)
    assert [row.missed for row in one_gpu.rows_of(slow, 4, 1e12)] == ["a result was wrong, 8 us", "a result was wrong"]
