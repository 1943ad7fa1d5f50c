"""The rank of this process under an external launcher, and running a command's work on those or on our own ranks."""

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
    """Runs `work`, which is one rank's, and returns the exit code: under a launcher in this process, otherwise in each
    of `ranks` (2) processes started here.

    `timeout`: seconds to reach the launcher's other ranks; `silence`, `replacing`: as in run_ranks. Raises UserError,
    and RankError that names the failed rank.
    """
    exchange = exchange_of_this_rank(ranks, timeout)
    return work(exchange) if exchange is not None else run_ranks(ranks or 2, work, silence, replacing)


def exchange_of_this_rank(ranks: int | None, timeout: float) -> Exchange | None:
    """The connection to the other ranks under torchrun, mpirun, srun or a launcher that sets RANK and WORLD_SIZE; None
    without one.

    Raises UserError if `ranks` (the option) contradicts the launcher, or if rank 0 cannot be reached within `timeout`
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
        # torchrun itself listens on MASTER_PORT, so ranks meet through its store.
        from torch.distributed.rendezvous import rendezvous

        from syntony.collectives.bootstrap.bootstraps import StoreBootstrap

        store, rank, size = next(rendezvous("env://"))
        exchange = StoreBootstrap(store, rank, size, timeout)
    else:
        from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap

        exchange = TcpBootstrap.from_environment(timeout)
    return exchange
