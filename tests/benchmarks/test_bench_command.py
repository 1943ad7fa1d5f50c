"""`syntony bench` as users run it: the real runtime, real processes, real deaths."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from syntony.__main__ import main
from tests import forked
from tests.collectives.running import torchrun

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SYNTONY = [sys.executable, "-m", "syntony"]
LIMIT = 120  # seconds; nothing here takes a tenth of it


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(main, words, timeout=LIMIT, torch=True, **environment)


def results(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The rows of a run with --json, having looked at what all rows must have."""
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["out_of_bounds"] == {"count": 0, "okay": "true"}
    rows: list[dict[str, Any]] = document["results"]
    assert rows
    for row in rows:
        for contender in (row, *row["peers"]):
            forms = [contender[form] for form in ("out_of_place", "in_place") if contender[form] is not None]
            assert forms
            assert all(form["nwrong"] == 0 for form in forms)
    return rows


COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter"]


@pytest.mark.parametrize("collective", [*COLLECTIVES, "sendrecv"])
def test_every_collective_beside_gloo(collective: str) -> None:
    sweep = ("-b", "0", "-e", "100000", "-i", "49999", "-n", "2")
    rows = results(run("bench", collective, *sweep, "--ranks", "3", "--peers", "gloo", "--json"))
    assert [[peer["name"] for peer in row["peers"]] for row in rows] == [["gloo"]] * 3


@pytest.mark.parametrize("dtype", ["bfloat16", "f8e4m3", "f8e5m2", "uint16", "half"])
def test_narrow_types_are_right_too(dtype: str) -> None:
    results(run("bench", "all_reduce", "-b", "6000", "-d", dtype, "-o", "all", "-n", "1", "--ranks", "3", "--json"))


def test_a_schedule_file_runs_on_its_own_number_of_ranks_only(tmp_path: Path) -> None:
    path = str(tmp_path / "f.json")
    made = run("synth", "dgx1", "all_gather", "--engine", "greedy", "-o", path)
    assert made.returncode == 0, made.stderr
    results(run("bench", "all_gather", "--schedule", path, "--ranks", "8", "-b", "4000", "-n", "2", "--json"))
    refused = run("bench", "all_gather", "--schedule", path, "--ranks", "4", "-b", "4000")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert re.fullmatch(r"syntony: .*f\.json: the schedule is for 8 ranks, the group has 4\n", refused.stderr)


def test_under_torchrun() -> None:
    words = ("bench", "all_reduce", "-b", "4K", "-n", "2", "--peers", "gloo", "--json")
    assert len(results(torchrun(2, ROOT / "src" / "syntony" / "__main__.py", *words))) == 1


def test_under_a_launcher_that_sets_rank_and_world_size() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [*SYNTONY, "bench", "all_reduce", "-b", "4K", "-n", "2", "--json"],
            cwd=ROOT,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=LIMIT) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], outputs
    assert json.loads(outputs[0][0])["out_of_bounds"]["count"] == 0
    assert outputs[1][0] == ""


def test_ranks_must_agree_with_the_launcher() -> None:
    refused = run(
        "bench", "all_reduce", "--ranks", "4", RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="1"
    )
    assert refused.returncode == 2
    assert "--ranks 4, but the launcher has started 1" in refused.stderr


def test_a_closed_port_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        port = str(closed_soon.getsockname()[1])
    refused = run(
        *("bench", "all_reduce", "-T", "1"), RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
    )
    assert refused.returncode == 2
    assert re.fullmatch(
        rf"syntony: rank 1 could not reach rank 0 at 127\.0\.0\.1:{port} within 1 s: .*\n", refused.stderr
    )


def end_of_an_endless_run(end: Callable[[int, list[int]], None]) -> tuple[int, str, list[int]]:
    """Starts a benchmark that never ends, waits for a row, calls `end(launcher, ranks)`; exit code, stderr, ranks."""
    command = [*SYNTONY, "bench", "all_reduce", "-b", "64K", "-n", "5", "-N", "0", "--ranks", "4"]
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what runs the tests may be deaf to interrupts
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    )
    assert process.stdout is not None
    ranks = []
    for line in process.stdout:
        if found := re.search(r"Rank +\d+ .* Pid +(\d+) ", line):
            ranks.append(int(found[1]))
        elif not line.startswith("#"):
            break
    assert len(ranks) == 4
    end(process.pid, ranks)
    _, errors = process.communicate(timeout=LIMIT)
    return process.returncode, errors, ranks


def gone(pid: int) -> bool:
    """True when the process has ended (a zombie that nobody has collected counts as ended)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] in "ZX"
    except FileNotFoundError:
        return True


def test_a_killed_rank_is_named_and_nothing_is_left() -> None:
    code, errors, ranks = end_of_an_endless_run(lambda launcher, ranks: os.kill(ranks[2], signal.SIGKILL))
    assert code == 1
    assert re.fullmatch(r"syntony: rank 2 \(process \d+\) was killed by SIGKILL; .*\n", errors)
    assert all(gone(pid) for pid in ranks)


def test_an_interrupt_ends_everything() -> None:
    code, errors, ranks = end_of_an_endless_run(lambda launcher, ranks: os.kill(launcher, signal.SIGINT))
    assert code == 130
    assert errors == "syntony: stopped\n"
    assert all(gone(pid) for pid in ranks)


def test_ranks_do_not_outlive_their_launcher() -> None:
    # The pipes are the ranks' too: they are at their end only when the last rank is.
    code, _, _ = end_of_an_endless_run(lambda launcher, ranks: os.kill(launcher, signal.SIGKILL))
    assert code == -signal.SIGKILL


@pytest.mark.parametrize("columns", [80, 240])
def test_the_table_is_narrow_where_the_terminal_is(columns: int) -> None:
    """On 80 columns no line is wider; on a wide terminal, as in a pipe, rows are nccl-tests'."""
    what = "all_reduce -b 8 -e 64 -f 2 -n 2 -w 0 -I --ranks 2" + " --peers gloo" * (columns == 80)
    command = [sys.executable, "-m", "syntony", "bench", *what.split(" ")]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, os.environ | {"COLUMNS": str(columns)})
    seen = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while part := os.read(terminal, 4096):
            seen += part
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0, seen
    lines = seen.decode().replace("\r", "").splitlines()
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    if columns == 80:
        assert max(map(len, lines)) <= columns
        assert [(row[0], len(row)) for row in rows] == [(size, 9) for size in ("8", "16", "32", "64")]
        assert lines.count("# float, sum") == 1
        assert sum(line.split()[:2] == ["#", "gloo"] for line in lines) == 4
    else:
        assert all(row[:5] == [size, str(int(size) // 4), "float", "sum", "-1"] for row, size in zip(
            rows, ("8", "16", "32", "64"), strict=True))  # fmt: skip
