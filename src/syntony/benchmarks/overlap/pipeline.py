"""Pipeline parallel steps of emulated hosts against torch.distributed.pipelining.

Two cores cannot show a bubble of four stages with real computing, as an idle rank only gives its core away; so layers
of four stages sleep: so long forward, as long for gradients of inputs, and as long for gradients of weights. Messages
are real. Two stages compute, each on a core.

    ideal    no bubble and nothing exposed: microbatches x what a stage computes for one
    x 1F1B   torch's 1F1B over this

Where computing is real, who computes something else is found out: all have the same loss, or it is a miss.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

from syntony.benchmarks.overlap.contenders import settings
from syntony.benchmarks.overlap.contenders.contest import Entry, Work, best, hold
from syntony.benchmarks.overlap.tensor_parallel import losses
from syntony.benchmarks.tables import Part, Row, Table

STAGES, MICROBATCHES, BLOCKS = 4, 8, 8
STAGE = 0.04  # seconds of a stage's forward for one microbatch
RATE = 500e6 / 8
WIDTH, HIDDEN = 192, 512
WEIGHTS = BLOCKS // STAGES * WIDTH * (4 * WIDTH + 3 * HIDDEN)  # of a stage
GOAL, REAL_GOAL = 1.30, 1.1
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


_REAL: dict[str, Any] = {
    "model": {"blocks": 8, "width": 256, "heads": 4, "hidden": 768, "context": 128},
    "data": {"rows": 8, "microbatches": 4},
}


def _computed(options: argparse.Namespace) -> Iterator[Row]:
    stages = {"backend": "gloo", "parallel": {"pp": 2}, **_REAL}
    torchs = [Entry(f"torch {schedule}", "staged", {"schedule": schedule, **stages}) for schedule in ("GPipe", "1F1B")]
    ours = [
        Entry(
            f"ours {schedule}",
            "trainer",
            {"backend": "syntony", "policy": "fifo", "parallel": {"pp": 2, "schedule": schedule}, **_REAL},
        )
        for schedule in ("1f1b", "zb1p", "zb2p", "zbv")
    ]
    found = hold(settings.star(2, RATE), Work((*torchs, *ours), options.steps, options.rounds))
    one, fastest = best(found, "torch 1F1B"), best(found, "ours")
    wrong = losses(found, one)
    for timed in found:
        gain, simulated = one.seconds / timed.seconds, timed.told.get("simulated")
        missed = wrong.get(timed.label, "")
        if timed is fastest and gain < REAL_GOAL:
            missed = missed or f"{gain:.2f}x torch's 1F1B, not {REAL_GOAL:g}x"
        yield Row(
            (
                timed.label,
                f"{1e3 * timed.seconds:.0f}",
                f"{1e3 * simulated:.0f}" if simulated else "",
                f"{timed.told['estimate'] / timed.seconds:.0%}" if simulated else "",
                f"{gain:.2f}",
            ),
            missed,
        )


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (("contender", -28), ("ms", 6), ("sim. ms", 7), ("of ideal", 8), ("x 1F1B", 6))
    title = f"Pipeline, {STAGES} hosts, {MICROBATCHES} microbatches, EMULATED compute"
    real = f"Pipeline, 2 hosts, {_REAL['data']['microbatches']} microbatches, real compute"
    computed = (*columns[:3], ("est./step", 9), *columns[4:])
    if options.compute == "real":
        return (Part(real, computed, partial(_computed, options)),)
    return (Part(title, columns, partial(_rows, options)),)


TABLE = Table("pp", "pipelines against torch's (as root)", _parts, settings.configure)
