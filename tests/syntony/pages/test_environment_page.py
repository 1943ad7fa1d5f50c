"""docs/environment.md lists every variable that the code reads, and no others."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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


ELSEWHERE = {
    "SYNTONY_AGGREGATOR": "needs a switch",
    "SYNTONY_CONFIG": "needs a file",
    "SYNTONY_ISA": "depends on the machine",
    "SYNTONY_SECRET": "is made by the shell",
    "SYNTONY_TUNE": "would measure",
}
"""Examples that a group alone cannot try."""

SCRIPT = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import syntony

def run(bootstrap):
    with syntony.Communicator.create(bootstrap) as group:
        array = np.ones(4, np.float32)
        group.all_reduce(array)
        return float(array[0])

with ThreadPoolExecutor(2) as threads:
    print(list(threads.map(run, syntony.LocalBootstrap.group(2))))
"""


def test_a_group_forms_with_the_examples(tmp_path: Path) -> None:
    examples = [shlex.split(row[3].strip("`"))[0].partition("=") for row in ROWS]
    settings = {name: value for name, _, value in examples if name not in ELSEWHERE}
    assert len(settings) + len(ELSEWHERE) == len(ROWS)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[2.0, 2.0]\n"
