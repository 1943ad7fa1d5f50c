"""The cache of proofs: it spares a proof only of the very same Program, and only from a folder that is ours alone."""

from __future__ import annotations

import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import syntony.synth.checker.proofs
from syntony.synth.checker import check_program
from syntony.synth.checker.proofs import checker_digest, digest, proven
from syntony.synth.formats.loading import InvalidError, load
from syntony.synth.formats.program_file import write_program
from syntony.synth.model.program import Program
from tests.synth.programs import exchange, ring_all_reduce

AN_OTHERS = 12345  # a user id


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's proofs lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "syntony" / "proofs"


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the Programs that the checker was asked about."""
    asked: list[str] = []

    def counted(program: Program) -> Any:
        asked.append(program.name)
        return check_program(program)

    monkeypatch.setattr(syntony.synth.checker.proofs, "check_program", counted)
    return asked


def test_a_proof_is_kept(folder: Path, proofs: list[str], tmp_path: Path) -> None:
    write_program(exchange(3), tmp_path / "p.json")
    assert load(tmp_path / "p.json") == load(tmp_path / "p.json") == exchange(3)
    assert len(proofs) == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (entry,) = folder.iterdir()
    assert (entry.name, entry.stat().st_size) == (digest(exchange(3)), 0)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_what_is_refused_is_not_kept(folder: Path, tmp_path: Path) -> None:
    write_program(ring_all_reduce(4, rounds_per_hop=False), tmp_path / "p.json")
    for _ in range(2):
        with pytest.raises(InvalidError):
            load(tmp_path / "p.json")
    assert not folder.exists() or not list(folder.iterdir())


def test_every_field_has_a_part_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    original = exchange(3)
    names = {digest(original)}
    others: dict[str, Any] = {
        "name": "other", "collective": "reduce", "root": 1, "ranks": 5, "fifo_depth": 3, "out_of_place": False,
        "in_place": False, "rounds_per_hop": True,
    }  # fmt: skip
    for field, value in original.columns().items():
        changed = dict(original.columns())
        if field in others:
            changed[field] = others[field]
        else:
            changed[field] = np.array(value)
            changed[field][-1, -1] ^= 1
        names.add(digest(unchecked(changed)))
    assert len(names) == 1 + len(original.columns())
    monkeypatch.setattr(syntony.synth.checker.proofs, "checker_digest", lambda: "another checker's")
    assert digest(original) not in names


def test_an_edit_of_the_checker_is_another_checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = syntony.synth.checker.proofs
    folder = shutil.copytree(Path(module.__file__).parent, tmp_path / "checker")
    monkeypatch.setattr(module, "__file__", str(folder / "proofs.py"))
    found = []
    for name in ("proofs.py", "programs/deadlock.py", "programs/deadlock.py"):
        checker_digest.cache_clear()
        found.append(checker_digest())
        with (folder / name).open("a") as file:
            file.write("# an edit\n")
    checker_digest.cache_clear()
    assert len({*found, checker_digest()}) == 4
    monkeypatch.undo()
    checker_digest.cache_clear()
    assert checker_digest() == found[0]


def unchecked(columns: dict[str, Any]) -> Program:
    """A Program that nobody would make, as far as `digest` looks at it."""
    return cast(Program, SimpleNamespace(columns=lambda: columns))


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_is_not_believed(mode: int, folder: Path, proofs: list[str]) -> None:
    wrong = ring_all_reduce(4, rounds_per_hop=False)
    folder.mkdir(parents=True)
    folder.chmod(mode)
    (folder / digest(wrong)).touch()
    assert not proven(wrong)
    assert proven(exchange(3))
    assert len(proofs) == 2
    assert [entry.name for entry in folder.iterdir()] == [digest(wrong)]  # and nothing is put there


def test_anothers_folder_is_not_believed(folder: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert proven(exchange(3))
    monkeypatch.setattr(os, "geteuid", lambda: AN_OTHERS)
    assert proven(exchange(3))
    assert len(proofs) == 2


def test_a_link_to_a_folder_is_not_followed(folder: Path, proofs: list[str], tmp_path: Path) -> None:
    folder.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert proven(exchange(3))
    assert proven(exchange(3))
    assert len(proofs) == 2
    assert not list((tmp_path / "elsewhere").iterdir())


def test_only_a_file_is_a_proof(folder: Path, proofs: list[str]) -> None:
    wrong = ring_all_reduce(4, rounds_per_hop=False)
    assert proven(exchange(3))
    (folder / digest(wrong)).symlink_to(folder / digest(exchange(3)))
    assert not proven(wrong)
    assert len(proofs) == 2


def test_without_a_cache_everything_is_proven_anew(
    tmp_path: Path, proofs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert proven(exchange(3))
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert proven(exchange(3))
    assert not proven(ring_all_reduce(4, rounds_per_hop=False))
    assert len(proofs) == 3


def test_many_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: bool(proven(exchange(3))), range(32)))
    assert len(list(folder.iterdir())) == 1
