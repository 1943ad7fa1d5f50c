"""Data parallel training on emulated hosts: the trainer under policies against DDP at its best, and the hooks.

    C        what a step computes, alone; its CPU load and that of TCP share this machine's cores, so that the planner's
             figure (est.: the larger of computing, as profiled beside communication, and communication) is fairer
    ratio    of communication to computing: the rate of the wires is chosen for it
    x tuned  the best DDP of a grid of bucket sizes on gloo, over this

Everything takes turns in one lab; medians of the slowest rank's steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from syntony.benchmarks.overlap.contenders import settings
from syntony.benchmarks.overlap.contenders.contest import Entry, Timed, Work, best, hold
from syntony.benchmarks.tables import Part, Row, Table

HOSTS = 4
BUCKETS = (0.5, 1.0, 2.0, 4.0)
GOALS: Mapping[str, float] = {"ours off": 1.2, "ours optimistic": 1.2, "ours exact": 1.08}
"""Over the best DDP on gloo, at a ratio of 1, of the best contender whose label begins so; at others: no slower."""
_NEVER = 1e3  # a norm that constant gradients stay under: optimistic updates stand, as they mostly do


def trainer(
    policy: str,
    clip: str,
    backend: str = "syntony",
    compute: str = "real",
    zero: int = 0,
    forward: float = settings.FORWARD,
    model: Mapping[str, Any] | None = None,
) -> Entry:
    """The trainer, each rank with one microbatch. `forward`: seconds of a block, where computing is emulated;
    `model`: another one than the setting's."""
    sizes = dict(model or settings.MODELS[compute])
    rows = sizes.pop("rows")
    run = {"compute": "emulated", "forward": forward} if compute == "emulated" else {}
    words = [f"ours {clip} {policy.partition(':')[0]}"]
    words += [f"zero {zero}"] if zero else []
    words += [backend] if backend != "syntony" else []
    options = {
        "backend": backend,
        "policy": policy,
        "model": sizes,
        "parallel": {"dp": HOSTS, "zero": zero},
        "data": {"rows": rows, "microbatches": HOSTS},
        "optimizer": {"clip": clip, "clip_norm": _NEVER},
        "run": run,
    }
    return Entry(" ".join(words), "trainer", options)


def _entries(compute: str, forward: float) -> list[Entry]:
    subject = settings.subject(compute, forward)
    ours = partial(trainer, compute=compute, forward=forward)
    return [
        Entry("compute", "compute", subject),
        Entry("communication gloo", "communication", {**subject, "backend": "gloo"}),
        Entry("communication syntony", "communication", {**subject, "backend": "syntony"}),
        Entry("serial gloo", "serial", {**subject, "backend": "gloo"}),
        Entry("ddp gloo default", "ddp", {**subject, "backend": "gloo", "bucket": 0}),
        *settings.grid("ddp", "ddp", ("gloo",), "bucket", BUCKETS, **subject),
        *settings.grid("ddp", "ddp", ("syntony",), "bucket", (1.0, 2.0), **subject),
        Entry("ddp hook need", "ddp", {**subject, "backend": "syntony", "bucket": 1.0, "policy": "need"}),
        *(ours("need:slice=1M", clip) for clip in ("off", "optimistic", "exact")),
        *(ours(policy, "exact") for policy in ("dear", "centauri")),  # halves of sums: only the first wait for the norm
        ours("need:slice=1M", "exact", zero=1),  # the same with sharded weights
        ours("poseidon", "off"),
        ours(settings.SEARCH, "off"),
        ours("need:slice=1M", "off", "gloo"),
    ]


def _rows(ratio: float, options: argparse.Namespace) -> Iterator[Row]:
    forward = settings.forward_at(ratio)
    rate, computing = settings.rate_for(ratio, HOSTS, settings.subject(options.compute, forward))
    entries = tuple(_entries(options.compute, forward))
    found = hold(settings.star(HOSTS, rate), Work(entries, options.steps, options.rounds))
    tuned, default = best(found, "ddp gloo bucket"), best(found, "ddp gloo default")
    goals = {best(found, label).label: goal if ratio == 1 else 1.0 for label, goal in GOALS.items()}
    for one in found:
        yield _row(one, tuned, default, goals.get(one.label, 0.0))
    yield Row((f"(wires of {rate * 8e-6:.0f} Mbit/s, C {computing * 1e3:.0f} ms)", *[""] * 6))


def _row(one: Timed, tuned: Timed, default: Timed, goal: float) -> Row:
    seconds, estimate = one.seconds, one.told.get("estimate")
    gain, over_default = tuned.seconds / seconds, default.seconds / seconds
    simulated = f"{1e3 * one.told['simulated']:.0f}" if estimate else ""
    share = f"{estimate / seconds:.0%}" if estimate else ""
    spread = f"{1e3 * min(one.steps):.0f}-{1e3 * max(one.steps):.0f}"
    missed = f"{gain:.2f}x tuned DDP, not {goal:g}x" if gain < goal else ""
    cells = (one.name, f"{1e3 * seconds:.0f}", spread, simulated, share, f"{gain:.2f}", f"{over_default:.2f}")
    return Row(cells, missed)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (
        ("contender", -34),
        ("ms", 6),
        ("least-most", 10),
        ("sim. ms", 7),
        ("est./step", 9),
        ("x tuned", 7),
        ("x default", 9),
    )
    title = f"Data parallel, {HOSTS} hosts, {options.compute} compute, ratio"
    ratios = options.ratio or (0.5, 1.0, 2.0)
    return tuple(Part(f"{title} {ratio:g}", columns, partial(_rows, ratio, options)) for ratio in ratios)


TABLE = Table("dp", "the trainer against DDP between emulated hosts (as root)", _parts, settings.configure)
