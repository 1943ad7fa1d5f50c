"""How long exact bounds take, and what they say: `python -m syntony.benchmarks.bounds [TOPOLOGY ..]`.

Every row is one collective on one network, with the network's declared symmetry and with the declaration thrown away.
Seconds are of this process (not of the wall), least of `--repeat` runs; building the network is told apart. `limit` is
what this project has set itself: 1,024 ranks within 1 s with a hint and 5 s without, 4,096 within 10 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace

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


def row(topology: Topology, kind: str, hint: bool, repeat: int) -> str:
    """One line of the table."""
    collective = Collective.make(kind, topology.ranks)
    seconds, bounds = least_seconds(repeat, lambda: bounds_of(topology, collective))
    throughput = bounds.throughput
    words = describe(Network(topology, collective), throughput.witness) if throughput.witness else "nothing must move"
    exact = str(throughput.seconds_per_byte * 10**9)
    return (
        f"{topology.name:32} {topology.ranks:5} {kind:14} {'yes' if hint else 'no':4} {seconds:8.3f} "
        f"{limit(topology.ranks, hint):>5} {bounds.latency.steps:5} {throughput.algbw / 1e9:9.3f} {exact:>14}  {words}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m syntony.benchmarks.bounds", description=__doc__)
    parser.add_argument("topologies", nargs="*", default=DEFAULT, metavar="TOPOLOGY", help="networks, by name")
    parser.add_argument("--collectives", default=",".join(KINDS), metavar="K,K,..", help="which ones (default all)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="runs per row, the least counts (default 1)")
    options = parser.parse_args()
    for kind in KINDS:  # what is imported on the way is not to be measured
        bounds_of(parse("ring:4"), Collective.make(kind, 4))
    print(
        f"{'topology':32} {'ranks':>5} {'collective':14} {'hint':4} {'seconds':>8} {'limit':>5} {'steps':>5} "
        f"{'GB/s':>9} {'ns/byte':>14}  witness"
    )
    for name in options.topologies:
        begin = time.process_time()
        topology = parse(name)
        print(f"# {topology.name}: built in {time.process_time() - begin:.2f} s", flush=True)
        for hint in (True, False):
            network = topology if hint else replace(topology, generators=())
            for kind in options.collectives.split(","):
                print(row(network, kind, hint, options.repeat), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
