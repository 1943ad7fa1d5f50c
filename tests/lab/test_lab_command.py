"""What `syntony lab` refuses, before it touches anything. Needs no root."""

from __future__ import annotations

import pytest

from syntony.__main__ import main
from syntony.lab.lab_spec import LabError
from syntony.lab.wires import kernel


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["star:4", "--rate", "200"], "--rate '200' must be a positive number of kbit, mbit or gbit, such as 200mbit"),
        (["star:4", "--rate", "h0-h1=1gbit"], "'h0-h1': no wire of the lab leads from h0 to h1"),
        (["star:4", "--delay", "1"], "--delay '1' must be a time such as 2s, 1.5ms or 20us"),
        (["star:4", "--fault", "cut h0-s0 at 1s"], "faults are counted from the command's start, and there is no"),
        (["star:4", "--fault", "melt h0-s0", "--", "true"], "begins with 'melt'; one begins with cut, slow, flap"),
        (["star:4", "--", "no-such-thing"], "there is no command 'no-such-thing' to run"),
        (["stars:4"], "unknown topology 'stars' (did you mean star?)"),
        (["star:4", "true"], "unrecognized arguments: true"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "run", lambda *_: pytest.fail("it should have refused before"))
    assert main(["lab", *words]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_others_than_root_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["lab", "star:2"]) == 2
    assert "only root may; run it with sudo" in capsys.readouterr().err


@pytest.mark.parametrize("tool", ["ip", "tc"])
def test_a_missing_tool_is_named_with_its_package(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name == tool else f"/bin/{name}")
    with pytest.raises(LabError, match=f"^the lab needs the command {tool}; install iproute2"):
        kernel.require_tools()


def test_the_help_names_its_sisters(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["lab", "--help"])
    said = capsys.readouterr().out
    assert "--fault" in said
    assert "lab clean" in said
    assert "example:" in said
