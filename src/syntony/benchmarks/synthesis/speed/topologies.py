"""How fast topologies are: every family at about ten thousand nodes, each in a process of its own.

    python -m syntony.benchmarks synthesis topologies [FAMILY ...]

Seconds are of processor time, the median of three; `build` is from the name to the checked Topology, `show` what `topo
show` works out, `write` and `read` the text of a topology file. `peak` is the most memory that the process ever held
while building, the interpreter and NumPy (about 30 MB) included. Timings are those of this machine, as busy as it was.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from syntony.benchmarks.tables import Part, Row, Table
from syntony.topologies import TopologyError, file_format, parse
from syntony.topologies.drawing.show import summarize
from syntony.topologies.families import FAMILIES

INSTANCES: dict[str, tuple[str, ...]] = {
    "ring": ("ring:10000",),
    "full": ("full:1024",),  # the largest there is: a million links, a hundred million at ten thousand ranks
    "star": ("star:9999",),
    "torus": ("torus:100x100", "torus:22x22x22"),
    "mesh": ("mesh:100x100",),
    "hypercube": ("hypercube:13",),
    "dgx1": ("dgx1",),
    "dgx-a100": ("dgx-a100:588",),
    "dgx-h100": ("dgx-h100:588",),
    "rail": ("rail:boxes=588,gpus=8,rails=8",),
    "clos": ("clos:leaves=256,hosts=38,spines=16,oversubscription=4", "clos:16,32,8,pods=18,cores=64"),
    "fat-tree": ("fat-tree:32",),
    "llama3-24k": ("llama3-24k:pods=2,racks=144", "llama3-24k"),
    "superpod": ("superpod:units=16,spines=128,cores=64,planes=2",),
    "superpod-a100": ("superpod-a100:units=28,spines=320,cores=112,planes=8",),
    "megascale": ("megascale:pods=2", "megascale"),
    "rail-only": ("rail-only:domains=576",),
    "hpn": ("hpn:segments=5", "hpn"),
    "dragonfly": ("dragonfly:a=12,p=6,h=6", "dragonfly:a=16,p=8,h=8"),
    "dragonfly-plus": ("dragonfly-plus:leaves=16,spines=16,hosts=16,uplinks=16,groups=35",),
    "bigraph": ("bigraph:switches=70,hosts=70",),
    "pcie-tree": ("pcie-tree:boxes=550",),
    "dgx1-p100": ("dgx1-p100",),
    "dgx2": ("dgx2:boxes=277",),
    "nvl72": ("nvl72:racks=62",),
    "nvl256": ("nvl256",),
    "frontier": ("frontier:groups=8,switches=16",),
    "ascend-910b": ("ascend-910b:588",),
    "graphcore-pod": ("graphcore-pod:2500",),
    "wafer": ("wafer:100x100",),
    "cxl-pool": ("cxl-pool:9998",),
    "mi250": ("mi250:boxes=416",),
    "mi300x": ("mi300x:boxes=625",),
    "gaudi": ("gaudi:boxes=625",),
    "gaudi2": ("gaudi2:boxes=625",),
    "tpuv2": ("tpuv2:16x16",),  # the largest pod of each generation
    "tpuv3": ("tpuv3:32x32",),
    "tpuv4": ("tpuv4:16x16x16",),
    "jellyfish": ("jellyfish:770",),
    "hammingmesh": ("hammingmesh:50x50",),
    "bcube": ("bcube:20,3",),
    "dcell": ("dcell:9,2",),
    "sip-ring": ("sip-ring:10000,dp10000",),
    "sip-ocs": ("sip-ocs:10000,dp2500xtp4",),
    "topoopt": ("topoopt:10000,dp2500xep4",),
}
"""By family, instances of about ten thousand nodes, or the largest; and where the published one is larger, that too."""


@dataclass(frozen=True)
class Measured:
    """One instance: counts, seconds, and bytes."""

    name: str
    ranks: int
    nodes: int
    links: int
    build: float
    show: float
    write: float
    read: float
    peak: int


def measure(name: str) -> Measured:
    """Measures in this process, which should have built nothing before."""
    build = statistics.median(_seconds(lambda: parse(name)) for _ in range(3))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    topology = parse(name)
    text = file_format.to_json(topology)
    return Measured(
        name,
        topology.ranks,
        len(topology.nodes),
        len(topology.links),
        build,
        _seconds(lambda: summarize(topology)),
        _seconds(lambda: file_format.to_json(topology)),
        _seconds(lambda: file_format.from_json(text)),
        peak,
    )


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    chosen = options.family or list(FAMILIES)
    unknown = [family for family in chosen if family not in FAMILIES]
    if unknown:
        raise TopologyError(f"unknown family {unknown[0]!r}; known are {', '.join(FAMILIES)}")
    names = [name for family in chosen for name in INSTANCES[family]]
    return (Part("Processor seconds, one process per instance", COLUMNS, partial(_rows, names)),)


def _rows(names: Sequence[str]) -> Iterator[Row]:
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as pool:
        for one in pool.map(measure, names):
            seconds = [f"{each:.2f}" for each in (one.build, one.show, one.write, one.read)]
            yield Row((seconds[0], f"{one.peak / 1e6:.0f}", *seconds[1:], one.ranks, one.nodes, one.links, one.name))


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", nargs="*", metavar="FAMILY", help="only these families (default: all)")


COLUMNS = (
    ("build s", 7), ("peak MB", 7), ("show s", 7), ("write s", 7), ("read s", 7), ("ranks", 7), ("nodes", 7),
    ("links", 7), ("topology", -1),
)  # fmt: skip
TABLE = Table("topologies", "how fast topologies are, at about ten thousand nodes", _parts, _configure)
