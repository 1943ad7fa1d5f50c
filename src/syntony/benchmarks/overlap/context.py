"""64K tokens on four ranks: balanced rings for a causal sequence, beside a plain ring, Ulysses, and both combined.

    emulated    each rank sleeps as long as the busiest rank of its layout would compute; data are really exchanged
    predicted   the simulation, with costs that the trainer profiled before
    memory      real computing: the most that the plan predicts for a step, and the most that it held

With four ranks, the tokens of a plain ring's last rank attend to (1/2 + 1 + 1 + 1) / 4 of the sequence; those of each
rank of a balanced ring to 1/2 of it. The last rank of a plain ring, for which all others wait, has 7/4 as much work.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import torch

from syntony.benchmarks.overlap.memory import counted, found
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange, run_ranks
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.plan import Plan
from syntony.trainer.config import Config, Data, Model, Overlap, Parallel, Run
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run.loop import train
from syntony.trainer.run.measure.profile import profiled
from syntony.trainer.run.rank import Rank, World

RANKS, TOKENS = 4, 1 << 16
LAYOUTS: Mapping[str, Parallel] = {
    "plain ring": Parallel(cp=RANKS, attention="plain"),
    "zigzag ring": Parallel(cp=RANKS),
    "striped ring": Parallel(cp=RANKS, attention="striped"),
    "double ring": Parallel(cp=RANKS, inner=2),
    "ulysses": Parallel(cp=RANKS, attention="ulysses"),
    "usp, 2 x 2": Parallel(cp=RANKS, attention="usp", traders=2),
}
GAIN, CLOSE, HOLDS = 1.6, 0.1, 0.03
"""Goals: of zigzag over plain; of a step and its prediction, and of usp over the better of its parents; of memory."""
_SILENCE = 900.0  # seconds
_STEPS = 2


def config_of(parallel: Parallel, tokens: int, forward: float) -> Config:
    """One narrow block. `forward`: seconds that one process would take for its forward; 0: it is really computed."""
    model = Model(blocks=1, width=16, heads=4, hidden=32, context=tokens)
    run = Run(compute="emulated", forward=forward) if forward else Run(timeout=_SILENCE)
    return Config(model, Data(rows=1, microbatches=1), parallel=parallel, overlap=Overlap(policy="fifo"), run=run)


def steps_of(tokens: int, forward: float) -> list[tuple[float, float]]:
    """By layout: seconds of a step, predicted and measured."""
    with tempfile.TemporaryDirectory(prefix="syntony-context-") as folder:
        into = Path(folder, "seconds")
        run_ranks(RANKS, partial(_ranks, tokens, forward, into), _SILENCE)
        return [(predicted, seconds) for predicted, seconds in json.loads(into.read_text())]


def _ranks(tokens: int, forward: float, into: Path, exchange: Exchange | None) -> int:
    def work(config: Config, mesh: Mesh, world: World) -> None:
        one_by_one = [_timed(parallel, tokens, forward, mesh.rank) for parallel in LAYOUTS.values()]
        if mesh.rank == 0:
            into.write_text(json.dumps(one_by_one))

    return train(config_of(next(iter(LAYOUTS.values())), tokens, forward), exchange, work)


def _timed(parallel: Parallel, tokens: int, forward: float, number: int) -> tuple[float, float]:
    config, place = config_of(parallel, tokens, forward), Mesh(parallel, number)
    rank = Rank(config, place, World(place, _SILENCE))
    text = torch.zeros(1, tokens // RANKS, dtype=torch.int64)
    rank.recorded()  # runs what will be stood in for, which ranks of a plain ring have more or less of
    rank.world.meet()
    cost = profiled(rank, 1, lambda step: [(text, text)], 1e-5)
    plan = Plan.from_text(rank.world.tell(planned(chain_of("fifo"), rank.recorded(), cost).text))
    seconds = rank.measure(plan, _STEPS, lambda step: [(text, text)], 1e-5).seconds
    everybody = [json.loads(blob) for blob in rank.world.gather(json.dumps(seconds).encode())]
    return simulate(plan, cost).seconds, median(map(max, zip(*everybody, strict=True)))


def _balance(options: argparse.Namespace) -> Iterator[Row]:
    took = dict(zip(LAYOUTS, steps_of(options.tokens, options.forward), strict=True))
    plain = took["plain ring"][1]
    parents = min(took["zigzag ring"][1], took["ulysses"][1])
    for name, (predicted, seconds) in took.items():
        gap, gain = predicted / seconds - 1, plain / seconds
        missed = [f"predicted {gap:+.0%} off"] if abs(gap) > CLOSE else []
        if name == "zigzag ring" and gain < GAIN:
            missed.append(f"{gain:.2f} times as fast as the plain one, not {GAIN}")
        if name.startswith("usp") and seconds > parents * (1 + CLOSE):
            missed.append(f"{seconds / parents - 1:.0%} slower than the better of its parents")
        yield Row((name, f"{predicted:.3f}", f"{seconds:.3f}", f"{gap:+.1%}", f"{gain:.2f}x"), "; ".join(missed))


def _memory(options: argparse.Namespace) -> Iterator[Row]:
    for name in ("zigzag ring", "usp, 2 x 2"):
        config = config_of(LAYOUTS[name], options.tokens, 0.0)
        (one,) = found([config])
        gap = counted(one)
        cells = (name, f"{one.planned[0] / 1e6:.1f}", f"{one.seen[0] / 1e6:.1f}", f"{gap:.2%}")
        yield Row(cells, f"differs by {gap:.1%}, not {HOLDS:.0%}" if gap > HOLDS else "")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    times = (("layout", -14), ("predicted, s", 12), ("a step, s", 10), ("gap", 7), ("of plain", 9))
    bytes_ = (("layout", -14), ("planned, MB", 12), ("seen", 10), ("gap", 7))
    return (
        Part(f"{options.tokens} tokens on {RANKS} ranks, causal, emulated", times, partial(_balance, options)),
        Part("The same, computed: what a step holds at most", bytes_, partial(_memory, options)),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, default=TOKENS, metavar="N", help=f"of the sequence ({TOKENS})")
    parser.add_argument("--forward", type=float, default=1.0, metavar="S",
                        help="seconds that one process would take for the block's forward (1)")  # fmt: skip


TABLE = Table("context", "long causal sequences in rings, by trading heads, and both", _parts, _configure)
