"""SYNTONY_RAS: what NCCL's client says, and what it hears."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import numpy as np
import pytest

from syntony import Communicator, LocalBootstrap
from syntony.base.command import UserError
from syntony.collectives.recorder import ras
from syntony.view.makers.nccl_watch import is_ras
from tests.collectives.recorder.test_slow_wires import ring


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
    monkeypatch.setattr(ras, "_process", 0)
    monkeypatch.setattr(ras, "INTERVAL", 0.02)
    monkeypatch.setenv("SYNTONY_RAS", str(number))
    monkeypatch.setenv("SYNTONY_TRACE_DIR", str(tmp_path))
    return number


def ask(port: int, *lines: str) -> list[str]:
    """The answers to lines, the last of which ends the conversation; its answer is all of it."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client, client.makefile("rw") as text:
        answers = []
        for line in lines:
            print(line, file=text, flush=True)
            answers.append(text.readline().rstrip("\n") if line is not lines[-1] else text.read())
        return answers


def test_a_client_of_nccl_is_answered(port: int, tmp_path: Path) -> None:
    """The lines of ncclras, with -t 0 and -f json, and without."""
    from syntony.collectives.recorder.records import dump

    with Communicator.create(LocalBootstrap.group(1)[0], name="asked") as group:
        group.all_reduce(np.ones(4))
        dump(tmp_path)  # SYNTONY_TRACE_DIR was set after this process's threads had begun: they do not look there
        hello = ask(port, "CLIENT PROTOCOL 2", "TIMEOUT 1", "SET FORMAT json", "STATUS")
        assert hello[:3] == ["SERVER PROTOCOL 2", "OK", "OK"]
        told = json.loads(hello[3])
        assert is_ras(told), "syntony view reads it as it reads NCCL's"
        (one,) = (one for one in told["communicators"] if one["hash"] == "asked")
        assert (one["size"], one["ranks_count"], one["missing_ranks_count"]) == (1, 1, 0)
        assert one["ranks"][0]["pid"] == os.getpid()
        assert one["ranks"][0]["collective_counts"] == {"launched": 1}
        _, _, text = ask(port, "client protocol 2", "timeout 1", "verbose status")
        assert re.search(r"^asked +1 +1 +1 +running$", text, re.MULTILINE)
        assert ask(port, "TIMEOUT soon", "CLIENT PROTOCOL 2", "TIMEOUT 1", "STATUS")[0].startswith("ERROR: ")
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"MAKE COFFEE\n")
            assert client.recv(100) == b"ERROR: Unknown command MAKE COFFEE\n"


def test_a_report_names_who_does_not_answer_and_what_is_slow() -> None:
    dumps = ring(np.array([1.0, 0.5, 1.0, 1.0, 1.0]), 60, np.zeros(5))[:4]
    told = ras.report(dumps, 0.1)
    (group,) = told["communicators"]
    assert [one["rank"] for one in group["missing_ranks"]] == [4]
    assert any("left no record" in sentence for sentence in told["findings"])
    assert any("the wire from rank 1 (host1) to rank 2 (host2) is slow" in sentence for sentence in told["findings"])
    text = ras.text(dumps, 0.1, verbose=False)
    assert "incomplete" in text
    assert "is slow" in text


def test_a_monitor_hears_of_changes(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = iter([["rank 1 is slow"], [], []])
    monkeypatch.setattr(ras, "fresh", lambda folder, patience: [])
    monkeypatch.setattr(ras, "_wrong", lambda dumps: next(sentences, []))
    ras.answer_if_asked()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client, client.makefile("rw") as text:
        print("MONITOR", file=text, flush=True)
        assert text.readline() == "OK\n"
        assert re.fullmatch(r"\d\d:\d\d:\d\d rank 1 is slow\n", text.readline())
        assert re.fullmatch(r"\d\d:\d\d:\d\d no longer: rank 1 is slow\n", text.readline())


def test_one_process_of_a_host_answers(port: int) -> None:
    ras.answer_if_asked()
    ras._process = 0  # as another one
    ras.answer_if_asked()
    assert ask(port, "TIMEOUT 1", "STATUS")[1].startswith("ERROR: ")  # nobody has left a record


@pytest.mark.parametrize(
    ("value", "folder", "sentence"),
    [
        ("here", "/tmp", "SYNTONY_RAS=here should be PORT or HOST:PORT"),
        ("70000", "/tmp", "SYNTONY_RAS=70000 should be PORT or HOST:PORT"),
        ("28028", "", "SYNTONY_RAS needs SYNTONY_TRACE_DIR"),
    ],
)
def test_what_cannot_be_gets_a_sentence(
    value: str, folder: str, sentence: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNTONY_RAS", value)
    monkeypatch.setenv("SYNTONY_TRACE_DIR", folder)
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}"):
        ras.answer_if_asked()
