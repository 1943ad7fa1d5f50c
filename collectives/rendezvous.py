"""Which rank this process is, when somebody else has started it."""

from __future__ import annotations

import os

from collectives.launch import Exchange
from topologies.command import UserError


def exchange_of_this_rank(ranks: int | None, timeout: float) -> Exchange | None:
    """The way to the other ranks under torchrun, mpirun or a launcher that sets RANK and WORLD_SIZE; None without one.

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
    environment = os.environ
    exchange: Exchange
    if any(name in environment for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")):
        from collectives import MpiBootstrap

        exchange = MpiBootstrap()
    elif "RANK" not in environment or "WORLD_SIZE" not in environment:
        return None
    elif "TORCHELASTIC_RUN_ID" in environment:
        # torchrun listens on MASTER_PORT itself: its store is the meeting place.
        from torch.distributed.rendezvous import rendezvous

        from collectives import StoreBootstrap

        store, rank, size = next(rendezvous("env://"))
        exchange = StoreBootstrap(store, rank, size, timeout)
    else:
        from collectives import TcpBootstrap

        exchange = TcpBootstrap.from_environment(timeout)
    return exchange
