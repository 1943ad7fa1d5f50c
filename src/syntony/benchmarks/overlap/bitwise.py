"""The same weights whatever the layout: sha256 of all weights after a run, in each layout, against one process.

Runs are `syntony train` as a user starts it, one after another on this machine. Tensor and context parallelism multiply
matrices in other pieces, so theirs is a loss within 1e-5.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import RankError

CONFIG = Path(__file__).parents[2] / "trainer" / "configs" / "tiny.toml"
CLOSE = 1e-5
BASE = ("model.blocks=6", "data.rows=1", "data.microbatches=8", "overlap.profile=1", "run.timeout=3600")  # however busy
EXPERTS = ("model.experts=4",)
TWICE = ("interleaved", "breadth_first")  # two chunks per device
SCHEDULES = ("gpipe", "1f1b", "interleaved", "breadth_first", "zb1p", "zb2p", "zbv", "v_half", "v_min", "dualpipe_v",
             "chimera", "hanayo", "bpipe")  # fmt: skip
POLICIES = ("need", "p3", "tictac", "bytescheduler", "pace", "ddp", "gradientflow", "dear", "centauri", "ooo_backprop")


def _layouts() -> dict[str, tuple[str, ...]]:
    exact: dict[str, tuple[str, ...]] = {f"dp {n}": (f"parallel.dp={n}",) for n in (2, 4)}
    exact |= {f"dp 4, zero {level}": ("parallel.dp=4", f"parallel.zero={level}") for level in (1, 2, 3)}
    exact |= {"dp 4, zero 3, 2 replicas": ("parallel.dp=4", "parallel.zero=3", "parallel.replicas=2")}
    exact |= {"dp 4, zero 3, secondary": ("parallel.dp=4", "parallel.zero=3", "parallel.secondary=2")}
    for schedule in SCHEDULES:
        loops = 2 if schedule in TWICE else 1
        exact[f"pp 4 {schedule}"] = ("parallel.pp=4", f"parallel.schedule={schedule}", f"parallel.loops={loops}")
    exact |= {"dp 2 x pp 2": ("parallel.dp=2", "parallel.pp=2")}
    exact |= {f"dp 2 {policy}": ("parallel.dp=2", f"overlap.policy={policy}") for policy in POLICIES}
    exact |= {"dp 2, clip optimistic": ("parallel.dp=2", "optimizer.clip=optimistic")}
    exact |= {"dp 2, blocks together": ("parallel.dp=2", "model.together=3")}
    return exact


EXACT = _layouts()
WITH_EXPERTS = {
    "ep 4": ("parallel.dp=4", "parallel.ep=4"),
    "ep 2 interleave": ("parallel.dp=2", "parallel.ep=2", "overlap.policy=interleave"),
    "dp 4 x ep 2, zero 2": ("parallel.dp=4", "parallel.ep=2", "parallel.zero=2"),
    "dp 2 x pp 2 x ep 2": ("parallel.dp=2", "parallel.pp=2", "parallel.ep=2"),
}
CLOSELY = {
    "tp 2": ("parallel.tp=2", "parallel.sequence=false"),
    "tp 2, sequence": ("parallel.tp=2",),
    "tp 4, grid": ("parallel.tp=4", "parallel.grid=true", "data.rows=2"),
    "tp 4, rotate": ("parallel.tp=4", "parallel.rotate=true", "data.rows=4"),
    "cp 2 ring": ("parallel.cp=2",),
    "cp 2 ulysses": ("parallel.cp=2", "parallel.attention=ulysses"),
    "cp 4 striped": ("parallel.cp=4", "parallel.attention=striped"),
    "cp 4 double ring": ("parallel.cp=4", "parallel.inner=2"),
    "cp 4 usp": ("parallel.cp=4", "parallel.attention=usp", "parallel.traders=2"),
    "pp 4 seq1f1b": ("parallel.pp=4", "parallel.schedule=seq1f1b", "parallel.slices=2"),
    "dp 2 x tp 2": ("parallel.dp=2", "parallel.tp=2"),
}


def trained(settings: Sequence[str]) -> tuple[str, float]:
    """sha256 of the weights at the end of a run, and its last loss. Raises RankError with what the run said."""
    with tempfile.TemporaryDirectory(prefix="syntony-bitwise-") as folder:
        log = Path(folder, "log.jsonl")
        words = [word for setting in (*BASE, *settings, f"run.log={log}") for word in ("--set", setting)]
        command = [sys.executable, "-m", "syntony", "train", str(CONFIG), *words]
        done = subprocess.run(command, capture_output=True, text=True)
        found = re.search(r"^weights sha256 (\w+)$", done.stdout, re.MULTILINE)
        if done.returncode or not found:
            raise RankError(f"training with {' '.join(settings)} failed: {done.stderr.strip()[-400:]}")
        return found[1], float(json.loads(log.read_text().splitlines()[-1])["loss"])


def _rows(steps: int) -> Iterator[Row]:
    length = f"run.steps={steps}"
    more: tuple[str, ...]
    for group, more in ((EXACT, ()), (WITH_EXPERTS, EXPERTS)):
        alone, loss = trained((length, *more))
        yield Row(("one process" + (", experts" if more else ""), alone[:16], f"{loss:.6f}", ""))
        for name, settings in group.items():
            digest, found = trained((length, *more, *settings))
            same = digest == alone
            yield Row((name, digest[:16], f"{found:.6f}", "equal" if same else ""), "" if same else "other weights")
        if not more:
            digest = _resumed(steps)
            same = digest == alone
            yield Row(("resumed", digest[:16], "", "equal" if same else ""), "" if same else "other weights")
            yield from _close(length, loss)


def _resumed(steps: int) -> str:
    """Half the steps on four ranks, the other half in another layout."""
    with tempfile.TemporaryDirectory(prefix="syntony-resume-") as folder:
        half = steps // 2
        whole = (f"run.steps={steps}", f"run.save={folder}", f"run.save_every={half}")
        trained((*whole, "parallel.dp=4", "parallel.zero=3"))
        return trained((f"run.steps={steps}", f"run.resume={folder}/step-{half}", "parallel.dp=2", "parallel.pp=2"))[0]


def _close(length: str, loss: float) -> Iterator[Row]:
    for name, settings in CLOSELY.items():
        digest, found = trained((length, *settings))
        text = [setting for setting in settings if setting.startswith("data.")]
        gap = abs(found / (trained((length, *text))[1] if text else loss) - 1)
        missed = f"the loss differs by {gap:.1e}, not {CLOSE:g}" if gap > CLOSE else ""
        yield Row((name, digest[:16], f"{found:.6f}", f"{gap:.0e}"), missed)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (("layout", -26), ("weights", -16), ("last loss", 9), ("against one", 11))
    title = f"Weights after {options.steps} steps of real text, clipped exactly, by sha256"
    return (Part(title, columns, partial(_rows, options.steps)),)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="of each run (200)")


TABLE = Table("bitwise", "the same weights in every layout, bit for bit", _parts, _configure)
