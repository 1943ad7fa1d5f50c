"""A command that takes more memory or time than it may, or is interrupted, ends with a sentence and its best answer."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from syntony.__main__ import parser_of
from syntony.synth.commands import COMMANDS
from syntony.synth.formats import schedule_file


def synth(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syntony", "synth", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_too_much_ends_with_a_sentence_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    done = synth("mesh:4x4", "all_to_all", "--memory", "16M", "-o", str(path))
    assert done.returncode == 2
    assert done.stderr == "syntony: synth mesh:4x4 all_to_all takes more than the 16 MiB that --memory allows\n"
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


STUCK = """
import signal, sys, time
from syntony.base import supervised
from syntony.base.command import UserError
supervised.GRACE = 0.0
try:
    standby = supervised.supervise("the search", float(sys.argv[1]))
except UserError as error:
    sys.exit(f"{error}")
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a solver that never returns to Python
for word in sys.argv[2:]:
    standby.answer(f"{word}\\n", f"the best so far is in {word}.json")
print("begun", file=sys.stderr, flush=True)
time.sleep(60)
print("must have been ended")
"""


def stuck(*words: str) -> subprocess.Popen[str]:
    """A process that obeys nothing, from when it has said that it has begun."""
    command = [sys.executable, "-c", STUCK, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "begun\n"
    return process


@pytest.mark.parametrize(
    ("answers", "output", "told", "code"),
    [
        ((), "", "the search: no answer within 0.2 s; --timeout allows more\n", 1),
        (("one", "two"), "two\n", "syntony: stopped after 0.2 s; the best so far is in two.json\n", 0),
    ],
)
def test_at_the_end_of_its_time_the_best_answer_counts(
    answers: tuple[str, ...], output: str, told: str, code: int
) -> None:
    process = stuck("0.2", *answers)
    assert process.communicate() == (output, told)
    assert process.returncode == code


@pytest.mark.parametrize(
    ("answers", "output", "told"),
    [
        ((), "", "syntony: stopped; nothing was found so far\n"),
        (("one",), "one\n", "syntony: stopped; the best so far is in one.json\n"),
    ],
)
def test_an_interrupt_ends_what_obeys_nothing(answers: tuple[str, ...], output: str, told: str) -> None:
    process = stuck("50", *answers)
    process.send_signal(signal.SIGINT)
    assert process.communicate() == (output, told)
    assert process.returncode == 130


def test_a_bound_that_takes_too_long_is_replaced_by_a_cheap_one() -> None:
    command = [sys.executable, "-m", "syntony", "bound", "mesh:4x4", "all_gather", "--timeout", "0.000001"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "looked at in time" in done.stdout


def test_every_verb_that_searches_is_limited() -> None:
    """A verb of the synthesizer that takes --timeout keeps to it; those below search, so they must take it."""
    with_timeout = {command for command in COMMANDS if "--timeout" in parser_of(command).format_help()}
    assert with_timeout == {command for command in COMMANDS if command.limited}
    assert {command.name[0] for command in with_timeout} >= {
        "bound", "synth", "portfolio", "repair", "simulate", "place",
    }  # fmt: skip
