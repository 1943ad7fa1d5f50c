"""The pages' command lines: each names a command that there is, with options that it has."""

from __future__ import annotations

import re
import shlex
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from syntony.commands import find
from syntony.parser import arguments_of

ROOT = Path(__file__).parents[3]
LINES = [
    pytest.param(found[1], id=f"{page.name}:{number}")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    for number, line in enumerate(page.read_text().splitlines(), 1)
    if (found := re.match(r"(?:    |\$ )(?:.* )?syntony (\w.*)", line)) and "import" not in line
]


@pytest.mark.parametrize("line", LINES)
def test_the_command_takes_what_the_page_gives_it(line: str) -> None:
    words = shlex.split(re.split(r"\s{3,}", line)[0])
    command, rest = find(words)
    with suppress(SystemExit) if "--help" in rest else nullcontext():
        arguments_of(command, rest)


def test_there_are_such_lines() -> None:
    assert len(LINES) > 40
