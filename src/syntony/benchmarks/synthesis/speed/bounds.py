"""How long exact bounds take, and what they say: `python -m syntony.benchmarks synthesis bounds [TOPOLOGY ..]`.

Every row is one collective on one network, with the network's declared symmetry and with the declaration thrown away.
Seconds are of this process (not of the wall), least of `--repeat` runs; building the network is told apart. `limit` is
what this project has set itself: 1,024 ranks within 1 s with a hint and 5 s without, 4,096 within 10 s.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from syntony.benchmarks.tables import Part, Row, Table
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.bounds.wording import describe
from syntony.synth.model.bound import Bounds
from syntony.synth.model.collective import KINDS, Collective
from syntony.synth.model.network import Network
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

DEFAULT = (
    "dgx1",
    "torus:8x8",
    "rail:boxes=128,gpus=8,rails=8",
    "dgx-h100:128",
    "torus:32x32",
    "rail:boxes=512,gpus=8,rails=8",
    "torus:16x16x16",
)
LIMITS = ((1024, 1.0, 5.0), (4096, 10.0, 10.0))
"""Up to so many ranks: seconds with the hint, and without."""
COLUMNS = (
    ("collective", -14), ("hint", -4), ("seconds", 8), ("limit", 5), ("steps", 5), ("GB/s", 9), ("ns/byte", 14),
    ("witness", -1),
)  # fmt: skip


def least_seconds(repeat: int, work: Callable[[], Bounds]) -> tuple[float, Bounds]:
    """The least process time of `repeat` runs, and what the last one found."""
    best = float("inf")
    for _ in range(repeat):
        begin = time.process_time()
        found = work()
        best = min(best, time.process_time() - begin)
    return best, found


def limit(ranks: int, hint: bool) -> str:
    """The seconds that a row may take."""
    for most, with_hint, without in LIMITS:
        if ranks <= most:
            return f"{with_hint if hint else without:g}"
    return "-"


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    for kind in KINDS:  # what is imported on the way is not to be measured
        bounds_of(parse("ring:4"), Collective.make(kind, 4))
    for name in options.topologies:
        begin = time.process_time()
        topology = parse(name)
        built = time.process_time() - begin
        rows = partial(_rows, topology, options.collectives.split(","), options.repeat)
        yield Part(f"{topology.name}: {topology.ranks} ranks, built in {built:.2f} s", COLUMNS, rows)


def _rows(topology: Topology, kinds: Sequence[str], repeat: int) -> Iterator[Row]:
    for hint in (True, False):
        network = topology if hint else replace(topology, generators=())
        for kind in kinds:
            yield _row(network, kind, hint, repeat)


def _row(topology: Topology, kind: str, hint: bool, repeat: int) -> Row:
    collective = Collective.make(kind, topology.ranks)
    seconds, bounds = least_seconds(repeat, lambda: bounds_of(topology, collective))
    throughput = bounds.throughput
    words = describe(Network(topology, collective), throughput.witness) if throughput.witness else "nothing must move"
    may = limit(topology.ranks, hint)
    algbw, exact = f"{throughput.algbw / 1e9:.3f}", throughput.seconds_per_byte * 10**9
    return Row((kind, "yes" if hint else "no", f"{seconds:.3f}", may, bounds.latency.steps, algbw, exact, words))


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topologies", nargs="*", default=DEFAULT, metavar="TOPOLOGY", help="networks, by name")
    parser.add_argument("--collectives", default=",".join(KINDS), metavar="K,K,..", help="which ones (default all)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs per row, the least counts (default 1)")


TABLE = Table("bounds", "how long exact bounds take, and what they say", _parts, _configure)
