"""Table `mpi`: our Communicator against the MPI libraries that are installed, ordinary memory on both sides.

Intel MPI, MPICH and Open MPI through mpi4py's buffer methods (benchmarks/mpi); the ratio is to the best of them.
"""

from __future__ import annotations

import argparse

from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Contender, Syntony
from syntony.benchmarks.bench.options import peers
from syntony.benchmarks.bench.session import create_communicator
from syntony.benchmarks.mpi.libraries import LIBRARIES
from syntony.benchmarks.mpi.remote_peer import RemotePeer
from syntony.benchmarks.runtime.measured import sweep
from syntony.benchmarks.runtime.measured.duel import Rules, part
from syntony.benchmarks.tables import Part, Table
from syntony.collectives.bootstrap.launch import Exchange

MEAN, LEAST_LARGE, LEAST_SMALL, LARGE = 1.5, 1.0, 1 / 1.2, 64 << 10
"""Goals: the geometric mean; faster than the best at LARGE bytes and more; within 1.2 times the best at 8 bytes."""


def least(size: int) -> float:
    """What the ratio to the best MPI must be."""
    return LEAST_LARGE if size >= LARGE else LEAST_SMALL if size <= 8 else 0.0


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    choice = sweep.chosen(options)
    names = tuple(name for name in peers(options.peers) if name in LIBRARIES)
    if not names:
        raise UserError(f"--peers {options.peers}: this table has {', '.join(LIBRARIES)}")

    def make(exchange: Exchange) -> list[Contender | RemotePeer]:
        ours = Syntony(create_communicator(exchange, sweep.SILENCE))
        return [ours, *(RemotePeer(exchange, name, sweep.SILENCE) for name in names)]

    title = (
        "Medians of the Communicator, of MPI through mpi4py and of oneCCL; x ours: the best of their times over ours; "
        "float sums"
    )
    return (part(title, "auto", names, make, choice, Rules(least, MEAN), torch=False),)


def _configure(parser: argparse.ArgumentParser) -> None:
    sweep.configure(parser)
    parser.add_argument(
        "--peers", default="mpi", metavar="P[,..]", help="impi, mpich, openmpi, oneccl; mpi: all installed"
    )


TABLE = Table("mpi", "our Communicator against Intel MPI, MPICH and Open MPI", _parts, _configure)
