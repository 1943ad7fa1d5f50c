"""Checkpoints that many ranks write while they train: of any layout, for any layout, and for torch's own reader."""

from __future__ import annotations

import re
import shutil
import typing
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.forked import run

pytest.importorskip("torch.distributed")

import torch
import torch.distributed.checkpoint as dcp

from tests.trainer.state import saving_script


def read(folder: Path) -> dict[str, torch.Tensor]:
    """Everything, by torch's reader in one process."""
    known: dict[str, Any] = dict(dcp.FileSystemReader(folder).read_metadata().state_dict_metadata)
    found = {name: torch.empty(about.size, dtype=about.properties.dtype) for name, about in known.items()}
    with warnings.catch_warnings(action="ignore"):
        dcp.load(found, checkpoint_id=folder, no_dist=True)
    return found


def test_four_ranks_write_and_others_go_on(tmp_path: Path) -> None:
    text = shutil.copy(typing.__file__, tmp_path / "text.py")
    half = tmp_path / "four" / ".step-1.0123456789abcdef.part"  # of a run that was killed
    half.mkdir(parents=True)
    (half / "__0_0.distcp").write_bytes(b"half")
    done = run(saving_script.main, text, tmp_path, timeout=280, torch=True)
    said = {name: lines for name, *lines in (line.split("\t") for line in done.stdout.splitlines())}
    assert len(said) == 6, done.stderr[-3000:]
    digests = {name: lines[-1] for name, lines in said.items()}
    assert digests["one"] == digests["four"] == digests["three"] == digests["taken back"]
    assert digests["straight"] == digests["on"] != digests["one"]
    one, four = (read(tmp_path / name / "step-2") for name in ("one", "four"))
    assert one.keys() == four.keys()
    assert all(torch.equal(one[name], four[name]) for name in one if name != "rng")
    assert len(list((tmp_path / "four" / "step-2").glob("*.distcp"))) == 4
    assert [path.name for path in (tmp_path / "four").iterdir()] == ["step-2"]

    weights = [name for name in one if f"{name}.exp_avg" in one]
    state = 3 * sum(one[name].nbytes for name in weights)
    alike = 3 * sum(one[name].nbytes for name in weights if one[name].dim() == 1)
    found = {name: [float(number) for number in re.findall(r"([\d.]+) MB", said[name][0])] for name in ("three", "on")}
    assert found["three"] == pytest.approx([state / 1e6, 2 * alike / 1e6], abs=0.006)  # only vectors are not cut
    assert found["on"] == pytest.approx([state / 1e6, 0], abs=0.006)  # each reads its own shards
