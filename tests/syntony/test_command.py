"""The front door: one table, help made from it, and mistakes told in a sentence."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from syntony import commands
from syntony.__main__ import main
from syntony.base.answer import shell_lines
from syntony.base.command import Command, FailedError, UserError
from syntony.parser import arguments_of, parser_of

ROOT = Path(__file__).parents[2]


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syntony", *words]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def test_help_lists_every_command_with_its_summary() -> None:
    listing = run("--help")
    assert listing.returncode == 0, listing.stderr
    text = " ".join(listing.stdout.split())
    for command in commands.all_commands():
        assert f"{' '.join(command.name)} {command.summary}" in text, command.name
    for group in commands.GROUPS:
        assert f"\n{group}:\n" in listing.stdout


@pytest.mark.parametrize("command", commands.all_commands(), ids=lambda command: "-".join(command.name))
def test_every_command_has_a_summary_and_an_example_it_would_accept(command: Command) -> None:
    assert command.summary
    assert not command.summary.endswith(".")
    help_text = parser_of(command).format_help()
    assert "\n".join(shell_lines(command.example)) in help_text
    words = command.example.split()
    assert words[0] == "syntony"
    found, rest = commands.find(words[1:])
    assert found is command or found == command
    if "|" not in rest and "&&" not in rest:
        arguments_of(command, rest)


def test_names_are_unique_and_each_verb_has_a_command() -> None:
    names = [command.name for command in commands.all_commands()]
    assert len(names) == len(set(names))
    assert {name[0] for name in names} == set(commands.ROOMS)


def test_an_unknown_verb_is_told_in_one_sentence_with_the_nearest_name() -> None:
    result = run("bnech")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "did you mean bench?" in result.stderr


def test_an_unknown_second_word_names_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "lst"]) == 2
    assert "did you mean list?" in capsys.readouterr().err
    assert main(["topo"]) == 2
    assert "one more word" in capsys.readouterr().err


def test_an_unknown_option_is_told_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "list", "--no-such-option"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("syntony: ")
    assert "--no-such-option" in error
    assert error.count("\n") == 1


CHATTY = """
import ctypes, os, subprocess, sys
from syntony import __main__, api
from syntony.topologies import cli

def chatty(words):
    os.write(1, b"of a library; ")
    ctypes.CDLL(None).printf(b"from its buffer; ")  # written when the process ends
    subprocess.run(["echo", "of a program"], check=True)
    return parse(words)

parse, cli.parse = cli.parse, chatty
sys.argv = ["syntony", "topo", "show", "ring:4", *sys.argv[1:]]
sys.exit(__main__.main())
"""


def test_with_json_nothing_but_the_answer_reaches_stdout() -> None:
    """Solvers (HiGHS) print lines of their own."""
    command = [sys.executable, "-c", CHATTY]
    told = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(told.stdout)["command"] == "topo show"
    for line in ("of a library", "from its buffer", "of a program"):
        assert line in told.stderr
    assert "of a program" in subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def replace_table(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes `syntony topo list` raise `error`."""

    def fail(_: argparse.Namespace) -> int:
        raise error

    command = Command(("topo", "list"), "fails", "syntony topo list", lambda parser: None, fail)
    monkeypatch.setattr(commands, "commands_of", lambda verb: (command,))


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (UserError("ranks must be positive"), 2, "syntony: ranks must be positive\n"),
        (
            FileNotFoundError(2, "No such file or directory", "f.json"),
            2,
            "syntony: f.json: No such file or directory\n",
        ),
        (KeyboardInterrupt(), 130, "syntony: stopped\n"),
        (FailedError("rank 1 died"), 1, "syntony: rank 1 died\n"),
        (
            ZeroDivisionError("by zero"),
            70,
            "syntony: internal error: ZeroDivisionError: by zero (SYNTONY_DEBUG=1 shows where)\n",
        ),
    ],
    ids=["mistake", "file", "interrupt", "failed", "bug"],
)
def test_what_goes_wrong_becomes_a_sentence_and_an_exit_code(
    error: BaseException,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("SYNTONY_DEBUG", raising=False)
    replace_table(monkeypatch, error)
    assert main(["topo", "list"]) == code
    assert capsys.readouterr().err == sentence


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTONY_DEBUG", "1")
    replace_table(monkeypatch, UserError("ranks must be positive"))
    with pytest.raises(UserError):
        main(["topo", "list"])


def test_using_one_room_imports_neither_torch_nor_the_other_rooms() -> None:
    probe = (
        "import sys; from syntony.__main__ import main; code = main(['topo', 'list']);"
        "rooms = {f'syntony.{room}' for room in ('synth', 'collectives', 'overlap', 'trainer', 'lab', 'benchmarks')};"
        "heavy = ({'torch', 'matplotlib'} | rooms) & sys.modules.keys();"
        "assert not heavy, heavy; sys.exit(code)"
    )
    result = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_reader_that_leaves_early_sees_no_complaint() -> None:
    result = subprocess.run(
        f"{sys.executable} -m syntony --help | head -n 1",
        cwd=ROOT,
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.startswith("usage: syntony")
    assert result.stderr == ""


def test_the_page_lists_exactly_the_commands_there_are() -> None:
    rows = [
        line.split("|")
        for line in (ROOT / "docs" / "commands.md").read_text().splitlines()
        if line.startswith("| `syntony ")
    ]
    listed = [(row[1].strip().strip("`"), row[2].strip()) for row in rows]
    assert listed == [(f"syntony {' '.join(command.name)}", command.summary) for command in commands.all_commands()]
