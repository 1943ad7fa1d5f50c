"""The lab of a contest, the models in it, and the rate at which communication takes r times as long as computing."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from syntony.benchmarks.overlap.contenders.contest import Entry, Work, hold
from syntony.lab.lab_spec import LabSpec, at_rate, spec_of
from syntony.topologies.parse import parse

MEASURED_AT = 200e6 / 8  # bytes/s
SLOWEST, FASTEST = 20e6 / 8, 500e6 / 8  # what the lab emulates well

THIN: Mapping[str, Any] = {  # deep and thin: what the last layer's sum leaves exposed is little; 42.9 MB of gradients
    "subject": "real",
    "model": {"blocks": 24, "width": 192, "heads": 6, "hidden": 512, "context": 128, "rows": 12},
}
FORWARD = 0.028  # where computing is emulated: seconds of a block's forward
MODELS: Mapping[str, Mapping[str, Any]] = {  # of the trainer
    "real": THIN["model"],
    "emulated": {**THIN["model"], "context": 32, "rows": 8},
}
SEARCH = "search:seconds=5"  # the policy that tries the others
_PARTS = THIN["model"]["blocks"] + 2


def sleeping(forward: float = FORWARD) -> Mapping[str, Any]:
    """What torch trains where computing is emulated: as many bytes in as many layers, and as many seconds as the
    trainer takes."""
    return {
        "subject": "emulated",
        "model": {"layers": _PARTS, "weights": 10_724_544, "seconds": 3 * THIN["model"]["blocks"] * forward},
    }


def subject(compute: str, forward: float = FORWARD) -> Mapping[str, Any]:
    """What torch's parallelisms train: for `real` or `emulated` computing."""
    return THIN if compute == "real" else sleeping(forward)


def forward_at(ratio: float) -> float:
    """Seconds of a block's emulated forward: below a ratio of 0.5 wires would be faster than the lab can emulate, so
    that computing takes longer instead."""
    return FORWARD * max(1.0, 0.5 / ratio)


def star(hosts: int, rate: float) -> LabSpec:
    """So many hosts of one rank, each with a wire of `rate` bytes/s each way."""
    return at_rate(spec_of(parse(f"star:{hosts}")), Fraction(round(rate)))


def rate_for(ratio: float, hosts: int, subject: Mapping[str, Any]) -> tuple[float, float]:
    """Bytes/s at which summing the subject's gradients takes `ratio` times what it computes, and those seconds of
    computing. Both are measured."""
    entries = (
        Entry("compute", "compute", subject),
        Entry("communication", "communication", {**subject, "backend": "gloo"}),
    )
    compute, communication = hold(star(hosts, MEASURED_AT), Work(entries, 3, 1))
    wanted = MEASURED_AT * communication.seconds / (ratio * compute.seconds)
    return min(max(wanted, SLOWEST), FASTEST), compute.seconds


def rate_of(
    ratio: float, hosts: int, whole: Mapping[str, Any], moving: Mapping[str, Any], computing: float | None = None
) -> float:
    """Bytes/s at which what a blocking step (blocking.py) moves takes `ratio` times what it computes. `moving`: of the
    same step, computing nothing; `computing`: seconds that the step computes, where they are known."""
    entries = tuple(
        Entry(label, "blocking", {**sections, "backend": "gloo"})
        for label, sections in (("whole", whole), ("moving", moving))
    )
    step, communication = (timed.seconds for timed in hold(star(hosts, MEASURED_AT), Work(entries, 3, 1)))
    if computing is not None:  # a sleep also hides what a step that computes nothing has to do between two messages
        communication = step - computing
    wanted = MEASURED_AT * communication / (ratio * max(step - communication, 1e-3))
    return min(max(wanted, SLOWEST), FASTEST)


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of all tables that hold contests."""
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="blocks of steps of each contender (4)")
    parser.add_argument("--steps", type=int, default=6, metavar="N", help="steps of a block; its first is not counted")
    parser.add_argument("--ratio", type=float, action="append", metavar="R", help="communication over computing")
    parser.add_argument("--compute", choices=("real", "emulated"), default="real", help="(real)")


def grid(
    maker: str, label: str, backends: Sequence[str], name: str, values: Sequence[Any], **options: Any
) -> list[Entry]:
    """A contender with each value of one option, on each backend."""
    return [
        Entry(f"{label} {backend} {name} {value}", maker, {**options, "backend": backend, name: value})
        for backend in backends
        for value in values
    ]
