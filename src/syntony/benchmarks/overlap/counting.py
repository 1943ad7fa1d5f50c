"""Bytes that each rank sends to each other: predicted from a plan, and counted in a real run, byte for byte.

The ranks are processes of this machine; SYNTONY_ALGO makes them send messages instead of sharing memory. Experts are
chosen evenly (computing is emulated), because a plan does not contain a router.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange, run_ranks
from syntony.collectives.torch_backend.backend import communicator_of
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.predict.traffic import CANONICAL, Matrix, traffic
from syntony.overlap.step.plan import Plan
from syntony.trainer.config import Config, Data, Model, Optimizer, Parallel, Run
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run.loop import train
from syntony.trainer.run.measure.profile import cost_of
from syntony.trainer.run.rank import Rank, World

_ALGORITHMS = ";".join(f"{kind}:{name}" for kind, name in CANONICAL.items())
_SENT = re.compile(r'^syntony_sent_bytes_total\{.*?peer="(\d+)"\} (\d+)$', re.MULTILINE)
_SILENCE = 120.0  # seconds

LAYOUTS: Mapping[str, tuple[str, Parallel]] = {
    "dp 4": ("need", Parallel(dp=4)),
    "dp 4, zero 1": ("dear", Parallel(dp=4, zero=1)),
    "dp 4, zero 3": ("fifo", Parallel(dp=4, zero=3)),
    "dp 4, zero 3, 2 replicas": ("fifo", Parallel(dp=4, zero=3, replicas=2)),
    "dp 4, 2 islands, each 4th step": ("need", Parallel(dp=4, islands=2, local=4)),
    "dp 4, 2 islands, one late": ("fifo", Parallel(dp=4, zero=1, islands=2, delay=1)),
    "pp 4": ("fifo", Parallel(pp=4)),
    "pp 4, zbv": ("fifo", Parallel(pp=4, schedule="zbv")),
    "tp 4": ("fifo", Parallel(tp=4, sequence=False)),
    "tp 4, sequence": ("domino", Parallel(tp=4)),
    "cp 4, ring": ("fifo", Parallel(cp=4)),
    "cp 4, ulysses": ("fifo", Parallel(cp=4, attention="ulysses")),
    "dp 4 x ep 4": ("lina", Parallel(dp=4, ep=4)),
    "dp 4 x ep 4, experts move": ("janus", Parallel(dp=4, ep=4)),
    "dp 4 x ep 2, experts move": ("janus", Parallel(dp=4, ep=2)),
    "dp 4 x ep 2, shadows": ("fastermoe:hot=2", Parallel(dp=4, ep=2)),
    "dp 2 x pp 2 x tp 2": ("need", Parallel(dp=2, pp=2, tp=2)),
    "dp 4 x pp 2 x tp 2, zero 2": ("fifo", Parallel(dp=4, pp=2, tp=2, zero=2)),
}


def counted(config: Config, name: str, into: Path, exchange: Exchange | None) -> int:
    """One rank: a step of the policy's plan, or those from one exchange of islands to the next. Rank 0 writes by lane
    what was sent, and what the plan says."""

    def work(config: Config, mesh: Mesh, world: World) -> None:
        rank = Rank(config, mesh, world)
        made = planned(chain_of(name), rank.recorded(), cost_of(rank.recorded(), {}, {})).text
        rank.begin(Plan.from_text(made))
        turns = config.data.microbatches // config.parallel.dp
        tokens = torch.zeros(config.data.rows, config.model.context // config.parallel.cp, dtype=torch.int64)
        before: dict[str, list[int]] = {}
        for _ in range(2):  # ops of a steady step that belong to the one before are in the second
            rank.rest()
            before = _sent(rank, mesh.world)
            for _ in range(config.parallel.local):
                rank.step([(tokens, tokens)] * turns, 1e-5)
        rank.rest()
        after = _sent(rank, mesh.world)
        mine = {lane: [b - a for a, b in zip(before[lane], row, strict=True)] for lane, row in after.items()}
        rows = [json.loads(blob) for blob in world.gather(json.dumps(mine).encode())]
        if mesh.rank == 0:
            layout = rank.plan.graph.layout
            assert layout is not None
            said = {lane: (matrix * layout.local).tolist() for lane, matrix in traffic(rank.plan, layout).items()}
            into.write_text(json.dumps([rows, said]))
        rank.close()

    return train(config, exchange, work)


def _sent(rank: Rank, ranks: int) -> dict[str, list[int]]:
    """By lane, bytes to every rank of the world so far."""
    found = {}
    for lane, group in rank.runner.groups.items():
        members, row = dist.get_process_group_ranks(group), [0] * ranks
        for peer, count in _SENT.findall(communicator_of(group).counters()):
            row[members[int(peer)]] += int(count)
        found[lane] = row
    return found


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    os.environ["SYNTONY_ALGO"] = _ALGORITHMS
    torch.set_num_threads(1)
    for label, (name, parallel) in LAYOUTS.items():
        model = Model(blocks=6, width=64, heads=4, hidden=128, context=32, experts=4 if parallel.ep > 1 else 0)
        config = Config(
            model, Data(rows=4, microbatches=8), Optimizer(), parallel, run=Run(compute="emulated", forward=1e-4)
        )
        if options.ranks and config.world > options.ranks:
            continue
        with tempfile.TemporaryDirectory(prefix="syntony-traffic-") as folder:
            into = Path(folder, "bytes")
            run_ranks(config.world, partial(counted, config, name, into), _SILENCE)
            rows, planned = json.loads(into.read_text())
        lanes = sorted({lane for row in rows for lane in row} | set(planned))
        wrong = [lane for lane in lanes if not np.array_equal(_measured(rows, lane), _planned(planned, lane, rows))]
        total = sum(int(_measured(rows, lane).sum()) for lane in lanes)
        said = sum(int(_planned(planned, lane, rows).sum()) for lane in lanes)
        missed = f"lanes {', '.join(wrong)} differ" if wrong else ""
        yield Row((label, name, str(config.world), f"{total:,}", f"{said:,}", ", ".join(lanes)), missed)


def _measured(rows: list[dict[str, list[int]]], lane: str) -> Matrix:
    return np.array([row.get(lane, [0] * len(rows)) for row in rows], np.int64)


def _planned(planned: Mapping[str, list[list[int]]], lane: str, rows: list[dict[str, list[int]]]) -> Matrix:
    return np.array(planned.get(lane, np.zeros((len(rows), len(rows)))), np.int64)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (("layout", -30), ("policy", -15), ("ranks", 5), ("bytes counted", 13), ("planned", 13), ("lanes", -20))
    return (Part("Bytes between ranks in one step, each pair's compared", columns, partial(_rows, options)),)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=0, metavar="N", help="only layouts of at most so many ranks")


TABLE = Table("traffic", "the bytes that a plan says, against those that ranks count", _parts, _configure)
