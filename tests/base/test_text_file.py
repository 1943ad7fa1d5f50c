"""Text files and TOML: what is wrong with a file is one sentence that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.base.files.strict_json import FileError
from syntony.base.files.text_file import parse_toml, read_text


def test_text_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("ü\r\n".encode())
    assert read_text(file) == "ü\r\n"
    assert read_text(file, most=4) == "ü\r\n"


def test_the_mark_that_some_editors_put_first_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[model]\nblocks = 2\n", encoding="utf-8-sig")
    assert parse_toml(read_text(file), file) == {"model": {"blocks": 2}}


@pytest.mark.parametrize(
    ("content", "most", "sentence"),
    [
        (None, None, "cannot be read: No such file or directory"),
        (b"ab\xff", None, "not a text file: byte 2 is not UTF-8"),
        (b"x" * ((1 << 20) + 1), 1 << 20, "too large; 1 MiB are read at most"),
    ],
)
def test_what_cannot_be_read(content: bytes | None, most: int | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(FileError) as refused:
        read_text(file, most)
    assert str(refused.value) == f"{file}: {sentence}"


@pytest.mark.parametrize("text", ["a = ", "a = 1\na = 2", "a = " + "[" * 10_000, "a = " + "1" * 5000])
def test_what_is_no_toml(text: str) -> None:
    with pytest.raises(FileError, match=r"^mine\.toml: not TOML: "):
        parse_toml(text, "mine.toml")
    assert parse_toml("a = 1", "mine.toml") == {"a": 1}
