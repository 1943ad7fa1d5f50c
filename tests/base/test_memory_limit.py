"""A search that takes more memory than it may ends with a sentence; one that does not, notices nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from syntony.synth.formats import schedule_file


def synth(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syntony", "synth", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_too_much_ends_with_a_sentence_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    done = synth("mesh:4x4", "all_to_all", "--memory", "16M", "-o", str(path))
    assert done.returncode == 2
    assert done.stderr == "syntony: all_to_all on mesh:4x4 takes more than the 16 MiB that --memory allows\n"
    assert not list(tmp_path.iterdir())


def test_enough_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    done = synth("ring:4", "all_gather", "--engine", "greedy", "--memory", "2G", "-o", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("all_gather on ring:4") == 1
    assert schedule_file.read(path).engine == "greedy"
    refused = synth("ring:4", "all_gather", "--engine", "flow", "--memory", "2G")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1


def test_ending_the_command_ends_the_search() -> None:
    command = [sys.executable, "-m", "syntony", "synth", "dgx1", "all_gather", "--steps", "4", "--rounds", "5"]
    parent = subprocess.Popen([*command, "--chunks", "5", "--engine", "sccl:z3", "--memory", "2G"])
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    deadline = time.monotonic() + 60
    while not (child := children.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.send_signal(signal.SIGTERM)
    parent.wait(30)
    place = Path(f"/proc/{child[0]}/stat")
    while place.exists() and place.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
