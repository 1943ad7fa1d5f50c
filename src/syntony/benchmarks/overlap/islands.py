"""Training apart: islands on slow wires that exchange what they have changed seldom, or late, against training that
sums gradients in every step.

    ms         of a step: a block's time by its steps. What is left to exchange at its end counts, unless it is late
    kB         that the host of rank 0 sends in a step, as the kernel counts, headers and all; `planned`: without these

Computing sleeps. Islands learn something else than synchronous training does; what, this table does not tell.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from statistics import mean
from typing import Any

from syntony.benchmarks.overlap.contenders.contest import Entry, Timed, Work, hold
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.lab_spec import at_rate, spec_of
from syntony.overlap.predict.machine import machine_of
from syntony.overlap.predict.swarm import predicted
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.swarm import Swarm
from syntony.topologies.parse import parse

LOCAL = 8  # steps from one exchange to the next
STEPS = 2 * LOCAL
MODEL: Mapping[str, Any] = {"blocks": 8, "width": 128, "heads": 4, "hidden": 352, "context": 32}
FORWARD = 0.01  # seconds of a block's forward
_OFF = 0.10  # of a prediction
_HEADERS = 0.10  # that a wire may carry beyond what is planned
DATA: Mapping[str, Mapping[str, Any]] = {
    "synchronous": {},
    "hetpipe, one wave late": {"islands": 2, "delay": 1},
    "local SGD": {"islands": 2, "local": LOCAL},
    "diloco": {"islands": 2, "local": LOCAL, "outer": "nesterov"},
    "diloco, one exchange late": {"islands": 2, "local": LOCAL, "outer": "nesterov", "delay": 1},
}
PIPELINES: Mapping[str, Mapping[str, Any]] = {
    "synchronous": {},
    "hetpipe, one wave late": {"islands": 2, "delay": 1},
    "hetpipe, two waves late": {"islands": 2, "delay": 2},
}


def ours(label: str, parallel: Mapping[str, Any]) -> Entry:
    """The trainer in this layout."""
    pipelined = parallel.get("pp", 1) > 1
    options = {
        "backend": "syntony",
        "policy": "need:slice=256K",
        "model": MODEL,
        "parallel": parallel,
        "data": {"rows": 8, "microbatches": 8 if pipelined else 2},
        "run": {"compute": "emulated", "forward": FORWARD},
    }
    return Entry(label, "trainer", options)


def _ddp() -> list[Entry]:
    """On gloo, with one bucket and with small ones."""
    count = 8 * (4 * 128 * 128 + 3 * 128 * 352) + 2 * 256 * 128
    subject = {"subject": "emulated", "model": {"layers": 10, "weights": count, "seconds": 3 * 8 * FORWARD}}
    return [Entry(f"ddp gloo bucket {size}", "ddp", {**subject, "backend": "gloo", "bucket": size}) for size in (25, 1)]


def _rows(entries: list[Entry], hosts: int, options: argparse.Namespace) -> Iterator[Row]:
    spec = at_rate(spec_of(parse(f"star:{hosts}")), Fraction(round(options.rate * 1e6 / 8)))
    for one in hold(spec, Work(tuple(entries), STEPS, options.rounds)):
        yield _row(one)


def _row(one: Timed) -> Row:
    late = {**DATA, **PIPELINES}.get(one.label, {}).get("delay", 0) > 0
    seconds, sent = mean(one.steps) if late else one.told["whole"], one.told["sent"]
    cells = [one.label, f"{1e3 * seconds:.0f}", "", "", f"{sent / 1e3:.0f}", ""]
    missed = ""
    if "simulated" in one.told:
        expected, planned = one.told["simulated"], one.told["sends"]
        error, more = expected / seconds - 1, sent / planned - 1
        cells[2:4] = f"{1e3 * expected:.0f}", f"{error:+.1%}"
        cells[5] = f"{planned / 1e3:.0f}"
        if abs(error) > _OFF:
            missed = f"predicted {error:+.1%} off, not {_OFF:.0%}"
        elif not 0 <= more <= _HEADERS:
            missed = f"{more:+.1%} of what is planned was sent beyond it"
    return Row(tuple(cells), missed)


SWARMS = ("3:1,1:1:1", "2:2,1:1,1", "1,1,1:1:1:1")


def _swarms() -> Iterator[Row]:
    """Of a model whose stages compute for longer than what they send moves."""
    machine = machine_of("cpu:network=250e6")
    layers = layers_of(model_named("thin"), Layout(), Form(4, 4))
    for name in SWARMS:
        stages = tuple(tuple(map(float, stage.split(":"))) for stage in name.split(","))
        turn, *rows = predicted(layers, Swarm(stages), 24, machine)
        yield Row((name, turn.name, str(turn.swarm), f"{1e3 * turn.seconds:.0f}", f"{1e3 * turn.bound:.0f}", ""))
        for row in rows:
            gain = turn.seconds / row.seconds
            cells = (
                name,
                row.name,
                str(row.swarm),
                f"{1e3 * row.seconds:.0f}",
                f"{1e3 * row.bound:.0f}",
                f"{gain:.2f}",
            )
            yield Row(cells, f"{gain:.2f}x, slower than microbatches in turn" if gain < 1 - 1e-9 else "")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    swarm = (("devices", -14), ("microbatches", -21), ("stages", -14), ("ms", 6), ("bound", 6), ("gain", 5))
    columns = (("training", -28), ("ms", 6), ("predicted", 9), ("off", 7), ("kB a step", 9), ("planned", 8))
    rate = f"{options.rate:g} Mbit/s"
    data = [ours(label, {"dp": 2, **keys}) for label, keys in DATA.items()]
    lines = [ours(label, {"dp": 2, "pp": 2, "speeds": (3.0, 1.0), **keys}) for label, keys in PIPELINES.items()]
    title = f"Two pipelines of two devices, three times as fast and once, on four hosts, wires of {rate}"
    return (
        Part(f"Two hosts, wires of {rate}", columns, partial(_rows, [*_ddp(), *data], 2, options)),
        Part(title, columns, partial(_rows, lines, 4, options)),
        Part("Stages of a swarm, 24 microbatches, simulated", swarm, _swarms),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="blocks of steps of each contender (2)")
    parser.add_argument("--rate", type=float, default=100.0, metavar="MBIT/S", help="of every host's wire (100)")


TABLE = Table("islands", "training apart on slow wires, against training together (as root)", _parts, _configure)
