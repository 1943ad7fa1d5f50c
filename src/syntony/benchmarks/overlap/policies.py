"""Every named system: what it gains in its paper's setting, simulated; what its paper says; and in our lab.

    simulated   over the paper's kind of baseline: `serial` overlaps nothing, `fifo` sums each gradient as it comes
    lab         emulated computing on four emulated hosts, over the same baseline, where communication and computing
                take about as long: measured with --measure, in turns, medians of the slowest rank's steps
    predicted   the gain in the lab, by costs that the trainer profiled before; `off`: of the policy's step

With --lab, only one lab's rows are measured, and nothing else is simulated: that takes one to four minutes each.

Models, layouts and machines that are simulated were chosen by us, after what the papers say of theirs: that ours and
their gains are alike makes the mechanism plausible, and reproduces no experiment. Settings, sources, and why ours and
theirs differ are printed behind the table; published.py has them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

from syntony.base.command import UserError
from syntony.benchmarks.overlap.contenders import settings
from syntony.benchmarks.overlap.contenders.contest import Entry, Work, hold
from syntony.benchmarks.overlap.contenders.convolutional import NETWORKS, network
from syntony.benchmarks.overlap.contenders.published import PUBLISHED, Published
from syntony.benchmarks.overlap.pipeline import MODEL, STAGE
from syntony.benchmarks.tables import Part, Row, Table
from syntony.overlap.commands.problem import add_problem, layout_of, problem
from syntony.overlap.policies.search import chain_of, describe
from syntony.overlap.policies.table import policy
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.op_key import OpKey

HOSTS = 4
_MOST = 60  # settings of a policy's knobs that are tried
_LARGE = 3000  # ops, above which knobs are left alone
_OFF = 0.1  # of a measured step, by which its prediction may miss it


@dataclass(frozen=True)
class Bench:
    """Where policies are run: bytes/s of each host's wire, and sections of the trainer's configuration."""

    rate: float
    options: Mapping[str, Any]


_THIN = {key: value for key, value in settings.MODELS["emulated"].items() if key != "rows"}
_WIDE = {"blocks": 4, "width": 128, "heads": 4, "hidden": 384, "context": 128}
LABS: Mapping[str, Bench] = {
    "dp": Bench(
        31e6,
        {
            "model": _THIN,
            "parallel": {"dp": HOSTS},
            "data": {"rows": 8, "microbatches": HOSTS},
            "run": {"compute": "emulated", "forward": settings.FORWARD},
        },
    ),
    "tp": Bench(
        45e6,
        {
            "model": _WIDE,
            "parallel": {"tp": HOSTS},
            "data": {"rows": 8, "microbatches": 2},
            "run": {"compute": "emulated", "forward": 0.1},
        },
    ),
    "ep": Bench(
        45e6,
        {
            "model": {**_WIDE, "experts": 8, "top": 2},
            "parallel": {"dp": HOSTS, "ep": HOSTS},
            "data": {"rows": 8, "microbatches": 2 * HOSTS},
            "run": {"compute": "emulated", "forward": 0.025},
        },
    ),
    "pp": Bench(
        25e6,
        {
            "model": MODEL,
            "parallel": {"pp": HOSTS},
            "data": {"rows": 1, "microbatches": 8},
            "run": {"compute": "emulated", "forward": STAGE / 2},
        },
    ),
}
LABS = {
    **LABS,
    "recompute": replace(LABS["tp"], options={**LABS["tp"].options, "parallel": {"tp": 4, "recompute": True}}),
    "few tokens": Bench(
        60e6,
        {
            "model": {"blocks": 8, "width": 256, "heads": 4, "hidden": 1024, "context": 16},
            "parallel": {"dp": HOSTS},
            "data": {"rows": 1, "microbatches": HOSTS},
            "run": {"compute": "emulated", "forward": 0.006},
        },
    ),
    "one expert": replace(
        LABS["ep"], options={**LABS["ep"].options, "model": {**_WIDE, "hidden": 2048, "experts": HOSTS, "top": 2}}
    ),
    "small experts": replace(
        LABS["ep"], options={**LABS["ep"].options, "model": {**_WIDE, "hidden": 64, "experts": 8, "top": 2}}
    ),
}
LABS = {
    **LABS,
    "skewed": replace(
        LABS["small experts"],
        options={**LABS["small experts"].options, "run": {**LABS["ep"].options["run"], "skew": 1.0}},
    ),
}


def step_of(words: str) -> tuple[Graph, Cost]:
    """The step, as `syntony overlap simulate` reads it, or of a network of convolutions; and what it costs."""
    parser = argparse.ArgumentParser()
    add_problem(parser)
    options = parser.parse_args(words.split())
    if options.model not in NETWORKS:
        asked = problem(options)
        return asked.graph, asked.cost
    layers, options.model = network(options.model, options.batch, options.element or 4), "thin"
    return generate(layers, layout_of(options.layout)), problem(options).cost


def late(graph: Graph) -> Graph:
    """Activations are computed again when the gradient is there that their backward waits for."""
    backward = {op.key._replace(kind=Kind.RECOMPUTE): op for op in graph if op.kind is Kind.BACKWARD}

    def held(key: OpKey, deps: tuple[OpKey, ...]) -> tuple[OpKey, ...]:
        return tuple(dict.fromkeys((*deps, *(dep for dep in backward[key].deps if dep != key))))

    return graph.with_ops(op._replace(deps=held(op.key, op.deps)) if op.kind is Kind.RECOMPUTE else op for op in graph)


def simulated(row: Published) -> tuple[float, str]:
    """The gain, and the policy with the knobs that give it."""
    graph, cost = step_of(row.step)
    if row.over == "one":
        computing = sum(took for op, took in zip(graph, cost.seconds(graph)[0], strict=True) if op.lane == COMPUTE)
        base = computing * (graph.layout.ranks if graph.layout else 1)
    else:
        step, name = (late(graph), "fifo") if row.over == "late" else (graph, row.over)
        base = simulate(policy(name).plan(step, cost), cost).seconds
    (given,) = chain_of(row.policy)
    names = [name for name, knob in given.knobs.items() if len(knob.grid) > 1]
    turned = [given]
    if row.tuned and len(graph) <= _LARGE:
        values = product(*(given.knobs[name].grid for name in names))
        turned += [given.with_knobs(**dict(zip(names, one, strict=True))) for one in list(values)[:_MOST]]
    best, maker = float("inf"), given
    for one in turned:
        try:
            seconds = simulate(one.plan(graph, cost), cost).seconds
        except UserError:
            continue
        if seconds < best:
            best, maker = seconds, one
    return base / best, describe(maker)


def entry(policy: str, options: Mapping[str, Any], label: str = "") -> Entry:
    """The trainer under a policy, as --policy reads it."""
    return Entry(label or policy, "trainer", {"backend": "syntony", "policy": policy, **options})


class Seconds(NamedTuple):
    """Of a step."""

    predicted: float
    measured: float


@cache
def measured(lab: str, names: tuple[str, ...], steps: int, rounds: int) -> Mapping[str, Seconds]:
    """By policy, in turns."""
    bench = LABS[lab]
    entries = tuple(entry(name, bench.options) for name in ("serial", "fifo", *names))
    found = hold(settings.star(HOSTS, bench.rate), Work(entries, steps, rounds))
    return {one.label: Seconds(one.told["simulated"], one.seconds) for one in found}


def _lab(row: Published) -> tuple[str, str]:
    """What is run (a policy), and in which lab; "" for none."""
    where, _, name = row.lab.partition(":")
    return (name or row.policy, where) if where in LABS else (row.policy, "")


def _asked(options: argparse.Namespace, row: Published) -> bool:
    """Whether a row is among those of --policy and --lab."""
    named = not options.policy or chain_of(row.policy)[0].name in options.policy
    return named and (not options.lab or _lab(row)[1] in options.lab)


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    rows = list(filter(partial(_asked, options), PUBLISHED))
    runs: dict[str, tuple[str, ...]] = {}
    for name, lab in map(_lab, rows):
        runs[lab] = (*runs.get(lab, ()), name)
    for row in rows:
        gain, maker = (None, row.policy) if options.lab else simulated(row)
        told = (
            "" if not row.most else f"{row.least:.2f}" if row.least == row.most else f"{row.least:.2f}-{row.most:.2f}"
        )
        name, lab = _lab(row)
        expected, seen, off = "", "simulated" if not lab else "--measure", ""
        missed = f"slower than {row.over}" if gain is not None and gain < 0.995 else ""
        if lab and (options.measure or options.lab):
            seconds = measured(lab, runs[lab], options.steps, options.rounds)
            base, mine = seconds[{"late": "fifo", "one": "serial"}.get(row.over, row.over)], seconds[name]
            expected, seen = f"{base.predicted / mine.predicted:.2f}", f"{base.measured / mine.measured:.2f}"
            error = mine.predicted / mine.measured - 1
            off = f"{error:+.1%}"
            missed = missed or (f"predicted {off} off, not {_OFF:.0%}" if abs(error) > _OFF else "")
        shown = "" if gain is None else f"{gain:.2f}"
        yield Row((maker, row.over, shown, told, expected, seen, off), missed)


def _notes(options: argparse.Namespace, rows: Sequence[Row]) -> list[str]:
    lines = [""]
    for row in filter(partial(_asked, options), () if options.lab else PUBLISHED):
        lines += [f"{chain_of(row.policy)[0].name}: {row.source}", f"    simulated {row.step}"]
        lines += [f"    {row.lab}"] if row.lab.startswith("simulated") else []
        lines += [f"    {row.remark}"] if row.remark else []
    return lines


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (
        ("policy", -48), ("over", -6), ("simulated", 9), ("published", 11), ("predicted", 9), ("lab", 9), ("off", 7)
    )  # fmt: skip
    return (
        Part(
            "Gains of published systems; simulated in settings that we chose after the papers, not a reproduction",
            columns,
            partial(_rows, options),
            partial(_notes, options),
        ),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", action="append", metavar="NAME", help="only this one; repeat")
    parser.add_argument("--lab", action="append", choices=LABS, help="measure its rows, and only these; repeat")
    parser.add_argument("--measure", action="store_true", help="run them, too (as root)")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="blocks of steps of each (4)")
    parser.add_argument("--steps", type=int, default=6, metavar="N", help="steps of a block; its first is not counted")


TABLE = Table("policies", "every named system: simulated, published, measured", _parts, _configure)
