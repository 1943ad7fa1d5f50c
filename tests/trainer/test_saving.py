"""Checkpoints that many ranks write while they train: of any layout, for any layout, and for torch's own reader."""

from __future__ import annotations

import re
import shutil
import typing
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.collectives.running import run_python

pytest.importorskip("torch.distributed")

import torch
import torch.distributed.checkpoint as dcp


def read(folder: Path) -> dict[str, torch.Tensor]:
    """Everything, by torch's reader in one process."""
    known: dict[str, Any] = dict(dcp.FileSystemReader(folder).read_metadata().state_dict_metadata)
    found = {name: torch.empty(about.size, dtype=about.properties.dtype) for name, about in known.items()}
    with warnings.catch_warnings(action="ignore"):
        dcp.load(found, checkpoint_id=folder, no_dist=True)
    return found


def test_eight_ranks_write_and_six_go_on(tmp_path: Path) -> None:
    text = shutil.copy(typing.__file__, tmp_path / "text.py")
    done = run_python("-m", "tests.trainer.saving_script", text, tmp_path, timeout=120)
    said = {name: lines for name, *lines in (line.split("\t") for line in done.stdout.splitlines())}
    assert len(said) == 6, done.stderr[-3000:]
    digests = {name: lines[-1] for name, lines in said.items()}
    assert digests["one"] == digests["eight"] == digests["six"] == digests["three"]
    assert digests["straight"] == digests["on"] != digests["one"]
    one, eight = (read(tmp_path / name / "step-2") for name in ("one", "eight"))
    assert one.keys() == eight.keys()
    assert all(torch.equal(one[name], eight[name]) for name in one if name != "rng")
    assert len(list((tmp_path / "eight" / "step-2").glob("*.distcp"))) == 8
    assert sorted(path.name for path in (tmp_path / "eight").iterdir()) == ["step-2"]

    state = sum(values.nbytes for name, values in one.items() if values.dim() and name not in ("trainer", "rng"))
    numbers = {
        name: [float(number) for number in re.findall(r"([\d.]+) MB", lines[0])]
        for name, lines in said.items()
        if lines[0].startswith("resumed")
    }
    assert all(number[0] == pytest.approx(state / 1e6, abs=0.006) for number in numbers.values())
    weights = {name: value for name, value in one.items() if f"{name}.exp_avg" in one}
    flat = sum(value.nbytes for value in weights.values() if value.dim() == 1)
    cut = sum(value.nbytes for value in weights.values()) - flat
    # three ranks: what is not cut goes to two more; two sharded ones: each reads its own, and nothing moves
    assert numbers["three"][1] == pytest.approx(2 * 3 * flat / 1e6, abs=0.006)
    assert numbers["on"][1] == 0
    # six: the other data rank takes weights, and what the three have alike its share of memories, too
    assert numbers["six"][1] == pytest.approx((cut + 5 * flat + 2 * 2 * flat) / 1e6, abs=0.006)
