"""Completion and the manual page: made from the table, and true of it; examples that run as they say."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import time
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


def offered_by_fish(script: Path, line: str) -> list[str]:
    """What fish offers behind `line`."""
    ask = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
    surroundings = os.environ | {"HOME": str(script.parent)}
    done = subprocess.run(ask, cwd=script.parent, env=surroundings, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [offer.split("\t")[0] for offer in done.stdout.splitlines()]


def after_a_tab_in_zsh(script: Path, line: str) -> str:
    """What stands on the line of an interactive zsh once somebody has typed `line` and the tabulator."""
    setup = (
        f"autoload -U compinit; compinit -u -D; source {script}; unsetopt beep; "
        'show() { print -r -- "<<$BUFFER>>"; zle kill-whole-line }; zle -N show; bindkey "^Xx" show; echo rea""dy\n'
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(script.parent)
        os.execvpe("zsh", ["zsh", "-f", "-i"], os.environ | {"TERM": "dumb", "PS1": "", "HOME": str(script.parent)})
    try:
        os.write(terminal, setup.encode())
        _read_until(terminal, "ready")
        os.write(terminal, f"{line}\t\x18x".encode())
        return _read_until(terminal, ">>").partition("<<")[2].partition(">>")[0]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(pid, 0)


def _read_until(terminal: int, mark: str) -> str:
    seen = ""
    deadline = time.monotonic() + 60
    while mark not in seen.replace('rea""dy', "") and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 1 << 16).decode(errors="replace")
    return seen


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("syntony synt", ["synth"]),
        ("syntony help si", ["simulate"]),
        ("syntony topo d", ["detect", "draw"]),
        ("syntony topo draw tor", ["torus:4x4x4"]),
        ("syntony synth dgx1 all_gather --eng", ["--engine"]),
        ("syntony synth dgx1 all_gather --engine f", ["fast", "flow", "forest"]),
        ("syntony bench all_red", ["all_reduce"]),
        ("syntony lab li", ["list"]),
        ("syntony lab star:4 --ra", ["--rate"]),
        ("syntony train t", ["tiny"]),
        ("syntony verify a", ["a.fish"]),
    ],
)
def test_fish_offers(line: str, offered: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.fish"
    path.write_text(SHELLS["fish"](map(words_of, all_commands())))
    assert offered_by_fish(path, line) == offered


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("syntony synt", "syntony synth "),
        ("syntony topo dr", "syntony topo draw "),
        ("syntony topo draw torus:", "syntony topo draw torus:4x4x4 "),
        ("syntony synth dgx1 all_gather --eng", "syntony synth dgx1 all_gather --engine "),
        ("syntony verify a", "syntony verify a.zsh "),
    ],
)
def test_zsh_completes(line: str, completed: str, tmp_path: Path) -> None:
    path = tmp_path / "a.zsh"
    path.write_text(SHELLS["zsh"](map(words_of, all_commands())))
    assert after_a_tab_in_zsh(path, line) == completed


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
