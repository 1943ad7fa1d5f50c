"""Whole runs on real ranks: every layout, policy and way of clipping, and every resumed run, ends in the same bits."""

from __future__ import annotations

import json
import shutil
import typing
from pathlib import Path

import pytest

from tests.collectives.running import run_command
from tests.forked import run

pytest.importorskip("torch.distributed")

from tests.trainer.run import layouts_script
from tests.trainer.run.layouts_script import LAYOUTS

SAMPLE = (
    "one", "zero2, recompute", "zero3, optimistic", "dear, held out", "resumed elsewhere", "experts",
    "experts, ooo, which follow demand", "experts, resumed to move", "experts, resumed", "off, one", "off, dear",
)  # fmt: skip
"""One layout of each kind; who resumes comes after whom it resumes."""


@pytest.mark.parametrize("names", [SAMPLE, pytest.param((), marks=pytest.mark.sweep)], ids=["sample", "all"])
def test_the_same_weights_whatever_the_layout(names: tuple[str, ...], tmp_path: Path) -> None:
    text = shutil.copy(typing.__file__, tmp_path / "text.py")
    done = run(layouts_script.main, text, tmp_path, names, timeout=280, torch=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    digests = {name: (group, digest) for group, name, digest, _ in rows}
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert digests["off, one"][1] != digests["one"][1]  # the gradients were large enough to be clipped
    first = {group: next(digest for g, digest in digests.values() if g == group) for group, _ in digests.values()}
    assert {name: digest for name, (group, digest) in digests.items() if digest != first[group]} == {}
    assert len(rows) == (len(names) or sum(map(len, LAYOUTS.values())))
    assert not list(tmp_path.glob(".step*"))


def test_a_run_whose_messages_cross_starts(tmp_path: Path) -> None:
    """Before a run, memory is predicted of the step as it is recorded; a device of a V sends to both neighbours."""
    text = shutil.copy(typing.__file__, tmp_path / "text.py")
    settings = ("parallel.pp=4", "parallel.schedule=dualpipe_v", "data.microbatches=8", "model.blocks=6", "run.steps=1")
    words = [word for setting in (*settings, f"data.source={text}") for word in ("--set", setting)]
    done = run_command("train", "src/syntony/trainer/configs/tiny.toml", *words, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "weights sha256" in done.stdout


def test_a_configuration_is_named_and_json_tells_what_came_of_it() -> None:
    """From any folder; one object on one line, and nothing on the way."""
    done = run_command("train", "tiny", "--set", "run.steps=2", "--set", "overlap.profile=0", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    told = json.loads(done.stdout)
    assert told["command"] == "train"
    assert told["last"]["step"] == 1
    assert len(told["weights_sha256"]) == 64
