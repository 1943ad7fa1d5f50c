"""Table `mismatch`: ranks that do not call the same; how fast is it named, on all of them, and are both sides shown?

One rank calls something else than the others, in a fresh group each time, after a random pause of one of them. `ms`:
from the moment that the last rank has entered its call to the error in a rank's hands, over all ranks of all trials.
"distant": the ranks of a ring of which one has nothing to send or to wait for (an empty all_reduce beside a full one),
so that no frame can tell its neighbours, and others are not even its neighbours. In rows "tcp", every rank
takes itself to be on a host of its own, on this one machine.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from syntony.base.arguments import count
from syntony.benchmarks.runtime.measured.returned import returned_by
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import Exchange

MOST_MILLISECONDS = 10.0
"""Goal, on every rank."""
_LONGEST_PAUSE = 0.03  # seconds that one side comes later
_TIMEOUT = 30.0
_ODD = 1  # the rank that does not call what the others call
_TRANSPORTS = {"shared memory": "", "tcp": "abcd"}


@dataclass(frozen=True)
class Case:
    """What the ranks call, what rank 1 calls instead, and the word that the sentence must have."""

    name: str
    usual: Callable[[Any], object]
    other: Callable[[Any], object]
    word: str


def _cases() -> tuple[Case, ...]:
    import numpy as np

    def reduce(elements: int = 100, dtype: str = "float32", **options: Any) -> Callable[[Any], object]:
        return lambda group: group.all_reduce(np.ones(elements, dtype), **options)

    def broadcast(root: int) -> Callable[[Any], object]:
        return lambda group: group.broadcast(np.ones(100, np.float32), root)

    return (
        Case("op", reduce(), reduce(op="max"), "reduction"),
        Case("dtype", reduce(), reduce(dtype="int32"), "dtype"),
        Case("count", reduce(), reduce(101), "element count"),
        Case("root", broadcast(0), broadcast(1), "root"),
        Case("collective", reduce(), broadcast(0), "operation"),
        Case("distant", reduce(200_000, algorithm="ring"), reduce(0, algorithm="ring"), "element count"),
    )


@dataclass(frozen=True)
class Trial:
    """On one rank: when it entered the call and got the error, and what that said ("" when none came)."""

    entered: float
    told: float
    kind: str
    said: str


def _trials(exchange: Exchange, name: str, trials: int, seed: int) -> list[Trial]:
    from syntony._core import CommunicationError
    from syntony.collectives.communicator import Communicator

    case = next(case for case in _cases() if case.name == name)
    rng = random.Random(f"{seed} {name}")
    world = Communicator.create(exchange, _TIMEOUT)
    found = []
    for _ in range(trials):
        late, pause = rng.randrange(world.size), rng.uniform(0, _LONGEST_PAUSE) * rng.randrange(2)
        group = world.split(0, timeout=_TIMEOUT)
        assert group is not None
        world.barrier()  # in another group: an abort may overtake the last bytes of a barrier in the same one
        if world.rank == late:
            time.sleep(pause)
        entered = time.monotonic()
        kind = said = ""
        try:
            (case.other if world.rank == _ODD else case.usual)(group)
            group.barrier()  # a rank whose own part is over learns of it in its next operation
            group.barrier()
        except CommunicationError as error:
            kind, said = error.kind, str(error)
        found.append(Trial(entered, time.monotonic(), kind, said))
        world.barrier()  # a group of which all have heard is closed; nobody leaves before
        group.close()
    world.close()
    return found


def _rows(ranks: int, trials: int, seed: int) -> Iterator[Row]:
    for case in _cases():
        for transport, hosts in _TRANSPORTS.items():
            by_rank = returned_by(ranks, partial(_trials, name=case.name, trials=trials, seed=seed), hosts)
            milliseconds, wrong = [], []
            for together in zip(*by_rank, strict=True):
                last = max(trial.entered for trial in together)
                milliseconds += [1000 * (trial.told - last) for trial in together]
                wrong += [trial.said or "nothing" for trial in together if not _shown(trial, case)]
            worst = max(milliseconds)
            missed = f"said: {wrong[0]}" if wrong else "" if worst <= MOST_MILLISECONDS else "more than 10 ms"
            late = sum(one > MOST_MILLISECONDS for one in milliseconds)
            times = (f"{median(milliseconds):.2f}", f"{worst:.2f}")
            yield Row((case.name, transport, len(milliseconds), len(milliseconds) - len(wrong), *times, late), missed)


def _shown(trial: Trial, case: Case) -> bool:
    """Whether both sides and what differs are named."""
    return (
        trial.kind == "mismatch"
        and f"rank {_ODD}" in trial.said
        and "disagree" in trial.said
        and case.word in trial.said
    )


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    import syntony.collectives.communicator  # noqa: F401  once, and not in every rank

    columns = (
        ("differs", -10), ("between ranks", -13), ("errors", 6), ("both shown", 10), ("p50 ms", 7), ("max ms", 7),
        ("late", 4),
    )  # fmt: skip
    return tuple(
        Part(
            f"{ranks} ranks of which rank {_ODD} calls something else, {options.trials} times, seed {options.seed}; "
            f"goal: named on every rank within {MOST_MILLISECONDS:g} ms, with both sides",
            columns,
            partial(_rows, ranks, options.trials, options.seed),
        )
        for ranks in (2, 4)
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=count, default=20, metavar="N", help="per row (20)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of the pauses")


TABLE = Table("mismatch", "how fast ranks that do not call the same are named", _parts, _configure)
