"""What is asked, on the command line: a topology, a collective, its root and members; and what the search may take."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from syntony.base.arguments import rank, ranks, seconds, size
from syntony.base.command import UserError
from syntony.topologies.cli import add_topology

if TYPE_CHECKING:
    from syntony.synth.model.collective import Collective
    from syntony.topologies.topology import Topology


def add_problem(parser: argparse.ArgumentParser) -> None:
    """The arguments that say it."""
    from syntony.synth.model.collective import KINDS

    add_topology(parser)
    parser.add_argument("collective", metavar="COLLECTIVE", help=", ".join(KINDS))
    parser.add_argument("--root", type=rank, default=0, metavar="R", help="root of a rooted collective (default 0)")
    parser.add_argument(
        "--members",
        type=ranks,
        metavar="R,R-R,..",
        help="topology ranks that take part, such as 0-7,16 (default all); others do not relay",
    )


def problem(options: argparse.Namespace, chunks: int | None = None) -> tuple[Topology, Collective]:
    """What they said. Raises UserError."""
    from syntony.synth.model.collective import Collective
    from syntony.synth.model.network import Network
    from syntony.topologies.parse import parse

    topology = parse(options.topology)
    members = options.members if options.members is not None else tuple(range(topology.ranks))
    per_block = chunks or 1
    if chunks is not None and options.collective in ("all_to_all", "all_reduce") and chunks % len(members):
        why = "one block per rank" if options.collective == "all_to_all" else "each rank sums its share of them"
        raise UserError(f"--chunks {chunks}: {options.collective} needs a multiple of {len(members)} ({why})")
    if options.collective == "all_to_all":
        per_block = max(1, per_block // len(members))
    collective = Collective.make(options.collective, chunks_per_block=per_block, root=options.root, members=members)
    return topology, Network(topology, collective).collective


def add_limits(parser: argparse.ArgumentParser, timeout: float) -> None:
    """What a search may take."""
    told = f"seconds to search (default {timeout:g})"
    parser.add_argument("--timeout", type=seconds, default=timeout, metavar="S", help=told)
    parser.add_argument(
        "--memory", type=size, metavar="BYTES", help="end the search when it takes more (default: never)"
    )


def keep_within_memory(options: argparse.Namespace) -> None:
    """From here on, where --memory was given, a process that ends beyond it does the work (memory_limit.py)."""
    if options.memory is not None:
        from syntony.base.memory_limit import limit_memory

        limit_memory(options.memory, f"{options.collective} on {options.topology}")
