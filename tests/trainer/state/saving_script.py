"""Trains a small model on 4 ranks, saving, and goes on with fewer, on fresh ranks each time: prints what is said."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import torch  # before the forks

from syntony.collectives.bootstrap.launch import run_ranks
from syntony.trainer.config import load
from tests.trainer.run.layouts_script import TOML, quietly

SPREAD = "parallel.replicas=2", "parallel.spread=true"
RUNS: dict[str, tuple[str, ...]] = {
    "one": ("run.save={folder}/one",),
    "four": ("run.save={folder}/four", "parallel.dp=4", *SPREAD, "parallel.zero=3"),
    "taken back": ("parallel.dp=4", *SPREAD, "parallel.zero=2", "optimizer.clip=optimistic", "run.backend=syntony"),
    "three": ("run.resume={folder}/four/step-2", "parallel.tp=3", "run.backend=syntony"),
    "on": ("run.resume={folder}/four/step-2", "parallel.dp=2", "parallel.zero=3", "run.steps=4"),
    "straight": ("run.steps=4",),
}
MODEL = "model.width=48", "model.context=24", "model.heads=6", "model.hidden=96", "run.steps=2", "run.save_every=2"


def main(text: Path, folder: Path) -> None:
    toml = folder / "small.toml"
    toml.write_text(TOML.format(text=text))
    os.environ["PYTHONWARNINGS"] = "ignore"
    torch.set_num_threads(1)
    for name, settings in RUNS.items():
        config = load(toml, [*MODEL, *(each.format(folder=folder) for each in settings)])
        said = folder / "said"
        run_ranks(config.world, partial(quietly, config, into=said), 60.0)
        lines = said.read_text().strip().splitlines()
        print(name, *(line for line in lines if line.startswith(("resumed", "weights"))), sep="\t", flush=True)
