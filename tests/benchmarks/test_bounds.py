"""The table of bounds: a row per collective and hint, the same bound in both, its witness in words."""

from __future__ import annotations

import pytest

from syntony.benchmarks.__main__ import main
from syntony.benchmarks.synthesis.speed import bounds


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["synthesis", "bounds", "rail:boxes=2,gpus=2,rails=2", "--collectives", "all_gather,all_to_all"]
    assert main(words) == 0
    _, built, _, heading, *rows = capsys.readouterr().out.splitlines()
    assert built.startswith("rail:boxes=2,gpus=2,rails=2: 4 ranks, built in ")
    assert heading.split()[:3] == ["collective", "hint", "seconds"]
    cells = [row.split(maxsplit=7) for row in rows]
    assert [(cell[0], cell[1], cell[3]) for cell in cells] == [
        ("all_gather", "yes", "1"),
        ("all_to_all", "yes", "1"),
        ("all_gather", "no", "5"),
        ("all_to_all", "no", "5"),
    ]
    assert [cell[6] for cell in cells] == ["1/200", "1/100"] * 2  # ns/byte: half of the size over two NICs of 50 GB/s
    assert all("box 0 (ranks 0-1) over 2 links of 50 GB/s" in cell[7] for cell in cells)


def test_limits() -> None:
    assert [bounds.limit(ranks, hint) for ranks in (8, 1024, 4096, 4097) for hint in (True, False)] == [
        "1", "5", "1", "5", "10", "10", "-", "-",
    ]  # fmt: skip
