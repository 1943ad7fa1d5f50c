"""Elastic training: what copies of a state cost a step, and how soon a run continues after a rank is killed.

    price       copies are made in every fourth step: that step and the one after it, over the other two of the same run
    going on    from SIGKILL to the end of the first step of the surviving ranks

The weights must equal those of an undisturbed run, otherwise no time is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import torch

from syntony.base.arguments import count
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange, RankError, Replacing, run_ranks
from syntony.trainer.config import Config, load
from syntony.trainer.run.loop import train

RANKS = 4
PRICE, GOES_ON = 0.01, 10.0
"""Goals: of a step, and seconds."""
_EVERY = 4
_LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "zero 3": ("parallel.zero=3",),
    "zero 2, two replicas": ("parallel.zero=2", "parallel.replicas=2"),
    "not sharded": (),
    "two pipelines": ("parallel.dp=2", "parallel.pp=2"),
}


@dataclass(frozen=True)
class Trained:
    """One run: seconds by step, weights, and how long it stood still."""

    seconds: Mapping[int, float]
    weights: str
    still: float


def trained(config: Config, folder: Path, victim: int | None = None, step: int = 0) -> Trained:
    """Ranks on this machine, one of which is killed when `step` is the next. Raises RankError."""
    log, said = folder / "log.jsonl", folder / "said"
    log.unlink(missing_ok=True)
    config = replace(config, run=replace(config.run, log=str(log)))

    def work(exchange: Exchange) -> int:
        (folder / f"rank-{exchange.rank}").write_text(str(os.getpid()))
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = train(config, exchange)
        if "sha256" in output.getvalue().rpartition("weights")[2]:
            said.write_text(output.getvalue().split()[-1])
        return code

    still: list[float] = []
    if victim is not None:
        threading.Thread(target=_kill, args=(log, folder / f"rank-{victim}", step, still), daemon=True).start()
    run_ranks(config.world, work, 1e6, Replacing(0, work))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return Trained(
        {line["step"]: line["seconds"] for line in lines if "step" in line}, said.read_text(), *(still or [0.0])
    )


def _kill(log: Path, victim: Path, step: int, still: list[float]) -> None:
    while not (log.exists() and f'{{"step": {step - 1},' in log.read_text()):
        time.sleep(0.01)
    os.kill(int(victim.read_text()), signal.SIGKILL)
    begin, before = time.monotonic(), log.stat().st_size
    while log.stat().st_size == before or '"step"' not in log.read_text()[before:]:
        time.sleep(0.01)
    still.append(time.monotonic() - begin)


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    torch.set_num_threads(1)
    for name, layout in _LAYOUTS.items():
        sizes = [
            f"model.width={options.width}",
            f"data.rows={options.rows}",
            f"data.microbatches={RANKS}",
            "run.every=1",
        ]
        dp = [] if "parallel.pp=2" in layout else [f"parallel.dp={RANKS}"]
        config = load(
            "tiny", [*sizes, "overlap.profile=0", *dp, *layout, f"run.steps={options.steps}", f"elastic.every={_EVERY}"]
        )
        with tempfile.TemporaryDirectory() as where:
            run = partial(trained, folder=Path(where))
            alone = run(config)
            copied = run(replace(config, elastic=replace(config.elastic, copies=1)))
            every = replace(config, elastic=replace(config.elastic, copies=1, every=1))
            killed = [run(every, victim=victim, step=options.steps // 2) for victim in (0, RANKS - 1)]
        for each in (copied, *killed):
            if each.weights != alone.weights:
                raise RankError(f"{name}: weights are {each.weights}, of a run left alone {alone.weights}")
        by_turn = [median(s for step, s in copied.seconds.items() if step >= _EVERY and step % _EVERY == turn)
                   for turn in range(_EVERY)]  # fmt: skip
        plain = (by_turn[2] + by_turn[3]) / 2
        price = (by_turn[0] + by_turn[1]) / plain - 2
        still = max(each.still for each in killed)
        bad = [f"copies take {price:.1%} of a step, not {PRICE:.0%}"] if price > PRICE else []
        bad += [f"goes on after {still:.1f} s, not {GOES_ON:g}"] if still > GOES_ON else []
        cells = (name, f"{1e3 * plain:.0f}", f"{price:+.2%}", *(f"{each.still:.2f}" for each in killed), "equal")
        yield Row(cells, "; ".join(bad))


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (("layout", -22), ("ms", 6), ("price", 8), ("s, rank 0", 9), ("s, last", 9), ("weights", 8))
    return (Part(f"Jobs that go on, {RANKS} ranks on this machine", columns, partial(_rows, options)),)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=count, default=40, metavar="N", help="of each run (default 40)")
    parser.add_argument("--width", type=count, default=128, metavar="N", help="of the model (default 128)")
    parser.add_argument("--rows", type=count, default=16, metavar="N", help="of each microbatch (default 16)")


TABLE = Table("elastic", "what copies in memory cost, and how soon a run goes on after a death", _parts, _configure)
