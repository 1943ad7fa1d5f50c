"""An unmodified DDP script through two levels of switches that add, beside the ring, in the lab (root is needed):

    python -m syntony.benchmarks lab training [--leaves 2] [--hosts 4] [--rate 50mbit] [--losses 0%,1%]

Hosts below leaves below one spine, each a network namespace of this machine; every wire loses that share of packets,
each way. Both contenders train in the same lab, one after the other; SYNTONY_ALGO alone tells them apart. A step is the
slowest rank's backward with its all_reduces, the median of several; gradients must be, bit by bit, the sums of the
leaves added up, on all ranks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import numpy as np

from syntony.base.quantity import bit_rate, share
from syntony.benchmarks.in_network.rank import Floats, numbers
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import LabError, at_rate, lossy, spec_of
from syntony.topologies.parse import parse

LAYERS, ELEMENTS, STEPS = 5, 256 * 1024, 4
"""5 MiB of gradients, in the two buckets that DDP makes of them; the first step, which forms connections, is not
counted."""
GOAL = 1.4
"""Times the ring's step, at a loss of 1 %."""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--leaves", type=int, default=2, metavar="N", help="switches below the spine (default 2)")
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="below each leaf, of one rank (default 4)")
    parser.add_argument("--rate", default="50mbit", metavar="R", help="of every wire (default 50mbit)")
    parser.add_argument("--losses", default="0%,1%", metavar="P,..", help="shares of packets lost (default 0%%,1%%)")


def by_leaves(leaves: int, hosts: int, elements: int, layer: int) -> Floats:
    """The gradient that DDP takes, the mean, as leaves and spine add it: each leaf's ranks in their order, then the
    leaves' sums in theirs."""
    size = leaves * hosts
    sums = [
        reduce(np.add, [numbers(leaf * hosts + host, elements, layer) / np.float32(size) for host in range(hosts)])
        for leaf in range(leaves)
    ]
    total: Floats = reduce(np.add, sums)
    return total


def trained(lab: Lab, algorithm: str, leaves: int, hosts: int) -> tuple[float, bool]:
    """Seconds of a step with all_reduce by `algorithm`, and whether all ranks hold the bits of `by_leaves`.

    Raises LabError when a rank fails.
    """
    size = leaves * hosts
    with tempfile.TemporaryDirectory() as folder:
        sizes = map(str, (LAYERS, ELEMENTS, STEPS))
        command = [sys.executable, "-m", "syntony.benchmarks.in_network.script", folder, *sizes]
        if lab.run(command, environment={**os.environ, "SYNTONY_ALGO": f"all_reduce:{algorithm}"}) != 0:
            raise LabError("a rank of the benchmark failed; its output is above")
        found = [np.load(Path(folder) / f"{rank}.npz") for rank in range(size)]
        steps = np.max([each["seconds"] for each in found], axis=0)
        expected = np.stack([by_leaves(leaves, hosts, ELEMENTS, layer) for layer in range(LAYERS)])
        equal = all(np.array_equal(each["gradients"], expected) for each in found)
        close = all(np.allclose(each["gradients"], expected, rtol=1e-4, atol=1e-5) for each in found)
    if not close:
        raise LabError(f"the gradients of {algorithm} are wrong")
    return float(np.median(steps[1:])), equal


def row(loss: str, algorithm: str, seconds: float, ring: float, equal: bool) -> Row:
    """One contender's row: `ring` is the ring's step in the same lab."""
    aggregated = algorithm != "ring"
    missed = ""
    if aggregated and not equal:
        missed = "not the bits of the leaves' sums"
    elif aggregated and share(loss) == share("1%") and ring < GOAL * seconds:
        missed = f"less than {GOAL} times the ring"
    bits = ("leaf by leaf" if equal else "others") if aggregated else "the ring's"
    return Row((loss, algorithm, f"{seconds:.3f}", f"{ring / seconds:.2f}", bits), missed)


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    leaves, hosts = options.leaves, options.hosts
    spec = at_rate(
        spec_of(parse(f"clos:leaves={leaves},hosts={hosts},spines=1,aggregator=sharp")), bit_rate(options.rate)
    )
    for loss in options.losses.split(","):
        with Lab(lossy(spec, share(loss)) if share(loss) else spec) as lab:
            ring = trained(lab, "ring", leaves, hosts)[0]
            yield row(loss, "ring", ring, ring, equal=False)
            seconds, equal = trained(lab, "in_network", leaves, hosts)
            yield row(loss, "in_network", seconds, ring, equal)


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    ranks = options.leaves * options.hosts
    title = (
        f"DDP on {ranks} hosts below {options.leaves} leaves and a spine at {options.rate}, {LAYERS} MiB of gradients"
    )
    yield Part(title, COLUMNS, lambda: _rows(options))


COLUMNS = (("loss", -5), ("all_reduce", -11), ("s/step", 7), ("x ring", 7), ("bits", -12))
TABLE = Table("training", "a DDP script through two levels of switches that add, against the ring", _parts, _configure)
