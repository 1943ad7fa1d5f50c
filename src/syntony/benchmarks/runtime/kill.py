"""Table `kill`: a random rank dies by SIGKILL at a random moment of random operations; do the others name it, and when?

Every episode forks new ranks, lets them run random operations (random_operations.py) for a random time, kills one, and
waits for what the others say. `ms`: from just before the kill to the error in the caller's hands, over all survivors of
all episodes. Afterwards every survivor closes its group and counts what it still holds (sockets, shared memory,
descriptors of processes), and the machine is searched for files in /dev/shm. In rows "tcp",
every rank takes itself to be on a host of its own, on this one machine.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from syntony.base.arguments import count
from syntony.base.command import UserError
from syntony.benchmarks.runtime.measured.held import descriptors
from syntony.benchmarks.tables import Part, Row, Table

MOST_MILLISECONDS = 100.0
"""Goal, on every survivor."""
RANKS = 4
HOSTS = {"shared memory": "aaaa", "tcp": "abcd", "two hosts": "aabb"}
_LONGEST_RUN = 0.05  # seconds between the first operation and the kill
_PATIENCE = 60.0  # seconds for whatever must come


def _survive(rank: int, port: int, secret: str, host: str, seed: int, report: Connection) -> None:
    """A rank's life: it says "running", then what it saw."""
    os.environ["SYNTONY_HOST"] = host
    from syntony._core import CommunicationError
    from syntony.benchmarks.runtime.measured.random_operations import random_operation
    from syntony.collectives.bootstrap import process
    from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
    from syntony.collectives.communicator import Communicator

    process.current()
    before = _held()
    with TcpBootstrap(rank, RANKS, "127.0.0.1", port, _PATIENCE, secret) as bootstrap:
        group = Communicator.create(bootstrap, _PATIENCE)
    rng = random.Random(seed)
    try:
        random_operation(group, rng)
        report.send("running")
        while True:
            random_operation(group, rng)
    except CommunicationError as error:
        told: dict[str, Any] = {"when": time.monotonic(), "kind": error.kind, "ranks": error.ranks, "said": str(error)}
    group.close()
    del group  # its memory goes with it
    told["left"] = sorted(set(_held()) - set(before))
    report.send(told)


def _held() -> list[str]:
    """What a group could leave behind."""
    return [held for held in descriptors() if held.startswith("socket:") or "memfd" in held or "pidfd" in held]


def _episode(hosts: str, rng: random.Random) -> tuple[list[float], list[str]]:
    """Milliseconds of each survivor that named the dead one, and what was wrong."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    secret, seed = secrets.token_hex(), rng.randrange(1 << 32)
    victim = rng.randrange(RANKS)
    reports: list[Connection] = []
    ranks: list[int] = []
    with ExitStack() as stack:
        stack.callback(_end, ranks)
        for rank in range(RANKS):
            here, there = Pipe(duplex=False)
            reports.append(stack.enter_context(here))
            with there:
                pid = os.fork()
                if pid == 0:
                    _be_a_rank(partial(_survive, rank, port, secret, hosts[rank], seed, there))
                ranks.append(pid)
        for rank, report in enumerate(reports):
            if _heard(report) != "running":
                return [], [f"rank {rank} did not start"]
        time.sleep(rng.uniform(0, _LONGEST_RUN))
        died = time.monotonic()
        os.kill(ranks[victim], signal.SIGKILL)
        milliseconds, wrong = [], []
        for rank, report in enumerate(reports):
            if rank == victim:
                continue
            told = _heard(report)
            if told is None:
                wrong.append(f"rank {rank} said nothing for {_PATIENCE:g} s, or failed")
                continue
            if (told["kind"], told["ranks"]) == ("dead", (victim,)):
                milliseconds.append(1000 * (told["when"] - died))
            else:
                wrong.append(f"rank {victim} died, rank {rank} said: {told['said']}")
            wrong += [f"rank {rank} still holds {thing}" for thing in told["left"]]
        return milliseconds, wrong


def _be_a_rank(life: Callable[[], None]) -> NoReturn:
    """In a forked child: never returns into the launcher's stack."""
    code = 1
    try:
        life()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _heard(report: Connection) -> Any:
    """What a rank says next; None when it says nothing any more, or not in time."""
    try:
        return report.recv() if report.poll(_PATIENCE) else None
    except EOFError:
        return None


def _end(ranks: list[int]) -> None:
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)  # those that have ended are still ours to wait for
        os.waitpid(pid, 0)


def _shared_files() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("*syntony*")}


def _rows(episodes: int, seed: int) -> Iterator[Row]:
    for name, hosts in HOSTS.items():
        rng = random.Random(f"{seed} {name}")
        files, held = _shared_files(), len(descriptors())
        milliseconds: list[float] = []
        wrong: list[str] = []
        for _ in range(episodes):
            took, faults = _episode(hosts, rng)
            milliseconds += took
            wrong += faults
        wrong += [f"/dev/shm/{name} was left" for name in _shared_files() - files]
        if len(descriptors()) != held:
            wrong.append("the launcher's descriptors have become more")
        worst = max(milliseconds, default=0.0)
        missed = wrong[0] if wrong else f"more than {MOST_MILLISECONDS:g} ms" if worst > MOST_MILLISECONDS else ""
        late = sum(one > MOST_MILLISECONDS for one in milliseconds)
        middle = median(milliseconds) if milliseconds else 0.0
        cells = (name, episodes, len(milliseconds), f"{middle:.1f}", f"{worst:.1f}", late, len(wrong))
        yield Row(cells, missed)


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    if not hasattr(os, "pidfd_open"):
        raise UserError("ranks are killed and watched with Linux' pidfds, which this system does not have")
    import numpy  # noqa: F401  once, and not in every rank of every episode

    import syntony.collectives.bootstrap.tcp_bootstrap  # noqa: F401

    return (
        Part(
            f"SIGKILL of one of {RANKS} ranks at a random moment, seed {options.seed}; goal: named on every survivor "
            f"within {MOST_MILLISECONDS:g} ms, nothing left",
            (
                ("between ranks", -13),
                ("kills", 5),
                ("named", 5),
                ("p50 ms", 7),
                ("max ms", 7),
                ("late", 4),
                ("wrong", 5),
            ),
            lambda: _rows(options.kills, options.seed),
        ),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=count, default=200, metavar="N", help="per row (200)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="of all that is random"
    )


TABLE = Table("kill", "who names a rank that is killed, how fast, and what is left of it", _parts, _configure)
