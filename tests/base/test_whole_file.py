"""Files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.base.files import whole_file
from syntony.base.files.strict_json import FileError
from syntony.base.files.whole_file import write_bytes, write_text


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "plan.txt"
    write_text(target, "old")
    write_text(target, "new: ü")
    assert target.read_text(encoding="utf-8") == "new: ü"
    assert list(tmp_path.iterdir()) == [target]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "plan.txt"
    write_text(target, "old")

    def full(self: Path, name: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(FileError, match=r"plan\.txt: cannot be written: No space left on device"):
        write_text(target, "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan.txt", "old")]
    with pytest.raises(FileError, match=r"nowhere/plan\.txt: cannot be written: No such file or directory"):
        write_bytes(tmp_path / "nowhere/plan.txt", b"")


def test_no_two_files_are_written_under_one_name(tmp_path: Path) -> None:
    names = {whole_file.beside(tmp_path / "plan.txt") for _ in range(100)}
    assert len(names) == 100
    assert all(name.parent == tmp_path and name.name.startswith(".plan.txt.") for name in names)


def test_a_link_in_the_way_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a stranger guessed the name: what the link leads to stays as it is."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    mine.write_text("precious")
    theirs.mkdir()
    guessed = theirs / ".plan.txt.guessed.part"
    guessed.symlink_to(mine)
    monkeypatch.setattr(whole_file, "beside", lambda path: guessed)
    with pytest.raises(FileError, match="cannot be written: File exists"):
        write_text(theirs / "plan.txt", "new")
    assert mine.read_text() == "precious"
