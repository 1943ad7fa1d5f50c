"""The command `topo probe`. It needs running ranks, so it is here and not with the other `topo` commands."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.command import Command
from syntony.base.outputs import add_output, wrote
from syntony.collectives.examination import add_examination, examine_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syntony.collectives.bootstrap.launch import Exchange


def _configure(parser: argparse.ArgumentParser) -> None:
    add_examination(parser)
    parser.add_argument(
        "--health", action="store_true", help="only report slow ranks and pairs; exit code 1 if there are any"
    )
    add_output(
        parser,
        "-o",
        "--output",
        metavar="F.json",
        endings=(".json",),
        what="a topology file is JSON",
        help="write the measured topology",
    )


def _probe(arguments: argparse.Namespace) -> int:
    return examine_ranks(arguments, _examine)


def _examine(exchange: Exchange, hosts: Sequence[str], arguments: argparse.Namespace) -> int:
    from syntony._core import CommunicationError
    from syntony.collectives.bootstrap.launch import RankError
    from syntony.collectives.communicator import Communicator
    from syntony.collectives.probe import Effort, probe
    from syntony.topologies.file_format import write
    from syntony.topologies.probed.health import examine
    from syntony.topologies.probed.network import explain
    from syntony.topologies.probed.report import as_json, report

    try:
        with Communicator.create(exchange, timeout=arguments.timeout) as group:
            measurements, root = probe(group, hosts, Effort(largest=arguments.largest), arguments.tolerance)
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
        summary="measure the wires between ranks, report slow ones, and write the topology",
        example="syntony topo probe --ranks 4 -o here.json",
        configure=_configure,
        run=_probe,
    ),
)
