"""Completion and the manual page: made from the table, and true of it; examples that run as they say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from syntony.__main__ import main
from syntony.commands import all_commands
from syntony.completion import SHELLS, words_of
from syntony.examples import examples
from syntony.manual import page
from syntony.parser import parser_of


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bash") / "syntony.bash"
    path.write_text(SHELLS["bash"](map(words_of, all_commands())))
    return path


def completed(script: Path, line: str) -> list[str]:
    """What bash offers behind `line`."""
    ask = f'source {script}; COMP_LINE="$1"; COMP_POINT=${{#1}}; _syntony_whole; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", ask, "bash", line], cwd=script.parent, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("syntony synt", ["synth"]),
        ("syntony help si", ["simulate"]),
        ("syntony topo d", ["draw", "detect"]),
        ("syntony topo draw tor", ["torus:4x4x4"]),
        ("syntony topo draw torus:", ["4x4x4"]),
        ("syntony synth dgx1 all_gather --eng", ["--engine"]),
        ("syntony synth dgx1 all_gather --engine f", ["forest", "flow", "fast"]),
        ("syntony bench all_red", ["all_reduce"]),
        ("syntony lab li", ["list"]),
        ("syntony lab star:4 --ra", ["--rate"]),
        ("syntony train t", ["tiny"]),
        ("syntony verify s", ["syntony.bash"]),
    ],
)
def test_bash_offers(script: Path, line: str, offered: list[str]) -> None:
    assert completed(script, line) == offered


def test_bash_offers_every_command_and_every_option(script: Path) -> None:
    """The table's last verbs, too: what is added to the table is in the script."""
    for command in all_commands():
        *front, last = command.name
        assert last in completed(script, " ".join(["syntony", *front, last[:-1]])), command.name
    text = script.read_text()
    for command in all_commands():
        for flag in words_of(command).options:
            assert flag in text


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_of_its_shell(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(SHELLS[shell](map(words_of, all_commands())))
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_has_a_line_per_option() -> None:
    text = SHELLS["fish"](map(words_of, all_commands()))
    assert "'__syntony_at topo draw' -l output" in text
    assert "'__syntony_at bench' -s b" in text


def test_the_manual_has_every_command_and_option() -> None:
    text = page().replace("\\-", "-").replace("\\e", "\\")
    for command in all_commands():
        assert f".SS syntony {' '.join(command.name)}\n" in text
        assert f"    {command.example}\n" in text
        for action in parser_of(command)._actions:
            if action.help and "--help" not in action.option_strings and action.help != "==SUPPRESS==":
                assert (action.option_strings or [action.dest])[-1] in text or not action.option_strings


def test_the_manual_is_sound_troff(tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    path = tmp_path / "syntony.1"
    assert main(["man", "-o", str(path)]) == 0
    done = subprocess.run(["groff", "-man", "-ww", "-Tascii", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "macro" not in done.stderr


def test_examples_run_by_name_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(examples())
    assert {"ring", "tiny", "jobs"} <= {example.name for example in found}
    for example in found:
        assert example.about.endswith((".", ":", "zero3"))
        words = example.command.split()
        assert words[0] == "syntony"
        if words[1] != "train":  # tests/trainer runs those
            assert main(words[1:]) == 0, capsys.readouterr().err


def test_an_example_is_copied_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "ring", "-o", "mine.py"]) == 0
    assert main(["compile", "mine.py", "--ranks", "3"]) == 0
    assert "ring all_reduce on 3 ranks" in capsys.readouterr().out
    assert main(["examples", "tiny", "-o", "mine.py"]) == 2
    assert "--force" in capsys.readouterr().err
