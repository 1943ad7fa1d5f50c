"""A run whose ranks are killed ends in the bits of one that nothing has happened to."""

from __future__ import annotations

import json
import re
import shutil
import typing
from pathlib import Path
from typing import Any

import pytest

from tests.collectives.running import run_python

pytest.importorskip("torch.distributed")

ZERO = ["parallel.dp=4", "parallel.zero=3"]
HYBRID = ["parallel.dp=4", "parallel.zero=2", "parallel.replicas=2"]
PIPELINE = ["parallel.dp=2", "parallel.pp=2"]
SAMPLE: list[tuple[str, list[str], list[list[int]], int]] = [
    ("undisturbed", ["elastic.copies=0"], [], 0),
    ("nobody is lost", ZERO, [], 0),
    ("rank 0, before it has copied", ZERO, [[0, 3, 0]], 0),
    ("rank 3, in the middle of a step", HYBRID, [[3, 3, 9]], 0),
    ("one replica of a pipeline", PIPELINE, [[3, 2, 4]], 0),
    ("two, one after the other", ["parallel.dp=4", "parallel.zero=1"], [[1, 2, 5], [0, 4, 3]], 0),
    ("lost and replaced", [*ZERO, "run.steps=30"], [[2, 3, 8]], 1),
]
MORE = [
    *((f"rank {rank} at op {ops}", ZERO, [[rank, 3, ops]], 0) for rank in range(4) for ops in (0, 3, 7, 12)),
    ("two at once", [*ZERO, "elastic.copies=2"], [[1, 3, 4], [2, 3, 5]], 0),
    ("every second step", [*ZERO, "elastic.every=2"], [[1, 3, 4]], 0),
    ("not sharded", ["parallel.dp=4"], [[2, 3, 9]], 0),
    ("optimistic", [*ZERO, "optimizer.clip=optimistic"], [[2, 3, 9]], 0),
    ("experts", ["model.experts=4", "parallel.dp=4", "parallel.ep=2", "parallel.zero=1"], [[1, 3, 9]], 0),
]


def ended(cases: list[Any], folder: Path) -> dict[str, tuple[str, list[str]]]:
    text = shutil.copy(typing.__file__, folder / "text.py")
    done = run_python("-m", "tests.trainer.elastic.going_on_script", text, folder, json.dumps(cases), timeout=280)
    found = {name: (digest, lines) for name, digest, lines in map(json.loads, done.stdout.splitlines())}
    assert len(found) == len(cases), f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return found


def losses(lines: list[str]) -> dict[str, str]:
    """By step; of one that was done again, the last time."""
    return dict(pair for line in lines for pair in re.findall(r"^step +(\d+) · loss (\S+)", line))


@pytest.mark.parametrize("more", [False, pytest.param(True, marks=pytest.mark.sweep)], ids=["sample", "all"])
def test_the_same_weights_whoever_is_lost(more: bool, tmp_path: Path) -> None:
    cases = [SAMPLE[0], *(MORE if more else SAMPLE[1:])]
    found = ended(cases, tmp_path)
    digest, lines = found["undisturbed"]
    for name, settings, kills, _ in cases[1:]:
        if "run.steps=30" in settings or "model.experts=4" in settings:
            continue
        assert found[name][0] == digest, name
        again = losses(found[name][1])
        assert again.items() <= losses(lines).items(), name
        assert sum("lost" in line for line in found[name][1]) <= len(kills), name
    if not more:
        lines = found["lost and replaced"][1]
        assert any("rank joined; 4 go on from step" in line for line in lines), lines
