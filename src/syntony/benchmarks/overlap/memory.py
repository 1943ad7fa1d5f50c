"""Memory: the most that a plan predicts for its microbatches, beside what a real run held; and what ZeRO shards.

Activations, and weights and gradients that are gathered and freed, are counted by storage in every op of a steady step
(trainer/run/memory/activations.py), except for a gradient of one microbatch while another's exists. Weights and the
optimizer's state are counted between two steps, gradients when all are summed and none is used yet. Rajbhandari et al.
(ZeRO, 2020, section 3) count 2 + 2 + 12 bytes of a weight in mixed precision; in fp32 with AdamW these are 4 + 4 + 8.
Level 1 shards the last of these over the ranks, level 2 the last two, level 3 all of them. At level 1 we hold a rank's
part of the sum beside its whole own gradient.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange, run_ranks
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.plan import Plan
from syntony.trainer.config import Config, Data, Model, Overlap, Parallel, Run
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run.loop import train
from syntony.trainer.run.measure.profile import cost_of
from syntony.trainer.run.memory.activations import Watch
from syntony.trainer.run.rank import Rank, World

CLOSE = 0.001
_SILENCE = 120.0  # seconds
RANKS = 4

HELD: Mapping[str, tuple[str, Parallel]] = {
    "pp 4 gpipe": ("fifo", Parallel(pp=4, schedule="gpipe")),
    "pp 4 1f1b": ("fifo", Parallel(pp=4)),
    "pp 4 interleaved": ("fifo", Parallel(pp=4, schedule="interleaved", loops=2)),
    "pp 4 zb1p": ("fifo", Parallel(pp=4, schedule="zb1p")),
    "pp 4 zb2p": ("fifo", Parallel(pp=4, schedule="zb2p")),
    "pp 4 zbv": ("fifo", Parallel(pp=4, schedule="zbv")),
    "pp 4 gpipe, recompute": ("fifo", Parallel(pp=4, schedule="gpipe", recompute=True)),
    "pp 4 gpipe, lynx": ("lynx", Parallel(pp=4, schedule="gpipe", recompute=True)),
    "pp 4 1f1b, recompute": ("fifo", Parallel(pp=4, recompute=True)),
    "pp 2 x tp 2": ("fifo", Parallel(pp=2, tp=2)),
    "tp 4, grid": ("fifo", Parallel(tp=4, grid=True)),
    "tp 4, grid, recompute": ("fifo", Parallel(tp=4, grid=True, recompute=True)),
    "tp 4, rotate": ("fifo", Parallel(tp=4, rotate=True)),
    "tp 4, rotate, recompute": ("fifo", Parallel(tp=4, rotate=True, recompute=True)),
    "dp 2 x tp 2, rotate, zero 2": ("fifo", Parallel(dp=2, tp=2, rotate=True, zero=2)),
    "pp 2 x tp 2, rotate": ("fifo", Parallel(pp=2, tp=2, rotate=True, schedule="zb1p")),
    "tp 4, recompute": ("fifo", Parallel(tp=4, recompute=True)),
    "pp 4 bpipe": ("fifo", Parallel(pp=4, schedule="bpipe")),
    "pp 4 bpipe, recompute": ("fifo", Parallel(pp=4, schedule="bpipe", recompute=True)),
    "pp 4 chimera": ("fifo", Parallel(pp=4, schedule="chimera")),
    "pp 4 hanayo": ("fifo", Parallel(pp=4, schedule="hanayo")),
    "pp 4 v_half": ("fifo", Parallel(pp=4, schedule="v_half")),
    "pp 4 v_min": ("fifo", Parallel(pp=4, schedule="v_min")),
    "pp 4 dualpipe_v": ("fifo", Parallel(pp=4, schedule="dualpipe_v")),
    "pp 4 breadth_first": ("fifo", Parallel(pp=4, schedule="breadth_first", loops=2)),
    "pp 4 seq1f1b": ("fifo", Parallel(pp=4, schedule="seq1f1b", slices=2)),
    "pp 4 terapipe": ("fifo", Parallel(pp=4, schedule="terapipe", slices=4)),
    "cp 4 striped": ("fifo", Parallel(cp=4, attention="striped")),
    "cp 4 plain": ("fifo", Parallel(cp=4, attention="plain")),
    "cp 4 double ring": ("fifo", Parallel(cp=4, inner=2)),
    "cp 4 ulysses": ("fifo", Parallel(cp=4, attention="ulysses")),
    "cp 4 usp": ("fifo", Parallel(cp=4, attention="usp", traders=2)),
    "cp 2 x tp 2": ("fifo", Parallel(cp=2, tp=2)),
    "dp 4, zero 2": ("fifo", Parallel(dp=4, zero=2)),
    "dp 4, zero 3, spread": ("fifo", Parallel(dp=4, zero=3, replicas=2, spread=True)),
    "dp 4, zero 3, secondary": ("fifo", Parallel(dp=4, zero=3, secondary=2)),
    "dp 2 x tp 2, zero 3": ("fifo", Parallel(dp=2, tp=2, zero=3)),
    "dp 2 x pp 2, zero 1": ("fifo", Parallel(dp=2, pp=2, zero=1)),
    "dp 4, delayed weights": ("ooo_backprop", Parallel(dp=4)),
    "cp 4": ("fifo", Parallel(cp=4)),
    "dp 4, zero 3": ("fifo", Parallel(dp=4, zero=3)),
    "dp 4 x ep 4": ("janus", Parallel(dp=4, ep=4)),
    "dp 2 x ep 2 x tp 2, dedup": ("fifo", Parallel(dp=2, ep=2, tp=2, dedup=True)),
    "dp 4 x ep 2, zero 3": ("janus", Parallel(dp=4, ep=2, zero=3)),
    "dp 4 x ep 4, recompute": ("fifo", Parallel(dp=4, ep=4, recompute=True)),
    "dp 2 x ep 2 x tp 2, dedup, recompute": ("fifo", Parallel(dp=2, ep=2, tp=2, dedup=True, recompute=True)),
    "dp 2 x ep 2 x pp 2, recompute": ("fifo", Parallel(dp=2, ep=2, pp=2, recompute=True)),
    "dp 4 x ep 4, relay": ("fifo", Parallel(dp=4, ep=4, relay=2)),
    "dp 4 x ep 4, relay, recompute": ("fifo", Parallel(dp=4, ep=4, relay=2, recompute=True)),
    "dp 4 x ep 4, shadows": ("fastermoe:hot=4", Parallel(dp=4, ep=4)),
    "dp 4 x ep 2, zero 3, shadows": ("fastermoe:hot=4", Parallel(dp=4, ep=2, zero=3)),
}


class Found(NamedTuple):
    """Bytes of one plan: by device, held at most, `planned` and `seen`; weights, gradients, optimizer, by rank (`kept`)
    and of a rank that shards nothing (`whole`)."""

    planned: list[float]
    seen: list[int]
    kept: list[list[int]]
    whole: list[int]


def found(cases: Sequence[Config]) -> list[Found]:
    """Each on all the ranks."""
    with tempfile.TemporaryDirectory(prefix="syntony-memory-") as folder:
        into = Path(folder, "bytes")
        run_ranks(RANKS, partial(_ranks, cases, into), _SILENCE)
        return [Found(*one) for one in json.loads(into.read_text())]


def counted(one: Found) -> float:
    """By how much what was seen differs from what was planned, at most."""
    return max(abs(b / a - 1) for a, b in zip(one.planned, one.seen, strict=True))


def _ranks(cases: Sequence[Config], into: Path, exchange: Exchange | None) -> int:
    def work(config: Config, mesh: Mesh, world: World) -> None:
        one_by_one = []
        for case in cases:
            place = Mesh(case.parallel, mesh.rank)
            one_by_one.append(_step(Rank(case, place, World(place, _SILENCE))))
        if mesh.rank == 0:
            into.write_text(json.dumps(one_by_one))

    return train(cases[0], exchange, work)


def _step(rank: Rank) -> Found:
    config, cost = rank.config, cost_of(rank.recorded(), {}, {})
    name, sizes = config.overlap.policy, config.parallel
    rank.begin(Plan.from_text(planned(chain_of(name), rank.recorded(), cost).text))
    watch, gradients, clip = Watch(rank.interpreter), list[int](), rank.updates.clip
    layers = rank.updates.layers.values()
    shards = [shard for sharded in layers for shard in sharded.shards]

    def summed() -> None:
        clip()
        gradients.append(_bytes([*(shard.gradient for shard in shards), *(sharded._home for sharded in layers)]))

    rank.updates.clip = summed  # type: ignore[method-assign]
    tokens = torch.zeros(rank.shape[0], config.model.context // (sizes.cp * sizes.slices), dtype=torch.int64)
    for _ in range(2):
        with watch.step():
            rank.step([(tokens, tokens)] * (config.data.microbatches // sizes.dp * sizes.slices), 1e-5)
        rank.rest()
    weights = _bytes([*(shard.weights for shard in shards), *(sharded.whole for sharded in layers)])
    remembered = _bytes([each for shard in shards for each in rank.updates.memories(shard).values()])
    mine = json.dumps([rank.device, watch.most, [weights, max(gradients), remembered]])
    rows = [json.loads(blob) for blob in rank.world.gather(mine.encode())]
    rank.close()
    peak = simulate(rank.plan, cost).peak
    seen = [max(most for at, most, _ in rows if at == device) for device in sorted(peak)]
    whole = [each * sum(flat.elements for _, flat in rank.parts_of(rank.plan).values()) for each in (4, 4, 8)]
    return Found([peak[device] for device in sorted(peak)], seen, [kept for *_, kept in rows], whole)


def _bytes(tensors: Iterable[Tensor | None]) -> int:
    """Of what there is, by storage."""
    storages = [tensor.untyped_storage() for tensor in tensors if tensor is not None]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def config_of(parallel: Parallel, microbatches: int, name: str = "fifo") -> Config:
    """A small model. A plan knows no routers, so experts are chosen evenly."""
    model = Model(blocks=7, width=64, heads=4, hidden=128, context=64, experts=8 if parallel.ep > 1 else 0)
    data, run = Data(rows=max(2, parallel.batch_parts), microbatches=microbatches), Run(even=parallel.ep > 1)
    return Config(model, data, parallel=parallel, overlap=Overlap(policy=name), run=run)


def _held(options: argparse.Namespace) -> Iterator[Row]:
    cases = [config_of(parallel, 8, name) for name, parallel in HELD.values()]
    for label, case, one in zip(HELD, cases, found(cases), strict=True):
        gap = counted(one)
        cells = (label, case.overlap.policy, _kilo(one.planned), _kilo(one.seen), f"{gap:.2%}")
        yield Row(cells, f"differs by {gap:.2%}, not {CLOSE:.1%}" if gap > CLOSE else "")


def _kilo(sizes: list[float] | list[int]) -> str:
    return " ".join(f"{size / 1e3:.1f}" for size in sizes)


def _sharded(options: argparse.Namespace) -> Iterator[Row]:
    cases = [config_of(Parallel(dp=RANKS, zero=level), RANKS) for level in range(4)]
    for level, one in enumerate(found(cases)):
        formula = [size // RANKS if level >= least else size for size, least in zip(one.whole, (3, 2, 1), strict=True)]
        formula[1] += one.whole[1] // RANKS if level == 1 else 0
        gap = max(abs(b / a - 1) for row in one.kept for a, b in zip(formula, row, strict=True))
        cells = (f"dp {RANKS}, zero {level}", _kilo(formula), _kilo(one.kept[0]), f"{gap:.2%}")
        yield Row(cells, f"differs by {gap:.2%}, not {CLOSE:.1%}" if gap > CLOSE else "")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    held = (("layout", -37), ("policy", -15), ("planned, kB by device", -32), ("seen", -32), ("gap", 6))
    sharded = (("layout", -22), ("formula: weights, gradients, AdamW, kB", -40), ("seen on a rank", -32), ("gap", 6))
    return (
        Part(
            "Activations held at most, and what else comes and goes, in a step of 8 microbatches",
            held,
            partial(_held, options),
        ),
        Part("Weights, gradients and optimizer of 4 ranks, each", sharded, partial(_sharded, options)),
    )


TABLE = Table("memory", "what plans say that ranks hold, against what they held", _parts)
