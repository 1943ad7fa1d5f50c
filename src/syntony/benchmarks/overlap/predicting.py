"""Predicted against measured steps: emulated computing on four emulated hosts, every kind of parallelism, policies,
rates of the wires.

A prediction knows what a user's planner knows: the costs that the trainer profiled before (steps of a plain plan, and
bursts on the idle links), and the plan. Contenders of one layout and rate take turns in one lab.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from syntony.benchmarks.overlap.contenders import settings
from syntony.benchmarks.overlap.contenders.contest import Entry, Work, hold
from syntony.benchmarks.overlap.policies import HOSTS, LABS, entry
from syntony.benchmarks.tables import Part, Row, Table

MEDIAN, TAIL = 0.05, 0.10
_DP, _TP, _EP, _PP = (LABS[name].options for name in ("dp", "tp", "ep", "pp"))
SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "gpipe": {},
    "1f1b": {},
    "chimera": {},
    "hanayo": {},
    "v_half": {},
    "v_min": {},
    "zbv": {},
    "bpipe": {},
    "seq1f1b": {"slices": 2},
}
"""Orders of a pipeline, with what they need in [parallel]."""


def _policies(sections: Mapping[str, Any], *names: str) -> tuple[Entry, ...]:
    return tuple(entry(name, sections) for name in names)


def _schedules() -> tuple[Entry, ...]:
    every = {name: {"pp": HOSTS, "schedule": name, **keys} for name, keys in SCHEDULES.items()}
    return tuple(entry("fifo", {**_PP, "parallel": parallel}, name) for name, parallel in every.items())


CELLS: Mapping[str, tuple[tuple[Entry, ...], tuple[float, ...]]] = {
    "dp": (
        _policies(_DP, "serial", "fifo", "ddp", "need:slice=512K", "dear", "bytescheduler:slice=512K"),
        (20e6, 45e6),
    ),
    "zero 1": (
        _policies({**_DP, "parallel": {"dp": HOSTS, "zero": 1}}, "serial", "fifo", "need:slice=512K"),
        (20e6, 45e6),
    ),
    "zero 2": (_policies({**_DP, "parallel": {"dp": HOSTS, "zero": 2}}, "fifo", "need:slice=512K"), (35e6,)),
    "zero 3": (_policies({**_DP, "parallel": {"dp": HOSTS, "zero": 3}}, "serial", "fifo"), (25e6, 55e6)),
    "clip exact": (_policies({**_DP, "optimizer": {"clip": "exact"}}, "fifo", "need:slice=512K"), (35e6,)),
    "tp": (_policies(_TP, "fifo", "domino", "oases", "collective_matmul:pieces=2"), (30e6, 55e6)),
    "rotate": (
        _policies({**_TP, "parallel": {"tp": HOSTS, "rotate": True}}, "serial", "fifo", "ooo_backprop"),
        (30e6, 55e6),
    ),
    "ep": (_policies(_EP, "fifo", "tutel:degree=2", "lina:slice=256K", "flowmoe:slice=256K"), (30e6, 55e6)),
    "pp": (_policies(_PP, "fifo", "zero_bubble:memory=2p", "zero_bubble:memory=v", "dualpipe"), (10e6, 25e6)),
    "schedules": (_schedules(), (25e6,)),
}
"""By layout: what takes turns, policies or orders of a pipeline, and bytes/s of the wires."""


def _rows(options: argparse.Namespace, errors: list[float]) -> Iterator[Row]:
    for name, (entries, rates) in CELLS.items():
        if options.layout and name not in options.layout:
            continue
        for rate in rates:
            for one in hold(settings.star(HOSTS, rate), Work(entries, options.steps, options.rounds)):
                predicted = one.told["simulated"]
                errors.append(predicted / one.seconds - 1)
                cells = (name, one.label, f"{rate * 8e-6:.0f}", f"{1e3 * predicted:.0f}", f"{1e3 * one.seconds:.0f}")
                yield Row((*cells, f"{errors[-1]:+.1%}"))
    sizes = np.abs(errors)
    for what, value, goal in (("median", np.median(sizes), MEDIAN), ("p95", np.percentile(sizes, 95), TAIL)):
        missed = f"{value:.1%}, not {goal:.0%}" if value > goal else ""
        yield Row((f"{what} of {len(errors)}", "", "", "", "", f"{value:.1%}"), missed)


def _parts(options: argparse.Namespace) -> Sequence[Part]:
    columns = (("layout", -14), ("policy", -28), ("Mbit/s", 6), ("predicted ms", 12), ("measured ms", 11), ("off", 7))
    return (Part("Predicted and measured steps, EMULATED compute", columns, partial(_rows, options, [])),)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layout", action="append", choices=tuple(CELLS), help="only this one; repeat")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="blocks of steps of each (1)")
    parser.add_argument("--steps", type=int, default=6, metavar="N", help="steps of a block; its first is not counted")


TABLE = Table("prediction", "predicted steps against measured ones (as root)", lambda o: tuple(_parts(o)), _configure)
