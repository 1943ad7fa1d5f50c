"""The whole bench over a stand-in communicator: what it prints, records, finds wrong and refuses."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syntony import _core
from syntony.base.command import UserError
from syntony.base.files.row_file import RowsInJson
from syntony.benchmarks.bench import options
from syntony.benchmarks.bench.session import run
from syntony.benchmarks.bench.shapes import SHAPES
from syntony.collectives.bootstrap.launch import Exchange, run_ranks
from tests.benchmarks.stand_in import OffByOne, Overrun, StandIn
from tests.sampled import one_in

RANKS = 3


def chosen(*words: str) -> options.Options:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    options.configure(parser)
    parser.add_argument("--force", action="store_true")
    return options.read(parser.parse_args(words))


def bench(*words: str, ranks: int = RANKS, create: Callable[[Exchange, float], Any] = StandIn) -> int:
    what = chosen(*words)
    return run_ranks(ranks, lambda exchange: run(exchange, what, create), 60.0)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize(("collective", "ranks"), one_in(2, list(SHAPES), [1, 2, 5]))
def test_a_right_result_passes_in_every_form(collective: str, ranks: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert bench(collective, "-b", "0", "-e", "3K", "-i", "1000", "-n", "2", "-r", "all", ranks=ranks) == 0
    table = rows(capfd.readouterr().out)
    assert table
    for row in table:
        assert len(row) == 13
        assert row[8] in ("0", "N/A")
        assert row[12] in ("0", "N/A")
        assert "0" in (row[8], row[12])
    roots = {row[4] for row in table}
    assert roots == ({str(rank) for rank in range(ranks)} if SHAPES[collective].rooted else {"-1"})


@pytest.mark.parametrize(
    ("dtype", "op"),
    one_in(2, ["int8", "uint64", "half", "float", "double"], ["sum", "prod", "min", "max", "avg"]),
)
def test_every_operation_and_type_has_a_right_answer(op: str, dtype: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert bench("all_reduce", "-b", "4K", "-d", dtype, "-o", op, "-n", "1") == 0
    assert [row[8] for row in rows(capfd.readouterr().out)] == ["0"]


def test_one_wrong_element_is_counted_and_fails_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert bench("all_reduce", "-b", "64", "-e", "128", "-f", "2", create=OffByOne) == 1
    out = capfd.readouterr().out
    assert [(row[8], row[12]) for row in rows(out)] == [("1", "1")] * 2
    assert "# Out of bounds values : 4 FAILED" in out


def test_a_write_behind_the_buffer_is_found(capfd: pytest.CaptureFixture[str]) -> None:
    assert bench("all_gather", "-b", "96", "-n", "1", create=Overrun) == 1
    assert rows(capfd.readouterr().out)[0][8] == str(RANKS)


def test_without_checks_nothing_is_claimed(capfd: pytest.CaptureFixture[str]) -> None:
    assert bench("all_reduce", "-b", "64", "-c", "0", create=OffByOne) == 0
    assert [(row[8], row[12]) for row in rows(capfd.readouterr().out)] == [("N/A", "N/A")]


def test_the_record_has_nccl_tests_keys_and_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "swordfish")
    monkeypatch.setenv("SYNTONY_ISA", "portable")
    path = tmp_path / "f.json"
    assert bench("all_reduce", "-b", "8", "-e", "32", "-f", "2", "-J", str(path), "-I") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["f.json"]
    text = path.read_text()
    assert "swordfish" not in text
    document = json.loads(text)
    assert document["version"] == 3
    assert document["env"] == ["SYNTONY_ISA=portable"]
    assert document["config"]["step_factor"] == 2
    assert [device["rank"] for device in document["config"]["devices"]] == list(range(RANKS))
    assert [result["size"] for result in document["results"]] == [8, 16, 32]
    for result in document["results"]:
        for form in ("out_of_place", "in_place"):
            assert result[form]["nwrong"] == 0
            expected = result["size"] / result[form]["time"] / 1e3
            assert result[form]["alg_bw"] == pytest.approx(expected)
            assert result[form]["bus_bw"] == pytest.approx(expected * 2 * (RANKS - 1) / RANKS)
    assert document["out_of_bounds"] == {"count": 0, "okay": "true"}


def test_csv_has_a_line_per_row_and_form(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    assert bench("broadcast", "-b", "8", "-e", "32", "-f", "2", "--csv", str(path)) == 0
    with path.open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["size"], line["form"], line["wrong"]) for line in lines] == [
        (size, "in-place", "0") for size in ("8", "16", "32")
    ]


def test_several_algorithms_share_a_row(capfd: pytest.CaptureFixture[str]) -> None:
    assert bench("all_reduce", "-b", "64", "--algo", "ring,dbt", "-I", "-S") == 0
    (row,) = rows(capfd.readouterr().out)
    assert len(row) == 13 + 4 + 5 + 2


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_to_all"])
def test_every_algorithm_of_a_collective_can_be_named(collective: str) -> None:
    names = _core.algorithm_names(collective)
    assert chosen(collective, "--algo", ",".join(names)).algorithms == tuple(names)


def test_an_algorithm_of_another_collective_is_refused() -> None:
    with pytest.raises(UserError, match=r"--algo of all_gather: no such name .swing.*; there are auto, .*bruck"):
        bench("all_gather", "-b", "64", "--algo", "swing")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["-g", "8"], ["--ngpus", "--ranks"]),
        (["-G", "1"], ["--cudagraph"]),
        (["-b", "64K", "-e", "8"], ["--maxbytes", "--minbytes"]),
        (["-b", "0", "-e", "8", "-f", "2"], ["--stepfactor"]),
        (["-f", "1"], ["--stepfactor"]),
        (["-i", "0"], ["--stepbytes"]),
        (["-n", "0"], ["--iters"]),
        (["-d", "float128"], ["--datatype", "float128", "bfloat16"]),
        (["-o", "mulsum"], ["--op", "mulsum", "avg"]),
        (["-o", "band", "-b", "8"], ["--op band", "float"]),
        (["--algo", "rnig"], ["--algo", "rnig", "ring"]),
        (["--peers", "nccl"], ["--peers", "nccl", "gloo"]),
        (["--algo", "ring", "--schedule", "f.json"], ["--schedule", "--algo"]),
        (["--timeout", "0"], ["--timeout"]),
        (["-r", "first"], ["--root first", "all"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_told_by_name(words: list[str], names: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        bench("reduce" if "-r" in words else "all_reduce", *words)
    for name in names:
        assert name in str(refused.value)


@pytest.mark.parametrize(
    ("text", "value"), [("8", 8), ("64K", 65536), ("1.5M", 3 << 19), ("2g", 2 << 30), ("0", 0), ("1e3", 1000)]
)
def test_sizes_are_binary(text: str, value: int) -> None:
    assert options.size(text) == value


@pytest.mark.parametrize("text", ["", "K", "12Q", "-1", "nan", "1e40", "0x10"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write bytes such as 8, 64K or 1M"):
        options.size(text)


def test_a_root_that_is_no_rank_is_told_by_name() -> None:
    with pytest.raises(UserError, match="--root 7: there are ranks 0 to 2"):
        bench("broadcast", "-b", "8", "-r", "7")


# ---- nccl-tests' habits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "-g 1",
        "-m 1",
        "-z 0",
        "-p 0",
        "-y 0",
        "-C 0",
        "-R 0",
        "-t 1",
        "-G 0",
        "-a 1",
        "-D 0",
        "-u 0",
        "-c 1",
        "-d float",
    ],
)
def test_neutral_values_of_nccl_tests_are_taken(words: str) -> None:
    plain = chosen("all_reduce", "-b", "8")
    assert replace(chosen("all_reduce", "-b", "8", *words.split()), threads=1) == plain


@pytest.mark.parametrize("words", ["-g 2", "-m 4", "-z 1", "-t 2", "-G 5", "-y 1"])
def test_other_values_are_refused_with_the_reason(words: str) -> None:
    with pytest.raises(UserError, match="of nccl-tests means nothing"):
        chosen("all_reduce", "-b", "8", *words.split())


def test_several_collectives_have_a_table_and_files_each(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = ("--csv", str(tmp_path / "f.csv"), "-J", str(tmp_path / "f.json"), "--force")
    assert bench("all_reduce", "broadcast", "all_reduce", "-b", "8", "-e", "16", "-f", "2", *files) == 0
    out = capfd.readouterr().out
    assert out.count("# Collective test starting: all_reduce") == 1
    assert out.count("# Collective test concluded: broadcast") == 1
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["f.all_reduce.csv", "f.all_reduce.json", "f.broadcast.csv", "f.broadcast.json"]
    for name in ("all_reduce", "broadcast"):
        document = json.loads((tmp_path / f"f.{name}.json").read_text())
        assert document["collective"] == name
        assert [row["size"] for row in document["results"]] == [8, 16]


def test_files_are_whole_after_every_row(tmp_path: Path) -> None:
    """Also where a later row fails: what was measured is kept, and is JSON."""
    path = tmp_path / "f.json"
    seen = 0
    rows_in_json = RowsInJson(path, "results", lambda: {"count": seen})
    for seen in range(1, 4):
        rows_in_json.add({"row": seen, "text": "x" * (40 - 10 * seen)})
        document = json.loads(path.read_text())
        assert [row["row"] for row in document["results"]] == list(range(1, seen + 1))
        assert document["count"] == seen
    rows_in_json.close()
