"""What is found before a job starts, and whom it costs the place."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from syntony import Communicator
from syntony.__main__ import main
from syntony.collectives.preflight.alone import Alone, changed
from syntony.collectives.preflight.together import tried
from syntony.collectives.preflight.verdict import of_ranks, to_leave_out
from syntony.topologies.probed.health import Finding
from tests import forked
from tests.collectives.ranks import Ranks
from tests.collectives.running import faulty_lab


@pytest.mark.parametrize(
    ("found", "out"),
    [
        ([], ""),
        ([(1,)], "b"),
        ([(0, 2)], "c"),  # nobody knows which; the later one
        ([(2, 0), (2, 1), (3, 2)], "c"),
        ([(0,), (0, 2)], "a"),
        ([(0, 1), (2, 3)], "bd"),
        ([(0, 1), (1, 2), (1,), (3, 0)], "bd"),
    ],
)
def test_the_fewest_hosts_are_left_out(found: list[tuple[int, ...]], out: str) -> None:
    assert to_leave_out([Finding(ranks, "") for ranks in found], "abcd") == tuple(out)


def test_a_host_goes_with_one_of_its_ranks() -> None:
    assert to_leave_out([Finding((1,), "")], ["a", "a", "b", "b"]) == ("a",)


def test_words_that_share_memory_do_not_keep_what_is_written() -> None:
    words = np.zeros(3_000_000, np.uint64)
    assert changed(words) == 0
    stuck = np.lib.stride_tricks.as_strided(words, (2_000_000,), (0,))  # one word at every address
    assert changed(stuck) > 3_000_000


def test_who_computes_or_copies_slowly_is_named() -> None:
    good = Alone(0, 10e9, 1e9)
    assert of_ranks([good] * 4, "abcd", 0.75) == []
    found = of_ranks([good, Alone(0, 10e9, 0.7e9), good, Alone(3, 5e9, 1e9)], "abcd", 0.75)
    assert [finding.ranks for finding in found] == [(1,), (3,)]
    assert found[0].sentence == "rank 1 (b): computes at 70% of the median's speed"
    assert "3 words of its memory came back changed; copies 5 GB/s" in found[1].sentence
    assert of_ranks([good, Alone(0, 1e9, 1e8)], "ab", 0.75) == []  # of two, nobody can say


def test_a_wrong_result_is_found() -> None:
    def job(group: Communicator) -> None:
        assert tried(group).wrong == {}
        right = group.broadcast

        def broken(data: np.ndarray, root: int) -> None:
            right(data, root)
            data[-1] ^= int(group.rank == 1)

        group.broadcast = broken  # type: ignore[method-assign, assignment]
        assert tried(group).wrong == {"broadcast": (1,)}

    group = Ranks(3)
    try:
        group.run(job)
    finally:
        group.close()


def test_the_command() -> None:
    done = forked.run(main, ["preflight", "--ranks", "2", "--memory", "1M", "--largest", "64K", "--json"])
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["healthy"], told["leave_out"], told["findings"]) == (True, [], [])
    (host,) = told["hosts"].values()
    assert host["ranks"] == [0, 1]
    assert min(host["copying"], host["computing"], host["sending"]) > 0
    assert set(told["collectives"]) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ranks", "1"], "there is one rank only: wires are between two ranks or more"),
        (["--tolerance", "2"], "--tolerance 2: it is a part of the peers' median, between 0 and 1"),
    ],
)
def test_mistakes(words: list[str], sentence: str) -> None:
    done = forked.run(main, ["preflight", *words])
    assert done.returncode == 2
    assert sentence in done.stderr


DIES = """
import os, signal, sys
from syntony.__main__ import main
from syntony.collectives import probe
if os.environ["RANK"] == "0":
    probe.probe = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(["preflight", "--memory", "1M", "--largest", "64K", "--json"]))
"""


def test_a_host_that_is_lost_meanwhile_is_left_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", DIES],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_PORT": str(port), "SYNTONY_HOST": f"host{rank}"},
        )
        for rank in range(3)
    ]
    said = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [-signal.SIGKILL, 1, 1], said
    told = json.loads(said[1][0])
    assert told["leave_out"] == ["host0"]
    assert "died" in told["findings"][0]["sentence"]
    assert said[2][0] == ""


@pytest.mark.sweep
@pytest.mark.alone
def test_a_host_with_a_slow_wire_is_left_out() -> None:
    """At half of the others' rate; needs what `syntony lab` needs."""
    words = ("preflight", "--memory", "8M", "--largest", "128K", "--json")
    done = faulty_lab("slow rank2-switch to 50mbit at 0s", *words)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if '"leave_out"' in line)
    assert "h2" in json.loads(line[line.index("{") :])["leave_out"], line
