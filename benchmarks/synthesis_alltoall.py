"""All_to_all by flows: seconds, the exact bound and the gap to it: `python -m benchmarks.synthesis_alltoall`.

Every row is solved from scratch, bounds included. Up to 32 ranks the whole schedule goes through the checker; above,
what every link carries is counted exactly from representatives ("by load"), and the test of small networks of the same
family says that counting so is right. `goal` is what this project has set itself.

The last column is the nearest number that a peer has published, on its own machine: PCCL (arXiv 2606.07019), 11.68 min
for 512 ranks by its abstract (of which network it does not say) and 1.83 min for an 8x8 mesh at second hand.
"""

from __future__ import annotations

import argparse
import time

from synth.checker.schedule import check_schedule
from synth.collective import Collective
from synth.engines.engine import Budget
from synth.engines.flow import run
from topologies.parse import parse

ROWS = (
    ("dgx1", "-", "-"),
    ("dgx-a100:2", "-", "-"),
    ("hypercube:5", "-", "-"),
    ("torus:4x4", "-", "-"),
    ("mesh:8x8", "-", "PCCL 109.8 s"),
    ("torus:8x8", "3 s", "-"),
    ("rail:boxes=32,gpus=8,rails=8", "-", "-"),
    ("torus:8x8x8", "10 s", "PCCL 700.8 s"),
)
CHECKED_RANKS = 32


def row(name: str, goal: str, peer: str) -> str:
    """One line of the table."""
    topology = parse(name)
    begin = time.perf_counter()
    schedule = run(topology, Collective.make("all_to_all", topology.ranks), 1 << 30, Budget())
    seconds = time.perf_counter() - begin
    proven = "by load"
    if topology.ranks <= CHECKED_RANKS:
        verdict = check_schedule(schedule)
        proven = "checked" if verdict.valid else f"REFUSED: {verdict.fault}"
    gap = schedule.gap()
    assert gap is not None
    assert schedule.bounds is not None
    return (
        f"{name:30} {topology.ranks:5} {seconds:8.2f} {goal:>5} {schedule.bounds.throughput.algbw / 1e9:9.3f} "
        f"{float(gap):8.2%} {len(schedule.transfers):8} {proven:8} {peer}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.synthesis_alltoall", description=__doc__)
    parser.parse_args()
    print(
        f"{'topology':30} {'ranks':>5} {'seconds':>8} {'goal':>5} {'GB/s':>9} {'gap':>8} {'listed':>8} {'proof':8} peer"
    )
    for name, goal, peer in ROWS:
        print(row(name, goal, peer), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
