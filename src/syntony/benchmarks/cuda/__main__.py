"""python -m syntony.benchmarks.cuda one_gpu [--ranks 4] [--sizes 8K,1M,16M,256M] [--peers nccl]

Exit code 1 when a goal was missed or a rank failed, 2 when it could not be measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from syntony.base.arguments import size
from syntony.base.command import UserError
from syntony.benchmarks.cuda.gpu import executor
from syntony.benchmarks.cuda.one_gpu import part
from syntony.benchmarks.cuda.session import get_ready
from syntony.benchmarks.goals import Part
from syntony.benchmarks.tables import Table, run


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=4, metavar="N", help="how many ranks (4)")
    parser.add_argument("--sizes", default="8K,1M,16M,256M", metavar="S[,T...]", help="total bytes of a rank's buffer")
    parser.add_argument("--peers", choices=("nccl",), default=None, help="who competes")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    get_ready()
    cuda = executor()
    if cuda.device_count() == 0:
        raise UserError("it needs a CUDA GPU and its driver; there is none here")
    sizes = tuple(map(size, options.sizes.split(",")))
    if any(each < 16 * options.ranks for each in sizes):
        raise UserError(f"--sizes: {options.ranks} ranks need at least {16 * options.ranks} bytes")
    return (part(options.ranks, sizes, options.peers is not None, cuda),)


TABLES = (Table("one_gpu", "several ranks on one GPU against its memory, and NCCL", _parts, _configure),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table that was asked for."""
    return run("syntony.benchmarks.cuda", "Programs on GPUs.", TABLES, arguments)


if __name__ == "__main__":
    sys.exit(main())
