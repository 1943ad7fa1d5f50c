"""What cannot be run is refused in one sentence before step 0."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch.distributed")

from syntony.base.command import UserError
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.trainer.config import Config, Data, Model, Overlap, Parallel, Run
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run import loop
from syntony.trainer.run.measure.profile import plain
from syntony.trainer.run.rank import Rank, World
from tests.collectives.running import launch
from tests.trainer.run import plan_script

MB = 1 << 20


def small(source: Path, **parallel: object) -> Config:
    return Config(
        Model(blocks=2, width=32, heads=2, hidden=64, context=64),
        Data(source=str(source), rows=64, microbatches=8),
        parallel=Parallel(**parallel),  # type: ignore[arg-type]
        overlap=Overlap(profile=0),
        run=Run(steps=0),
    )


def test_too_little_memory_counts_activations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "text.py"
    source.write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    monkeypatch.setattr(loop, "_free", lambda: 20 * MB)
    with pytest.raises(UserError, match=r"GB on each of 1 ranks, 0\.0 GB of it activations") as found:
        loop.train(small(source), None)
    assert "[parallel] recompute" in str(found.value)
    assert "\n" not in str(found.value)
    loop.train(small(source, recompute=True), None)
    loop.train(replace(small(source), data=Data(source=str(source), rows=16, microbatches=8)), None)


def test_a_device_that_is_not_here(tmp_path: Path) -> None:
    source = tmp_path / "text.py"
    source.write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    with pytest.raises(UserError, match=r"\[run\] device is gpu, but torch finds .* here, beside cpu"):
        loop.train(replace(small(source), run=Run(steps=0, device="gpu")), None)


def test_a_plan_of_another_step(tmp_path: Path) -> None:
    source, path = tmp_path / "text.py", tmp_path / "plan.json"
    source.write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    config = replace(small(source), overlap=Overlap(plan=str(path), profile=0))
    whole = Rank(config, mesh := Mesh(config.parallel), World(mesh, 1.0)).recorded()
    assert whole.layout is not None
    wider = tuple(replace(layer, weights=2 * layer.weights) for layer in whole.layers)
    for step, refusal in (
        (generate(whole.layers, replace(whole.layout, dp=2)), "a step with dp 2, .* this run's has dp 1, "),
        (generate(whole.layers[1:], whole.layout), "layers 3; this run's has dp 1, .* layers 4"),
        (generate(wider, whole.layout), "in this run's model it has [0-9]+$"),
        (
            Graph((Op(OpKey(Kind.FORWARD, 0, 0, 0), Kind.FORWARD, 0, COMPUTE, 1.0),)),
            "of a step with no layout; this run's has dp 1",
        ),
    ):
        plain(step).write(path)
        with pytest.raises(UserError, match=refusal) as found:
            loop.train(config, None)
        assert str(path) in str(found.value)
    plain(whole).write(path)
    loop.train(config, None)


@pytest.mark.parametrize(
    ("policy", "knobs", "refusal"),
    [
        ("serach", {}, "did you mean"),
        ("search:tries=3", {}, "search has the knobs seconds, of a core, and tried"),
        ("search", {"seconds": 0}, "search has the knobs"),
        ("search", {"tried": "many"}, "are numbers"),
        ("need:slice", {}, "'slice' is not of the form knob=value"),
        ("fifo", {"slice": 1}, "fifo"),
        ("t3", {}, "nothing moves on"),
    ],
)
def test_policies_that_cannot_plan(tmp_path: Path, policy: str, knobs: dict[str, object], refusal: str) -> None:
    source = tmp_path / "text.py"
    source.write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    config = replace(small(source), data=Data(source=str(source), rows=2), overlap=Overlap(policy, knobs, profile=0))
    with pytest.raises(UserError, match=refusal):
        loop.train(config, None)


def test_a_plan_from_a_file_is_run_and_another_ranks_plan_refused(tmp_path: Path) -> None:
    done = launch(2, plan_script.__file__, tmp_path)
    hashes = re.findall(r"plan ([0-9a-f]{16})$", done.stdout, re.MULTILINE)
    weights = re.findall(r"^weights sha256 (\w+)$", done.stdout, re.MULTILINE)
    assert len(hashes) == len(weights) == 2, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert hashes[0] != hashes[1]  # `need` was asked for, and the file has `ddp`
    assert weights[0] == weights[1]
    refused = "rank 1 has another plan than rank 0; start all ranks with the same one"
    assert done.stdout.count(f"refused: {refused}") == 2, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert done.stdout.count("plan ") - done.stdout.count("another plan") == 2  # no third step 0
