"""Pipeline parallel steps of four emulated hosts with emulated computing, against torch.distributed.pipelining.

Two cores cannot show a bubble of four stages with real computing, as an idle rank only gives its core away; so layers
sleep: so long forward, as long for gradients of inputs, and as long for gradients of weights. Messages are real.

    ideal    no bubble and nothing exposed: microbatches x what a stage computes for one
    x 1F1B   torch's 1F1B over this
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

from benchmarks.goals import Part, Row
from benchmarks.overlap import settings
from benchmarks.overlap.contest import Entry, Work, best, hold
from benchmarks.tables import Table

STAGES, MICROBATCHES, BLOCKS = 4, 8, 8
STAGE = 0.04  # seconds of a stage's forward for one microbatch
RATE = 500e6 / 8
WIDTH, HIDDEN = 192, 512
WEIGHTS = BLOCKS // STAGES * WIDTH * (4 * WIDTH + 3 * HIDDEN)  # of a stage
GOAL = 1.30
TORCH = ("GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
OURS = ("gpipe", "1f1b", "interleaved", "zb1p", "zb2p", "zbv", "dualpipe_v")
MODEL = {"blocks": BLOCKS, "width": WIDTH, "heads": 4, "hidden": HIDDEN, "context": 64}


def _torch(schedule: str) -> Entry:
    times = {"forward": STAGE, "inputs": STAGE, "gradients": STAGE}
    options = {
        "schedule": schedule,
        "microbatches": MICROBATCHES,
        "weights": WEIGHTS,
        "activation": 64 * WIDTH * 4,
        **times,
    }
    return Entry(f"torch {schedule}", "pipeline", {"backend": "gloo", **options})


def _ours(schedule: str) -> Entry:
    options = {
        "backend": "syntony",
        "policy": "fifo",
        "model": MODEL,
        "parallel": {"pp": STAGES, "schedule": schedule, "loops": 2 if schedule == "interleaved" else 1},
        "data": {"rows": 1, "microbatches": MICROBATCHES},
        "run": {"compute": "emulated", "forward": STAGE * STAGES / BLOCKS},
    }
    return Entry(f"ours {schedule}", "trainer", options)


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    entries = (*map(_torch, TORCH), *map(_ours, OURS))
    found = hold(settings.star(STAGES, RATE), Work(entries, options.steps, options.rounds))
    one, zbv = best(found, "torch 1F1B").seconds, best(found, "torch ZBVZeroBubble").seconds
    ideal = MICROBATCHES * 3 * STAGE
    fastest = best(found, "ours")
    for timed in found:
        simulated = timed.told.get("simulated")
        missed = ""
        if timed is fastest and one / timed.seconds < GOAL:
            missed = f"{one / timed.seconds:.2f}x torch's 1F1B, not {GOAL:g}x"
        if timed is fastest and timed.seconds > zbv:
            missed = "slower than torch's ZBV"
        cells = (
            timed.label,
            f"{1e3 * timed.seconds:.0f}",
            f"{1e3 * simulated:.0f}" if simulated else "",
            f"{ideal / timed.seconds:.0%}",
            f"{one / timed.seconds:.2f}",
        )
        yield Row(cells, missed)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (("contender", -28), ("ms", 6), ("sim. ms", 7), ("of ideal", 8), ("x 1F1B", 6))
    title = f"Pipeline, {STAGES} hosts, {MICROBATCHES} microbatches, EMULATED compute"
    return (Part(title, columns, partial(_rows, options)),)


TABLE = Table("pp", "pipelines of emulated stages against torch's (as root)", _parts, settings.configure)
