"""docs/memory_order.md names every acquire, release and fence in the core, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
CORE = ROOT / "csrc" / "core"
ORDER = r"memory_order_(?:acquire|release|acq_rel|seq_cst)"
ASKED = re.compile(rf"(\w+)(?:\(\))?\.(?:load|store|fetch_add|fetch_sub|exchange)\((?=[^;]*{ORDER})")
FENCE = re.compile(rf"fence\(std::{ORDER}")


def _asked() -> set[tuple[str, str]]:
    found = set()
    for path in (*CORE.rglob("*.cpp"), *CORE.rglob("*.hpp")):
        if path.name == "atomic.hpp":
            continue
        name = str(path.relative_to(CORE))
        for line in path.read_text().splitlines():
            found |= {(name, variable) for variable in ASKED.findall(line)}
            if FENCE.search(line):
                found.add((name, "fence"))
    return found


def test_every_order_has_a_reason() -> None:
    listed = set()
    for line in (ROOT / "docs" / "memory_order.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 5 or not cells[0].startswith("`"):
            continue
        assert all(cells), line
        listed |= {(file, cells[1].strip("`")) for file in re.findall(r"`([^`]+)`", cells[0])}
    asked = _asked()
    assert len(asked) > 20
    assert listed == asked
