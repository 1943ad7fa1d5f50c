"""Options for a problem (topology, collective, root and members) and for the limits of a search."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from syntony.base.arguments import rank, ranks, seconds, size
from syntony.topologies.cli import add_topology

if TYPE_CHECKING:
    from syntony.synth.model.collective import Collective
    from syntony.topologies.topology import Topology


def add_problem(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the problem."""
    from syntony.synth.model.collective import KINDS

    add_topology(parser)
    parser.add_argument("collective", metavar="COLLECTIVE", help=", ".join(KINDS))
    parser.add_argument("--root", type=rank, default=0, metavar="R", help="root of a rooted collective (default 0)")
    parser.add_argument(
        "--members",
        type=ranks,
        metavar="R,R-R,..",
        help="topology ranks that take part, such as 0-7,16 (default all); other ranks do not relay data",
    )


def problem(options: argparse.Namespace, chunks: int | None = None) -> tuple[Topology, Collective]:
    """The problem that the options describe. Raises UserError."""
    from syntony.synth.model.problem import problem_of

    return problem_of(options.topology, options.collective, chunks, options.root, options.members)


def add_limits(parser: argparse.ArgumentParser, timeout: float) -> None:
    """Adds the options for the time and memory of a search."""
    add_timeout(parser, timeout)
    parser.add_argument("--memory", type=size, metavar="BYTES", help="memory limit of the search (default: none)")


def add_timeout(parser: argparse.ArgumentParser, timeout: float | None) -> None:
    """Adds --timeout; None: no limit by default."""
    default = "none" if timeout is None else f"{timeout:g}"
    text = f"wall-clock limit in seconds; the best result until then is used (default {default})"
    parser.add_argument("--timeout", type=seconds, default=timeout, metavar="S", help=text)
