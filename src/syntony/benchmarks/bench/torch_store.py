"""torch's key-value store among ranks that meet through an Exchange, as required by torch process groups."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.collectives.bootstrap.launch import Exchange

if TYPE_CHECKING:
    import torch.distributed as dist


def open_store(exchange: Exchange, name: str, timeout: float) -> dist.Store:
    """A store that rank 0 serves on a free port of its machine, found at MASTER_ADDR or else under its host's name.

    Collective; `name` is used once. `timeout` in seconds.
    """
    from torch.distributed import TCPStore

    limit = timedelta(seconds=timeout)
    # Network namespaces share the host's name, but not its addresses and ports.
    here = f"{socket.gethostname()}/{Path('/proc/self/ns/net').stat().st_ino}"
    master = os.environ.get("MASTER_ADDR", socket.gethostname())
    own = TCPStore("127.0.0.1", 0, exchange.size, True, limit, wait_for_workers=False) if exchange.rank == 0 else None
    blob = f"{here} {master} {own.port if own is not None else 0}".encode()
    there, host, port = exchange.all_gather(f"store {name}", blob)[0].decode().split()
    address = "127.0.0.1" if there == here else host  # a machine may not be able to resolve its own name
    return own or TCPStore(address, int(port), exchange.size, False, limit, wait_for_workers=False)
