"""docs/promises.md names tests: each of them exists, and each promise has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = [line for line in (ROOT / "docs" / "promises.md").read_text().splitlines() if line.startswith("| ")]
PROMISES = [line.strip("| ").split(" | ") for line in ROWS if not line.startswith("| promise ")]


@pytest.mark.parametrize(("promise", "tests"), PROMISES)
def test_every_promise_has_a_test_that_exists(promise: str, tests: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
    assert named, f"{promise!r} names no test"
    for file, test in named:
        functions = {
            node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        assert test in functions, f"{file} has no {test}"
