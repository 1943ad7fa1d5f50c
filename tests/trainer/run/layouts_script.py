"""Trains the same small model in many layouts: forks ranks for each, prints `name sha256`."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path

import torch  # before the forks

from syntony.collectives.bootstrap.launch import run_ranks
from syntony.trainer.config import Config, load
from syntony.trainer.run.loop import train
from tests.trainer.small_model import SMALL

TOML = f"""{SMALL}
[run]
steps = 4
every = 100
backend = "gloo"
"""
SAVING = "run.save={folder}", "run.save_every=2"
MIXTURE = ("model.experts=4",)
OFF, OPTIMISTIC = ("optimizer.clip=off",), ("optimizer.clip=optimistic",)
LAYOUTS: dict[str, dict[str, tuple[str, ...]]] = {
    "": {
        "one": SAVING,
        "optimistic, held out": (*OPTIMISTIC, "run.held_out=2"),
        "dp4": ("parallel.dp=4",),
        "zero1": ("parallel.dp=2", "parallel.zero=1", "run.backend=syntony"),
        "zero2, recompute": ("parallel.dp=2", "parallel.zero=2", "parallel.recompute=true"),
        "zero3, optimistic": ("parallel.dp=2", "parallel.zero=3", *OPTIMISTIC),
        "hybrid": ("parallel.dp=4", "parallel.zero=3", "parallel.replicas=2"),
        "bytescheduler": ("parallel.dp=2", "overlap.policy=bytescheduler", "overlap.knobs.slice=4K"),
        "tuned": (
            "parallel.dp=2", "parallel.zero=1", "overlap.policy=bytescheduler", "overlap.tune=2", "overlap.profile=1",
        ),
        "dear, held out": ("parallel.dp=2", "overlap.policy=dear", "run.held_out=1"),
        "ooo": ("parallel.dp=2", "parallel.zero=1", "overlap.policy=ooo_backprop:first=2+need:slice=4K"),
        "syndicate": ("parallel.dp=4", "overlap.policy=syndicate", "overlap.profile=1", "run.backend=syntony"),
        "syndicate on gloo": ("parallel.dp=4", "overlap.policy=syndicate:slice=4K", *SAVING),
        "resumed with syndicate": ("run.resume={folder}/step-2", "parallel.dp=4", "overlap.policy=syndicate"),
        "factors": ("parallel.dp=4", "overlap.policy=poseidon:send=factors+need:slice=4K"),
        "search": ("parallel.dp=2", "overlap.policy=search", "overlap.knobs.seconds=0.5"),
        "blocks together": ("parallel.dp=2", "parallel.zero=1", "model.together=2"),
        "resumed": ("run.resume={folder}/step-2",),
        "resumed together": ("run.resume={folder}/step-2", "model.together=2", "parallel.recompute=true"),
        "newest": ("run.resume=newest", "run.save={folder}"),
        "resumed elsewhere": ("run.resume={folder}/step-2", "parallel.dp=2", "parallel.pp=2", "parallel.zero=2"),
    },
    "experts": {
        "experts": (*MIXTURE, "run.save={folder}/experts", "run.save_every=2"),
        "experts, ooo, which follow demand": (
            *MIXTURE, "parallel.dp=2", "parallel.ep=2", "overlap.policy=ooo_backprop+need:slice=4K", "overlap.follow=1",
        ),
        "experts, moved": (*MIXTURE, "parallel.dp=2", "parallel.ep=2", "overlap.policy=janus"),
        "experts, resumed to move": (
            *MIXTURE, "run.resume={folder}/experts/step-2", "parallel.dp=4", "parallel.ep=2", "parallel.zero=1",
            "overlap.policy=janus+need:slice=4K", "run.backend=syntony", "run.save={folder}/moved", "run.save_every=3",
        ),
        "experts, resumed": (*MIXTURE, "run.resume={folder}/moved/step-3", "parallel.pp=2"),
        "experts, resumed to shadows": (
            *MIXTURE, "run.resume={folder}/experts/step-2", "parallel.dp=2", "parallel.ep=2",
            "overlap.policy=fastermoe", "overlap.knobs.hot=2", "run.save={folder}/shadows", "run.save_every=3",
        ),
        "experts, resumed from shadows": (*MIXTURE, "run.resume={folder}/shadows/step-3", "parallel.dp=2"),
    },
    "experts, off": {
        "experts, off": (*MIXTURE, *OFF),
        "experts, off, moved": (*MIXTURE, *OFF, "parallel.dp=2", "parallel.ep=2", "overlap.policy=janus"),
    },
    "off": {
        "off, one": OFF,
        "off, bytescheduler": ("parallel.dp=2", "overlap.policy=bytescheduler", *OFF),
        "off, dear": ("parallel.dp=2", "overlap.policy=dear", *OFF),
    },
}  # fmt: skip


def quietly(config: Config, exchange, into: Path) -> int:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = train(config, exchange)
    if exchange is None or exchange.rank == 0:
        into.write_text(said.getvalue())
    return code


def main(text: Path, folder: Path, wanted: Collection[str]) -> None:
    """Layouts of those names, or all, on that text; what they save goes into the folder."""
    toml = folder / "small.toml"
    toml.write_text(TOML.format(text=text))
    os.environ["PYTHONWARNINGS"] = "ignore"
    torch.set_num_threads(1)
    for group, layouts in LAYOUTS.items():
        for name, settings in layouts.items():
            if wanted and name not in wanted:
                continue
            config = load(toml, [setting.format(folder=folder) for setting in settings])
            said, begin = folder / "said", time.monotonic()
            run_ranks(config.world, partial(quietly, config, into=said), 60.0)
            digest = said.read_text().strip().splitlines()[-1].split()[-1]
            print(f"{group or 'same'}\t{name}\t{digest}\t{time.monotonic() - begin:.1f}", flush=True)
