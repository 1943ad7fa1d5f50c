"""docs/environment.md lists every variable that the code reads, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in (ROOT / "docs" / "environment.md").read_text().splitlines()
    if line.startswith("| `SYNTONY_")
]


def names_in_code() -> set[str]:
    """Every string literal that is a variable's name, in Python and in C++: a name is written out where it is read."""
    sources = [*(ROOT / "src").rglob("*.py")]
    for suffix in ("cpp", "hpp", "cu", "cuh"):
        sources += (ROOT / "csrc").rglob(f"*.{suffix}")
    return {name for source in sources for name in re.findall(r"[\"'](SYNTONY_[A-Z0-9_]+)[\"']", source.read_text())}


def test_the_page_lists_what_the_code_reads() -> None:
    listed = [row[0].strip("`") for row in ROWS]
    assert listed == sorted(names_in_code())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`"))
def test_every_variable_has_a_meaning_a_default_and_an_example(row: list[str]) -> None:
    name, meaning, default, example = row
    assert meaning
    assert default
    assert example.startswith(f"{name.rstrip('`')}=")
