"""Is there a network and a model on which the scheduler is slower than DDP? Five by five of them, data parallel.

    model    blocks x width: from few fat layers to many thin ones, all with some 20 MB of gradients and the same
             seconds of (emulated) computing, so that what differs is how early how much is ready
    ratio    of what summing gradients takes to what computing takes
    ddp      the best of its bucket sizes on gloo; x ddp: that over the trainer

Nothing is tuned to a wire: the trainer has one policy in all cells, and more than twelve blocks share twelve layers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

from syntony.benchmarks.overlap.contenders import settings
from syntony.benchmarks.overlap.contenders.contest import Entry, Work, best, hold
from syntony.benchmarks.overlap.data_parallel import HOSTS, trainer
from syntony.benchmarks.tables import Part, Row, Table

SHAPES = ((3, 384), (6, 256), (12, 192), (24, 128), (48, 96))  # blocks, width
RATES = (60, 120, 200, 320, 480)  # Mbit/s
BUCKETS = (0, 1.0, 4.0)  # MB; 0: as DDP is without being asked
POLICY = "need:slice=1M"
LAYERS = 12  # that the trainer makes of more blocks: thin ones share a layer, as their gradients share DDP's buckets
COMPUTING = 1.0  # seconds of a step


def _weights(width: int) -> int:
    """Floats of a block of attention and a gated MLP, 8/3 as wide."""
    return 4 * width * width + 3 * width * (8 * width // 3)


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    for blocks, width in SHAPES:
        floats = blocks * _weights(width)
        forward = COMPUTING / 3 / blocks
        sleeping = {"subject": "emulated", "model": {"layers": blocks, "weights": floats, "seconds": COMPUTING}}
        model = {"blocks": blocks, "width": width, "heads": 2, "hidden": 8 * width // 3, "context": 32, "rows": 8}
        model["together"] = max(1, blocks // LAYERS)
        entries: list[Entry] = settings.grid("ddp", "ddp", ("gloo",), "bucket", BUCKETS, **sleeping)
        entries.append(trainer(POLICY, "off", compute="emulated", forward=forward, model=model))
        for rate in options.rate or RATES:
            found = hold(settings.star(HOSTS, rate * 1e6 / 8), Work(tuple(entries), options.steps, options.rounds))
            ddp, ours = best(found, "ddp"), best(found, "ours")
            gain = ddp.seconds / ours.seconds
            moving = 2 * (HOSTS - 1) / HOSTS * 4 * floats / (rate * 1e6 / 8)
            cells = (
                f"{blocks} x {width}",
                f"{rate:g}",
                f"{moving / COMPUTING:.2f}",
                ddp.label.removeprefix("ddp gloo bucket "),
                f"{1e3 * ddp.seconds:.0f}",
                f"{1e3 * ours.seconds:.0f}",
                f"{ours.told['estimate'] / ours.seconds:.0%}",
                f"{gain:.2f}",
            )
            yield Row(cells, f"{gain:.2f}x DDP, which is slower" if gain < 1 else "")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (
        ("model", -9),
        ("Mbit/s", 6),
        ("ratio", 6),
        ("bucket", 7),
        ("ddp ms", 7),
        ("ours ms", 8),
        ("est./step", 9),
        ("x ddp", 6),
    )
    return (
        Part(f"Data parallel, {HOSTS} hosts, EMULATED compute: {POLICY} against DDP", columns, partial(_rows, options)),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rate", type=float, action="append", metavar="MBIT", help="only this rate; repeat")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="blocks of steps of each (1)")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="steps of a block; its first is not counted")


TABLE = Table("grid", "the trainer against DDP on 25 networks and models (as root)", _parts, _configure)
