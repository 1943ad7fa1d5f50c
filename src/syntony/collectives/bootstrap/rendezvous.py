"""Which rank this process is, when somebody else has started it; a verb's work on such ranks or on ranks of ours."""

from __future__ import annotations

import os
from collections.abc import Callable

from syntony.base.command import UserError
from syntony.collectives.bootstrap.launch import Exchange, Replacing, run_ranks
from syntony.collectives.bootstrap.slurm import slurm_step


def work_on_ranks(
    ranks: int | None,
    work: Callable[[Exchange], int],
    timeout: float,
    silence: float,
    replacing: Replacing | None = None,
) -> int:
    """The exit code of a command whose `work` is one rank's: of this process under a launcher, else of each of `ranks`
    (2) that are started here.

    `timeout`: seconds to reach the launcher's other ranks; `silence`, `replacing`: run_ranks'. Raises UserError, and
    RankError that names who failed.
    """
    exchange = exchange_of_this_rank(ranks, timeout)
    return work(exchange) if exchange is not None else run_ranks(ranks or 2, work, silence, replacing)


def exchange_of_this_rank(ranks: int | None, timeout: float) -> Exchange | None:
    """The way to the other ranks under torchrun, mpirun, srun or a launcher that sets RANK and WORLD_SIZE; None without
    one.

    Raises UserError when `ranks` (the option) contradicts the launcher, or when rank 0 cannot be reached in `timeout`
    seconds.
    """
    try:
        exchange = _exchange(timeout)
    except ConnectionError as error:
        raise UserError(str(error)) from None
    if exchange is not None and ranks is not None and ranks != exchange.size:
        raise UserError(f"--ranks {ranks}, but the launcher has started {exchange.size}; leave --ranks out")
    return exchange


def _exchange(timeout: float) -> Exchange | None:
    environment = slurm_step() | os.environ
    exchange: Exchange
    if any(name in environment for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")):
        from syntony.collectives.bootstrap.bootstraps import MpiBootstrap

        exchange = MpiBootstrap()
    elif "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    elif "TORCHELASTIC_RUN_ID" in environment:
        # torchrun listens on MASTER_PORT itself: its store is the meeting place.
        from torch.distributed.rendezvous import rendezvous

        from syntony.collectives.bootstrap.bootstraps import StoreBootstrap

        store, rank, size = next(rendezvous("env://"))
        exchange = StoreBootstrap(store, rank, size, timeout)
    else:
        from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap

        exchange = TcpBootstrap.from_environment(timeout)
    return exchange
