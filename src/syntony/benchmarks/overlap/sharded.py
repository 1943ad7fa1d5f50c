"""Sharded data parallel training on emulated hosts: the trainer's ZeRO-1, 2 and 3 against FSDP2, and fsdp_hook.

On CPUs FSDP2 computes, or gathers, or scatters: C + 2 M with weights freed after the forward, C + 1.5 M else; M is
what an all_reduce of all gradients takes. A plan's estimate is the larger of computing and communication.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

from syntony.benchmarks.overlap.contenders import settings
from syntony.benchmarks.overlap.contenders.contest import Entry, Timed, Work, best, hold
from syntony.benchmarks.overlap.data_parallel import HOSTS, trainer
from syntony.benchmarks.tables import Part, Row, Table

GOALS = {1.0: 1.75, 2 / 3: 1.9}
"""Over FSDP2 on gloo with weights freed, by ratio."""


def _entries(compute: str) -> list[Entry]:
    subject = settings.subject(compute)
    return [
        *settings.grid("fsdp", "fsdp", ("gloo", "syntony"), "reshard", (True, False), **subject),
        Entry("fsdp_hook gloo", "fsdp", {**subject, "backend": "gloo", "reshard": True, "prefetch": 2}),
        Entry("fsdp_hook syntony", "fsdp", {**subject, "backend": "syntony", "reshard": True, "prefetch": 2}),
        *(trainer("fifo", "off", compute=compute, zero=level) for level in (1, 2, 3)),
        trainer("need", "off", compute=compute, zero=1),
    ]


def _rows(ratio: float, options: argparse.Namespace) -> Iterator[Row]:
    rate, _ = settings.rate_for(ratio, HOSTS, settings.subject(options.compute))
    found = hold(settings.star(HOSTS, rate), Work(tuple(_entries(options.compute)), options.steps, options.rounds))
    freed, kept = best(found, "fsdp gloo reshard True"), best(found, "fsdp gloo reshard False")
    for one in found:
        yield _row(one, freed, kept, ratio)


def _row(one: Timed, freed: Timed, kept: Timed, ratio: float) -> Row:
    peer = freed if "zero 3" in one.label else kept
    gain, estimate = peer.seconds / one.seconds, one.told.get("estimate")
    goal = GOALS.get(ratio, 0.0) if one.label.startswith("ours") else 0.0
    cells = (
        one.label,
        f"{1e3 * one.seconds:.0f}",
        f"{1e3 * one.told['simulated']:.0f}" if estimate else "",
        f"{estimate / one.seconds:.0%}" if estimate else "",
        f"{freed.seconds / one.seconds:.2f}",
        f"{kept.seconds / one.seconds:.2f}",
    )
    return Row(cells, f"{gain:.2f}x FSDP2 on gloo, not {goal:g}x" if gain < goal else "")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (
        ("contender", -30),
        ("ms", 6),
        ("sim. ms", 7),
        ("est./step", 9),
        ("x freed", 7),
        ("x kept", 7),
    )
    title = f"Sharded, {HOSTS} hosts, {options.compute} compute, ratio"
    return tuple(
        Part(f"{title} {ratio:.2g}", columns, partial(_rows, ratio, options)) for ratio in options.ratio or (1.0, 2 / 3)
    )


TABLE = Table("zero", "ZeRO against FSDP2 between emulated hosts (as root)", _parts, settings.configure)
