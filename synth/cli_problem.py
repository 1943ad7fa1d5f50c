"""What is asked, on the command line: a topology, a collective, its root and its members."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from synth.arguments import rank, ranks
from topologies.cli import add_topology
from topologies.command import UserError

if TYPE_CHECKING:
    from synth.collective import Collective
    from topologies.topology import Topology


def add_problem(parser: argparse.ArgumentParser) -> None:
    """The arguments that say it."""
    from synth.collective import KINDS

    add_topology(parser)
    parser.add_argument("collective", metavar="COLLECTIVE", help=", ".join(KINDS))
    parser.add_argument("--root", type=rank, default=0, metavar="R", help="root of a rooted collective (default 0)")
    parser.add_argument("--members", type=ranks, metavar="R,R,..", help="topology ranks that take part (default all)")


def problem(options: argparse.Namespace, chunks: int | None = None) -> tuple[Topology, Collective]:
    """What they said. Raises UserError."""
    from synth.collective import Collective
    from synth.network import Network
    from topologies.parse import parse

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
