"""The verb `topo probe`: it needs ranks at work, so it lives here and not with the other `topo` verbs."""

from __future__ import annotations

import argparse
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.arguments import count, seconds, size
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_output, wrote
from syntony.topologies.probed.health import TOLERANCE

if TYPE_CHECKING:
    from syntony.collectives.bootstrap.launch import Exchange


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=count, metavar="N", help="start N ranks here (default 2; not under a launcher)")
    parser.add_argument("--health", action="store_true", help="only judge: exit code 1 when a rank or pair is slow")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        metavar="X",
        help="slow is below X times the peers' median bandwidth (default %(default)s)",
    )
    add_output(
        parser,
        "-o",
        "--output",
        metavar="F.json",
        endings=(".json",),
        what="a topology file is JSON",
        help="write the topology that was found",
    )
    parser.add_argument("--largest", type=size, default="4M", metavar="SIZE", help="largest message (default 4M)")
    parser.add_argument("--timeout", type=seconds, default=60.0, metavar="S", help="of any one message (default 60)")


def _probe(arguments: argparse.Namespace) -> int:
    from syntony.collectives.bootstrap.rendezvous import work_on_ranks

    if not 0 < arguments.tolerance < 1:
        raise UserError(f"--tolerance {arguments.tolerance:g}: it is a part of the peers' median, between 0 and 1")
    work = partial(_run, arguments=arguments)
    return work_on_ranks(arguments.ranks, work, arguments.timeout, 10 * arguments.timeout)


def _run(exchange: Exchange, arguments: argparse.Namespace) -> int:
    from syntony._core import CommunicationError
    from syntony.collectives.bootstrap.launch import RankError
    from syntony.collectives.communicator import Communicator
    from syntony.collectives.probe import Effort, probe
    from syntony.topologies.file_format import write
    from syntony.topologies.probed.health import examine
    from syntony.topologies.probed.network import explain
    from syntony.topologies.probed.report import as_json, report

    effort = Effort(largest=arguments.largest)
    if exchange.size < 2:
        raise UserError("there is one rank only: wires are between two ranks or more")
    host = os.environ.get("SYNTONY_HOST") or socket.gethostname()
    hosts = [name.decode() for name in exchange.all_gather("hosts", host.encode())]
    try:
        with Communicator.create(exchange, timeout=arguments.timeout) as group:
            measurements, root = probe(group, hosts, effort)
    except CommunicationError as error:
        raise RankError(str(error)) from error
    findings = examine(measurements, root, arguments.tolerance)
    if exchange.rank == 0:
        topology = explain(measurements, root)
        if arguments.output is not None:
            write(topology, arguments.output)
        lines = [report(measurements, root, findings, topology)]
        lines += [] if arguments.output is None else [wrote(arguments.output)]
        file = None if arguments.output is None else str(arguments.output)
        tell(arguments, as_json(measurements, root, findings, topology) | {"file": file}, lines)
    return int(arguments.health and bool(findings))


COMMANDS: tuple[Command, ...] = (
    Command(
        name=("topo", "probe"),
        summary="measure the wires between the ranks of a group, name what is slow, write the topology",
        example="syntony topo probe --ranks 4 -o here.json",
        configure=_configure,
        run=_probe,
    ),
)
