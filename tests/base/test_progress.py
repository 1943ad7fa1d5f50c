"""The progress line: what it says, and that it is for terminals only."""

from __future__ import annotations

import io
import sys

import pytest

from syntony.base import progress as module
from syntony.base.progress import line, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_it_says() -> None:
    assert line("bounds", 12.4) == "bounds: 12 s"
    assert line("bounds", 12.4, 60.0) == "bounds: 12 s; at most 48 s more"
    assert line("bounds", 70.0, 60.0) == "bounds: 70 s; at most 0 s more"
    assert line("tuning", 12.0, share=0.25) == "tuning: 12 s; about 36 s more"


def test_on_a_terminal_it_is_shown_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    shown = module.threading.Event()
    said = module.line
    monkeypatch.setattr(module, "line", lambda *words: shown.set() or said(*words))
    with progress("planning") as done:
        done(0.5)
        assert shown.wait(20)
    assert "planning: 0 s" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert sys.stderr.getvalue().endswith("\r\x1b[K")  # type: ignore[attr-defined]


def test_what_it_says_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(module, "EACH_SECONDS", 0.01)
    news, read = ["planning", "nearly planned"], module.threading.Event()

    def what() -> str:
        if len(news) > 1:
            return news.pop(0)
        read.set()
        return news[0]

    with progress(what):
        assert read.wait(20)
    said = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert 0 <= said.find("\x1b[Kplanning: 0 s") < said.find("\x1b[Knearly planned: 0 s")


def test_elsewhere_nothing_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    with progress("planning") as done:
        done(0.5)
    assert capsys.readouterr().err == ""
