"""A run whose ranks are killed ends in the bits of one that nothing has happened to."""

from __future__ import annotations

import json
import random
import re
import shutil
import typing
from pathlib import Path
from typing import Any

import pytest

from tests.collectives.running import run_python
from tests.forked import run

pytest.importorskip("torch.distributed")

from tests.trainer.elastic import going_on_script

ZERO = ["parallel.dp=4", "parallel.zero=3"]
HYBRID = ["parallel.dp=4", "parallel.zero=2", "parallel.replicas=2"]
SPREAD = [*HYBRID, "parallel.spread=true"]
PIPELINE = ["parallel.dp=2", "parallel.pp=2"]
SAMPLE: list[tuple[str, list[str], list[list[int]], int]] = [
    ("rank 0, before it has copied", ZERO, [[0, 3, 0]], 0),
    ("rank 3, in the middle of a step", SPREAD, [[3, 3, 9]], 0),
    ("one replica of a pipeline", PIPELINE, [[3, 2, 4]], 0),
    ("two, one after the other", ["parallel.dp=4", "parallel.zero=1"], [[1, 2, 5], [0, 4, 3]], 0),
    ("lost and replaced", [*ZERO, "run.steps=30"], [[2, 3, 8]], 1),
]
MORE = [
    ("nobody is lost", ZERO, [], 0),
    *((f"rank {rank} at op {ops}", ZERO, [[rank, 3, ops]], 0) for rank in range(4) for ops in (0, 3, 7, 12)),
    ("two at once", [*ZERO, "elastic.copies=2"], [[1, 3, 4], [2, 3, 5]], 0),
    ("every second step", [*ZERO, "elastic.every=2"], [[1, 3, 4]], 0),
    ("not sharded", ["parallel.dp=4"], [[2, 3, 9]], 0),
    ("replicas", HYBRID, [[1, 3, 9]], 0),
    ("replicas, down to one", [*SPREAD, "elastic.copies=2"], [[1, 3, 9], [2, 5, 2], [3, 6, 4]], 0),
    ("optimistic", [*ZERO, "optimizer.clip=optimistic"], [[2, 3, 9]], 0),
    ("experts", ["model.experts=4", "parallel.dp=4", "parallel.ep=2", "parallel.zero=1"], [[1, 3, 9]], 0),
]


def ended(cases: list[Any], folder: Path) -> dict[str, tuple[str, list[str]]]:
    text = shutil.copy(typing.__file__, folder / "text.py")
    done = run(going_on_script.main, text, folder, json.dumps(cases), timeout=280, torch=True)
    found = {name: (digest, lines) for name, digest, lines in map(json.loads, done.stdout.splitlines())}
    assert len(found) == len(cases), f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return found


def losses(lines: list[str]) -> dict[str, str]:
    """By step; of one that was done again, the last time."""
    return dict(pair for line in lines for pair in re.findall(r"^step +(\d+) · loss (\S+)", line))


@pytest.mark.parametrize("more", [False, pytest.param(True, marks=pytest.mark.sweep)], ids=["sample", "all"])
def test_the_same_weights_whoever_is_lost(more: bool, tmp_path: Path) -> None:
    chosen = MORE if more else SAMPLE
    alone = {
        what: (what, [*what.split(), "elastic.copies=0"], [], 0)
        for what in ("", "run.steps=30", "model.experts=4")
        if not what or any(what in settings for _, settings, _, _ in chosen)
    }
    cases = [*alone.values(), *chosen]
    found = ended(cases, tmp_path)
    for name, settings, kills, _ in chosen:
        digest, lines = found[next((setting for setting in settings if setting in alone), "")]
        assert found[name][0] == digest, name
        again = losses(found[name][1])
        assert again.items() <= losses(lines).items(), name
        assert sum("lost" in line for line in found[name][1]) <= len(kills), name
    if not more:
        lines = found["lost and replaced"][1]
        assert any("rank joined; 4 go on from step" in line for line in lines), lines


@pytest.mark.soak
def test_a_hundred_deaths(tmp_path: Path) -> None:
    """Each is replaced before the next one; the weights are those of a run left alone."""
    text, seed = shutil.copy(typing.__file__, tmp_path / "text.py"), random.randrange(1 << 32)
    script = "tests.trainer.elastic.soak_script"
    done = run_python("-m", script, text, tmp_path, 100, 500, seed, timeout=280)
    assert done.returncode == 0, f"seed {seed}: {done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    alone, weights, went_on, grew = json.loads(done.stdout)
    print(f"seed {seed}: goes on after {max(went_on):.2f} s at most, with all ranks after {max(grew):.2f} s")
    assert weights == alone, seed
    assert len(grew) == 100, seed
