"""Trains a small model, kills ranks on the way; prints JSON per case: name, the weights' sha256, what was said."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import time
from pathlib import Path

import torch  # before the forks

from syntony.collectives.bootstrap.launch import Exchange, Replacing, run_ranks
from syntony.overlap.step.op import Op
from syntony.trainer.config import Config, load
from syntony.trainer.elastic.company import Company
from syntony.trainer.elastic.copies import Copies
from syntony.trainer.elastic.door import own_door
from syntony.trainer.run.loop import train
from tests.trainer.small_model import SMALL

TOML = f"""{SMALL}
[run]
steps = 6
every = 1
[elastic]
copies = 1
"""


def dying(step: int, ops: int) -> None:
    """This process kills itself in a step, before its op of that number."""
    begin, between = Copies.begin, Copies._between
    done = 0

    def counted(self: Copies, op: Op) -> None:
        nonlocal done
        if self._step == step:
            if done == ops:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1
        between(self, op)

    def started(self: Copies, number: int) -> None:
        self._rank.interpreter.between = self._between
        begin(self, number)

    Copies._between, Copies.begin = counted, started  # type: ignore[method-assign]


def patient() -> None:
    """After a loss, the rank with the door waits for one that joins, however long that one takes to start."""
    knocked = Company._knocked

    def waited(self: Company) -> bool:
        end = time.monotonic() + 20
        while self._door is not None and self._group.size < self.given.world and time.monotonic() < end:
            if knocked(self):
                return True
            time.sleep(0.01)
        return knocked(self)

    Company._knocked = waited  # type: ignore[method-assign]


def case(config: Config, kills: list[list[int]], restarts: int, into: Path) -> None:
    def work(exchange: Exchange | None, door: str = "") -> int:
        for rank, step, ops in kills if exchange is not None else ():
            if rank == exchange.rank:
                dying(step, ops)
        if restarts:
            patient()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = train(config, exchange, None, door)
        if "sha256" in said.getvalue().splitlines()[-1] if said.getvalue() else False:
            into.write_text(said.getvalue())
        return code

    if config.world == 1:
        work(None)  # here: it loads what all others need
        return
    run_ranks(config.world, work, 60.0, Replacing(restarts, lambda _: work(None, config.elastic.door)))


def main(text: str, folder: Path, cases: str) -> None:
    """`cases`: JSON, [[name, settings, kills, restarts], ..]; a kill: [rank, step, ops of that step]."""
    toml, said = folder / "small.toml", folder / "said"
    toml.write_text(TOML.format(text=text))
    torch.set_num_threads(1)
    for name, settings, kills, restarts in json.loads(cases):
        door = [f"elastic.door={own_door()}"] if restarts else []
        case(load(toml, [*settings, *door]), kills, restarts, said)
        lines = said.read_text().splitlines()
        print(json.dumps([name, lines[-1].split()[-1], lines]), flush=True)
