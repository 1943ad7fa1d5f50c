"""One rank of the table `choices`: the untuned default beside every algorithm that one could name instead.

    python -m syntony.benchmarks.runtime.measured.choices_rank WORK RESULTS         in the lab

WORK is a JSON `Work`, equal on all ranks; rank 0 writes RESULTS, a JSON list of `Compared`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from syntony import _core
from syntony.benchmarks.bench.contenders import Syntony
from syntony.benchmarks.bench.measure import Bench, Effort
from syntony.benchmarks.runtime.measured.sweep import case_of
from syntony.collectives.bootstrap.launch import Exchange
from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator
from syntony.collectives.tuner.settings import self_sufficient

AUTO = "auto"
_TIMEOUT = 120.0  # seconds that a collective may take
_FEWEST = 5  # ranks of one host try some ways in the first calls of a large collective


@dataclass(frozen=True)
class Work:
    """`iterations`: of 64 KiB and less in each turn; of more, in proportion fewer, at least _FEWEST."""

    collectives: tuple[str, ...]
    sizes: tuple[int, ...]
    rounds: int
    iterations: int


@dataclass(frozen=True)
class Compared:
    """One collective of one size; medians over the iterations, means over the ranks, in seconds.

    chosen   what `auto` is here
    all      by name, `auto` included, all in turns
    duel     `auto` and the fastest of `all` other than `chosen`, again, in turns of their own: the fastest of many
             noisy figures is too low
    """

    collective: str
    size: int
    chosen: str
    all: dict[str, float]
    duel: dict[str, float]
    wrong: int


def compare(exchange: Exchange, work: Work) -> list[Compared]:
    """Collective. Ignores tables that `syntony tune` has stored."""
    os.environ["SYNTONY_TUNE"] = "off"
    with Communicator.create(exchange, _TIMEOUT) as communicator:
        bench = Bench(exchange)
        found = [
            _compare(bench, communicator, collective, size, work)
            for collective in work.collectives
            for size in work.sizes
        ]
        communicator.barrier()
    return found


def _compare(bench: Bench, communicator: Communicator, collective: str, size: int, work: Work) -> Compared:
    case = case_of(collective, size, communicator.size)
    moved = case.bytes_moved(communicator.size)
    chosen, _ = _core.automatic_choice(collective, moved, communicator.boxes, communicator.crowded)
    one_host = len(communicator.boxes) == 1
    others = [name for name in self_sufficient(collective) if name != chosen and (one_host or name != "shared")]
    per_turn = max(_FEWEST, min(work.iterations, work.iterations * (64 << 10) // size))

    def seconds(names: Sequence[str], turns: int) -> tuple[dict[str, float], int]:
        contenders = [Syntony(communicator, name) for name in names]
        effort = Effort(iterations=turns * per_turn, turns=turns, fresh=True)
        results = bench.run(case, contenders, effort, forms=(False,))
        timings = {result.label: timing for result in results if (timing := result.best_form) is not None}
        return {label: t.p50 for label, t in timings.items()}, sum(t.wrong or 0 for t in timings.values())

    everything, wrong = seconds([AUTO, *others], work.rounds)
    rival = min(others, key=lambda name: everything[name])
    duel, _ = seconds([AUTO, rival], 2 * work.rounds)
    return Compared(collective, size, chosen, everything, duel, wrong)


def main(words: Sequence[str]) -> int:
    asked, results = map(Path, words)
    work = Work(**json.loads(asked.read_text()))
    with TcpBootstrap.from_environment() as exchange:
        found = compare(exchange, work)
        if exchange.rank == 0:
            results.write_text(json.dumps([asdict(one) for one in found]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
