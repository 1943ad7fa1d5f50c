"""Policy search: its time on the largest plans, and whether any named policy is better than its result.

seconds    of one core: `syntony overlap search` as a user starts it, with the interpreter and the machine's wires
best named the best of all policies of the registry with their defaults, simulated in full
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from syntony.base.command import UserError
from syntony.base.wording import time as clock
from syntony.benchmarks.overlap.policies import step_of
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import RankError
from syntony.overlap.policies.search import search
from syntony.overlap.policies.table import POLICIES
from syntony.overlap.predict.simulation import simulate

_102B = "--model internlm2-102b --machine a100"
LARGE = (
    ("128 GPUs", f"{_102B} --layout tp=8,pp=4,dp=4,zero=1,microbatches=8 --on dgx-a100:16", 10.0),
    ("1,024 GPUs", f"{_102B} --layout tp=8,pp=8,dp=16,zero=1,microbatches=16 --on dgx-a100:128", 60.0),
)
CELLS = (
    "--model thin --layout dp=4 --machine cpu:network=35e6",
    "--model thin --layout dp=4,zero=1 --machine cpu:network=20e6",
    "--model bert-large --layout dp=32 --batch 8 --machine a100:network=5e9",
    "--model gpt2 --layout tp=4,dp=2 --batch 4 --machine a100:box=50e9",
    "--model thin-moe --layout dp=4,ep=4 --batch 8 --machine cpu:network=60e6",
    "--model gpt2 --layout pp=4,microbatches=8 --machine a100:network=3e9,ranks=1",
    "--model gpt2 --layout pp=4,dp=4,microbatches=8 --machine a100:network=3e9,ranks=1",
    "--model gpt2 --layout tp=2,pp=2,dp=4,zero=1,microbatches=4 --machine a100",
)
TIE = 1e-3
"""By so much of its seconds a plan may be slower, and is still a tie."""


def _large() -> Iterator[Row]:
    for name, words, goal in LARGE:
        command = [sys.executable, "-m", "syntony", "overlap", "search", *words.split(), "--json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*command, "--seconds", str(goal)], capture_output=True, text=True, env=environment)
        if done.returncode:
            raise RankError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found = json.loads(done.stdout)
        best = found["plans"][0]
        cells = (
            name,
            f"{took:.1f}",
            f"{goal:g}",
            found["tried"],
            clock(best["seconds"]),
            f"{best['efficiency']:.0%}",
        )
        yield Row((*cells, best["policy"]), f"{took:.1f} s, not {goal:g} s" if took > goal else "")


def _cells(seconds: float) -> Iterator[Row]:
    for words in CELLS:
        graph, cost = step_of(words)
        named: dict[str, float] = {}
        for name, policy in POLICIES.items():
            try:
                plan = policy.plan(graph, cost)
                if not plan.simulated:
                    named[name] = simulate(plan, cost).seconds
            except UserError:
                continue  # it has nothing to do with this step
        winner = min(named, key=named.__getitem__)
        best = search(graph, cost, seconds).candidates[0]
        gain = named[winner] / best.seconds
        cells = (
            words.partition(" ")[2],
            clock(best.seconds),
            clock(named[winner]),
            winner,
            f"{gain:.3f}",
            best.maker,
        )
        yield Row(cells, f"{winner} is faster" if gain < 1 - TIE else "")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    large = (
        ("102 billion", -11),
        ("CPU s", 6),
        ("goal", 5),
        ("plans", 6),
        ("step", 9),
        ("est./step", 9),
        ("best", -40),
    )
    cells = (("step", -74), ("search", 9), ("named", 9), ("best named", -18), ("gain", 6), ("found", -40))
    return (
        Part("Search, one core", large, _large),
        Part("Search against the best named policy, simulated", cells, partial(_cells, options.seconds)),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of search in each small cell (10)")


TABLE = Table("search", "how long search takes, and what it finds", _parts, _configure)
