"""The command `preflight`: which hosts to leave out of a job, before it starts.

each rank alone     its memory keeps what is written to it; how fast it copies and computes
every pair          latency and bandwidth of its wires, one pair at a time (collectives/probe.py)
all together        every collective's result, and its time
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syntony.base.answer import tell
from syntony.base.arguments import size
from syntony.base.command import Command
from syntony.collectives.examination import add_examination, examine_ranks

if TYPE_CHECKING:
    from syntony.collectives.bootstrap.launch import Exchange
    from syntony.collectives.communicator import Communicator
    from syntony.topologies.probed.health import Finding


def _configure(parser: argparse.ArgumentParser) -> None:
    add_examination(parser)
    parser.add_argument(
        "--memory", type=size, default="256M", metavar="SIZE", help="memory that each rank tests (default 256M)"
    )


def _preflight(arguments: argparse.Namespace) -> int:
    return examine_ranks(arguments, _examine)


def _examine(exchange: Exchange, hosts: Sequence[str], arguments: argparse.Namespace) -> int:
    """Returns 1 if a host should be left out. Ranks lost or late during the checks are findings too."""
    from syntony._core import CommunicationError
    from syntony.collectives.communicator import Communicator
    from syntony.collectives.preflight.verdict import to_leave_out
    from syntony.topologies.probed.health import Finding

    speaker = 0
    try:
        with Communicator.create(exchange, arguments.timeout, "preflight") as group:
            findings, told, lines = _checked(group, hosts, arguments)
    except CommunicationError as error:
        findings = [Finding((rank,), str(error)) for rank in error.ranks]
        if not findings:
            raise
        told, lines = {}, []
        speaker = next((rank for rank in range(exchange.size) if rank not in error.ranks), 0)
    out = to_leave_out(findings, hosts)
    if exchange.rank == speaker:
        told |= {
            "findings": [{"ranks": list(finding.ranks), "sentence": finding.sentence} for finding in findings],
            "leave_out": list(out),
            "healthy": not findings,
        }
        lines += ["", *dict.fromkeys(finding.sentence for finding in findings)]
        lines.append(f"leave out: {', '.join(out)}" if out else "nothing found: no host to leave out")
        tell(arguments, told, lines)
    return int(bool(findings))


def _checked(
    group: Communicator, hosts: Sequence[str], arguments: argparse.Namespace
) -> tuple[list[Finding], dict[str, Any], list[str]]:
    """The findings, and all numbers: for programs, and for people. Collective."""
    import numpy as np

    from syntony.collectives.preflight.alone import Alone, examined
    from syntony.collectives.preflight.report import as_json, table
    from syntony.collectives.preflight.together import tried
    from syntony.collectives.preflight.verdict import of_ranks, of_results
    from syntony.collectives.probe import Effort, probe
    from syntony.topologies.probed.health import examine

    group.barrier()
    mine, rows = examined(arguments.memory), np.empty((group.size, 3))
    group.all_gather(np.array([mine.wrong, mine.copying, mine.computing], np.float64), rows)
    alone = [Alone(int(wrong), float(copying), float(computing)) for wrong, copying, computing in rows]
    wires, root = probe(group, hosts, Effort(largest=arguments.largest), arguments.tolerance)
    together = tried(group)
    findings = [
        *of_ranks(alone, hosts, arguments.tolerance),
        *examine(wires, root, arguments.tolerance),
        *of_results(together, hosts),
    ]
    return findings, as_json(hosts, alone, wires, together), table(hosts, alone, wires, together)


COMMANDS: tuple[Command, ...] = (
    Command(
        name=("preflight",),
        summary="check memory, wires and collectives before a job starts, and name the hosts to leave out",
        example="syntony preflight --ranks 2 --memory 64M",
        configure=_configure,
        run=_preflight,
    ),
)
