"""Whole runs on real ranks: every layout, policy and way of clipping, and every resumed run, ends in the same bits."""

from __future__ import annotations

import shutil
import subprocess
import typing
from pathlib import Path

import pytest

from tests.collectives.running import run_python

pytest.importorskip("torch.distributed")

from tests.collectives.trainer.layouts_script import LAYOUTS


def test_the_same_weights_whatever_the_layout(tmp_path: Path) -> None:
    text = shutil.copy(typing.__file__, tmp_path / "text.py")
    done = run_python("-m", "tests.collectives.trainer.layouts_script", text, tmp_path, timeout=280)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    digests = {name: (group, digest) for group, name, digest, _ in rows}
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert digests["off, one"][1] != digests["one"][1]  # the gradients were large enough to be clipped
    first = {group: next(digest for g, digest in digests.values() if g == group) for group, _ in digests.values()}
    assert {name: digest for name, (group, digest) in digests.items() if digest != first[group]} == {}
    assert len(rows) == sum(map(len, LAYOUTS.values()))
    assert not list(tmp_path.glob(".step*"))


def trained(text: str, *settings: str) -> subprocess.CompletedProcess[str]:
    words = [word for setting in (*settings, f"data.source={text}", "run.steps=1") for word in ("--set", setting)]
    return run_python("-m", "syntony", "train", "collectives/trainer/configs/tiny.toml", *words, timeout=100)


def test_a_run_whose_messages_cross_starts(tmp_path: Path) -> None:
    """Before a run, memory is predicted of the step as it is recorded; a device of a V sends to both neighbours."""
    text = shutil.copy(typing.__file__, tmp_path / "text.py")
    done = trained(text, "parallel.pp=4", "parallel.schedule=dualpipe_v", "data.microbatches=8", "model.blocks=6")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "weights sha256" in done.stdout


def test_replicas_are_the_layouts(tmp_path: Path) -> None:
    """A policy that would make other groups of ranks is refused before step 0, and runs where the layout has them."""
    text = shutil.copy(typing.__file__, tmp_path / "text.py")
    four = ("parallel.dp=4", "data.microbatches=4", "overlap.policy=syndicate")
    done = trained(text, *four)
    assert done.returncode == 2
    assert "the trainer does so with parallel.zero=1 and parallel.replicas=2" in done.stderr
    assert "Traceback" not in done.stderr
    assert trained(text, *four, "parallel.zero=1", "parallel.replicas=2").returncode == 0
