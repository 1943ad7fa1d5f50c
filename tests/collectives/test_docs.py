"""docs/collectives.md: every example is run, and every collective has one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from syntony import Communicator
from tests.collectives.ranks import Ranks

PAGE = Path(__file__).parents[2] / "docs" / "collectives.md"
TEXT = PAGE.read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    kept = Ranks(4)
    yield kept
    kept.close()


@pytest.mark.parametrize("title", SECTIONS)
def test_examples(title: str, ranks: Ranks) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", SECTIONS[title], re.MULTILINE | re.DOTALL)
    assert examples, f"{title} has no example"
    for example in examples:
        line = TEXT[: TEXT.index(example)].count("\n")
        code = compile("\n" * line + example, str(PAGE), "exec")

        def run(group: Communicator) -> None:
            exec(code, {"group": group, "rank": group.rank, "size": group.size, "np": np})  # noqa: B023

        ranks.run(run)


def test_every_collective_has_a_section() -> None:
    collectives = "all_reduce all_gather reduce_scatter all_to_all broadcast reduce gather scatter barrier"
    assert set(collectives.split()) <= SECTIONS.keys()
