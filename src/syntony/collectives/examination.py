"""What the commands `topo probe` and `preflight` share: ranks that meet in order to be examined."""

from __future__ import annotations

import argparse
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

from syntony.base.arguments import count, seconds, size
from syntony.base.command import UserError
from syntony.topologies.probed.health import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from syntony.collectives.bootstrap.launch import Exchange


def add_examination(parser: argparse.ArgumentParser) -> None:
    """Adds --ranks, --largest, --tolerance and --timeout."""
    parser.add_argument("--ranks", type=count, metavar="N", help="start N ranks here (default 2; not under a launcher)")
    parser.add_argument("--largest", type=size, default="4M", metavar="SIZE", help="largest message (default 4M)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="X",
        help="slow is below X times the peers' median (default %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="timeout of each message in seconds (default 60)"
    )


def examine_ranks(
    arguments: argparse.Namespace, examine: Callable[[Exchange, list[str], argparse.Namespace], int]
) -> int:
    """Runs `examine`, which is given the ranks' hosts, on every rank; returns the exit code."""
    from syntony.collectives.bootstrap.rendezvous import work_on_ranks

    if not 0 < arguments.tolerance < 1:
        raise UserError(f"--tolerance {arguments.tolerance:g}: it is a part of the peers' median, between 0 and 1")
    work = partial(_on_a_rank, arguments=arguments, examine=examine)
    return work_on_ranks(arguments.ranks, work, arguments.timeout, 10 * arguments.timeout)


def _on_a_rank(
    exchange: Exchange,
    arguments: argparse.Namespace,
    examine: Callable[[Exchange, list[str], argparse.Namespace], int],
) -> int:
    if exchange.size < 2:
        raise UserError("there is one rank only: wires are between two ranks or more")
    host = os.environ.get("SYNTONY_HOST") or socket.gethostname()
    hosts = [name.decode() for name in exchange.all_gather("hosts", host.encode())]
    return examine(exchange, hosts, arguments)
