"""Which labs are taken for dead, by records in a folder of their own. Needs no root."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from syntony.lab import runs


@pytest.fixture(autouse=True)
def own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is there, and no namespace."""
    monkeypatch.setattr(runs, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(runs, "_all_namespaces", list)


def _begin_and_die() -> None:
    runs.Run("star:2")
    os._exit(0)


def killed() -> str:
    """The id of a lab whose process has ended without a word."""
    before = {record.id for record, _ in runs.records()}
    process = multiprocessing.get_context("fork").Process(target=_begin_and_die)
    process.start()
    process.join()
    (new,) = {record.id for record, _ in runs.records()} - before
    return new


def test_only_labs_whose_process_has_ended_are_removed() -> None:
    alive = runs.Run("star:4")
    dead = {killed(), killed()}
    assert {record.id for record in runs.remove_left_behind()} == dead
    assert [record.id for record, _ in runs.records()] == [alive.id]
    alive.close()
    assert not list(runs.records())


def test_namespaces_without_a_record_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(runs, "_all_namespaces", lambda: ["syntony-1234-h0", "syntony-1234-s0"])
    monkeypatch.setattr(runs, "remove", removed.append)
    assert [record.id for record in runs.remove_left_behind()] == ["1234"]
    assert removed == ["1234"]


def test_a_lab_that_begins_while_labs_are_listed_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[runs.Run] = []

    def namespaces() -> list[str]:
        begun.append(runs.Run("star:2"))
        return [begun[-1].namespace("h0")]

    monkeypatch.setattr(runs, "_all_namespaces", namespaces)
    assert all(alive for _, alive in runs.records())
    assert begun


def test_of_several_that_clean_at_once_one_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = sorted(killed() for _ in range(3))
    removed: list[str] = []
    remove = runs.remove

    def slowly(run: str) -> None:
        removed.append(run)
        threading.Event().wait(0.01)
        remove(run)

    monkeypatch.setattr(runs, "remove", slowly)
    threads = [threading.Thread(target=runs.remove_left_behind) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(removed) == dead
