"""Table `wire`: two emulated hosts whose processors are the limit, not their wire, as root.

    raw TCP    what must travel, both ways at once, over one connection from and to ordinary memory
    ours       the Communicator's own choice;  gloo  through torch's process group;  MPI  with --peers, over TCP
    in place   a rank's own block is where it belongs; else a gather copies that, too, which nothing on a wire does

Raw TCP keeps few bytes unsent, as we do (measured/wire_rank.py): otherwise it runs at one of two speeds, and the lower
is not a goal. With MSG_ZEROCOPY it is slower here, as what crosses a veth pair is copied after all: 8 MiB both ways 9.2
ms, not 7.1.

One frame of 9,000 bytes fits --packet's default, so what the processors do is mostly the kernel's work for packets, two
hops each, and nobody is much faster than raw TCP. With --packet 64K --rate 200gbit, packets as network cards make and
merge them, copies decide, and so does what the two ends do with the data.

By default, no all_gather can be 1.2 times as fast as the best MPI's. For 16 MiB, 937 packets travel each way, and take
both cores 5.6 ms, 6 us each, whatever the buffers, sizes of writes, connections or cores; MPI takes 6.3 ms, the copy of
the own block included.

All take turns in one run. Goals: in place, 0.85 of raw TCP's speed at 16 MiB and more; 1.5 times gloo's and 1.2 times
the best MPI's there; 8 bytes within 1.3 times what raw TCP takes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from syntony.base.arguments import wire_rate
from syntony.base.quantity import bit_rate, size
from syntony.benchmarks.bench.options import peers
from syntony.benchmarks.mpi.lab_hosts import open_hosts
from syntony.benchmarks.mpi.libraries import LIBRARIES
from syntony.benchmarks.runtime.measured import in_lab, sweep
from syntony.benchmarks.runtime.measured.wire_rank import GLOO, IN_PLACE, OURS, RAW, Crossing, Work
from syntony.benchmarks.tables import Part, Row, Table
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import at_rate, spec_of
from syntony.lab.wires.shaping import SEGMENT
from syntony.topologies.parse import parse

RATE = "40gbit"
SIZES = "8,64K,1M,16M,64M"
LARGE, OF_RAW, OF_GLOO, OF_MPI, SMALL, LATENCY = 16 << 20, 0.85, 1.5, 1.2, 8, 1 / 1.3


def missed(crossing: Crossing) -> str:
    """Which goal it misses."""
    if crossing.wrong:
        return f"{crossing.wrong} wrong elements"
    raw, gloo = crossing.seconds[RAW] / crossing.seconds[IN_PLACE], crossing.seconds[GLOO] / crossing.seconds[OURS]
    if crossing.size <= SMALL and raw < LATENCY:
        return "more than 1.3 times raw TCP"
    if crossing.size < LARGE:
        return ""
    mpi = best_mpi(crossing)
    short = {
        f"less than {OF_RAW} of raw TCP": raw < OF_RAW,
        f"less than {OF_GLOO} x gloo": gloo < OF_GLOO,
        f"less than {OF_MPI} x MPI": mpi is not None and mpi / crossing.seconds[OURS] < OF_MPI,
    }
    return next((sentence for sentence, missed in short.items() if missed), "")


def best_mpi(crossing: Crossing) -> float | None:
    """Seconds of the fastest MPI that took part."""
    return min((seconds for label, seconds in crossing.seconds.items() if label in LIBRARIES), default=None)


def _rows(work: Work, rate: str, packet: int) -> Iterator[Row]:
    for crossing in measure(work, rate, packet):
        ours, here, gloo, raw = (crossing.seconds[label] for label in (OURS, IN_PLACE, GLOO, RAW))
        mpi = best_mpi(crossing)
        times = ("" if seconds is None else f"{1e6 * seconds:.1f}" for seconds in (ours, here, gloo, mpi, raw))
        ratios = (
            f"{raw / ours:.2f}",
            f"{raw / here:.2f}",
            f"{gloo / ours:.2f}",
            "" if mpi is None else f"{mpi / ours:.2f}",
        )
        yield Row((crossing.collective, crossing.size, *times, *ratios), missed(crossing))


def measure(work: Work, rate: str, packet: int) -> list[Crossing]:
    """Raises LabError where there can be no lab, and where a rank fails."""
    spec = replace(at_rate(spec_of(parse("star:2")), bit_rate(rate)), packet=packet)
    with tempfile.TemporaryDirectory(prefix="syntony-wire-") as folder, Lab(spec) as lab:
        hosts = open_hosts(lab, Path(folder)) if work.peers else None
        answer = in_lab.answer_of_rank_0(lab, "wire_rank", asdict(replace(work, hosts=hosts)))
    return [Crossing(**crossing) for crossing in answer]


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    choice = sweep.chosen(options)
    columns = (("collective", -14), ("bytes", 9), ("ours us", 10), ("in place us", 11), ("gloo us", 10), ("MPI us", 10),
               ("raw TCP us", 10), ("raw/ours", 8), ("raw/in place", 12), ("gloo/ours", 9),
               ("MPI/ours", 8))  # fmt: skip
    work = Work(choice.collectives, choice.sizes, choice.rounds, peers(options.peers) if options.peers else ())

    def rows() -> Iterator[Row]:
        return _rows(work, options.rate, options.packet)

    return (
        Part(
            f"2 hosts of 1 rank at {options.rate}, packets of {options.packet}, medians of the slower rank",
            columns,
            rows,
        ),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(ranks="2")
    collectives = "all_reduce,all_gather"
    parser.add_argument("--collectives", default=collectives, metavar="C[,..]", help=f"which ({collectives})")
    parser.add_argument("--sizes", default=SIZES, metavar="SIZE[,..]", help=f"bytes ({SIZES})")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="turns of each contender (4)")
    parser.add_argument("--peers", metavar="P[,..]", help="impi, mpich, openmpi; mpi: all installed; the best is shown")
    parser.add_argument("--rate", type=wire_rate, default=RATE, metavar="R", help=f"of the wire ({RATE})")
    parser.add_argument(
        "--packet", type=size, default=SEGMENT, metavar="SIZE", help=f"bytes that pass at once ({SEGMENT}; cards: 64K)"
    )


TABLE = Table("wire", "two hosts on a fast wire against raw TCP and gloo (as root)", _parts, _configure)
