"""What ranks on this machine return, for tables: `returned_by(4, work)`."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from typing import TypeVar

from syntony.collectives.bootstrap.launch import Exchange, run_ranks

Value = TypeVar("Value")
_SILENCE = 120.0  # seconds without a meeting; a rank that dies or fails is named at once


def returned_by(
    ranks: int, work: Callable[[Exchange], Value], hosts: str = "", silence: float = _SILENCE
) -> list[Value]:
    """Runs `work` on forked ranks and returns what each returned, by rank. Raises RankError.

    `hosts`: a letter per rank, the host that it takes itself to be on; those of different hosts talk over TCP.
    """
    with tempfile.TemporaryFile() as file:

        def run(exchange: Exchange) -> int:
            if hosts:
                os.environ["SYNTONY_HOST"] = hosts[exchange.rank]
            values = exchange.all_gather("returned", pickle.dumps(work(exchange)))
            if exchange.rank == 0:
                file.write(pickle.dumps([pickle.loads(value) for value in values]))
                file.flush()
            return 0

        run_ranks(ranks, run, silence)
        file.seek(0)
        values: list[Value] = pickle.load(file)
        return values
