"""Table `hire`: many jobs share switches that add; who gets which hosts and which slots, simulated.

16 racks of 16 hosts at 100 Gbit/s; a rack's links to the spines have half of its hosts' rate. Every second leaf can
add, for two jobs at a time, and two of four spines, for four. 200 jobs of 2 to 24 ranks come at random, so often that
hosts would be used to the given part. A job is served by switches if each of its racks' leaves has a slot for it and,
if it has several, a spine, too; otherwise its gradients go round a ring.

    served     of jobs, by switches        rate     of summing while a job runs, GB/s, mean of jobs
    spines     bytes over a rack's links to the spines by byte of gradients, mean of jobs (1: by switches; ring: 2)
    hours      from a job's arrival to its end, mean

Peer, as published (Blöcher et al., HIRE, ASPLOS 2021; only the abstract could be read): 8 to 30 % more requests served
than by schedulers that know nothing of switches, on a trace of a cluster of 4,000 machines. Ours is neither their trace
nor their simulator. The goal is more jobs served than by `packed`; its jobs take fewer hosts in other racks, since it
prefers a full rack to one whose leaf can add.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

import numpy as np

from syntony.benchmarks.tables import Part, Row, Table
from syntony.synth.placement.adding_switches import POLICIES, Cluster, Request, Served, over_spines, serve

CLUSTER = Cluster(leaves=(2, 0) * 8, spines=(4, 4, 0, 0), hosts=16, host=12.5e9, up=16 * 12.5e9 / 2)
LOADS = (0.6, 0.9, 1.2)
PUBLISHED = {"hire": "1.08-1.30"}


def requests(seed: int, load: float, count: int = 200, cluster: Cluster = CLUSTER) -> list[Request]:
    """Jobs that would keep `load` of all hosts busy if each summed by a ring, alone."""
    rng = np.random.default_rng(seed)
    found, now = list[Request](), 0.0
    for _ in range(count):
        ranks = int(rng.choice([2, 4, 8, 16, 24], p=[0.25, 0.25, 0.25, 0.15, 0.1]))
        size, compute = float(rng.choice([100e6, 400e6, 1e9])), float(rng.uniform(0.05, 0.3))
        iterations = int(rng.integers(200, 2000))
        found.append(Request(now, ranks, size, compute, iterations))
        alone = iterations * (compute + 2 * size / cluster.host)
        now += float(rng.exponential(alone * ranks / (cluster.hosts * len(cluster.leaves) * load)))
    return found


def _rows(seeds: int) -> Iterator[Row]:
    import scipy.optimize  # noqa: F401  its import is not what is measured

    for load in LOADS:
        runs = [requests(seed, load) for seed in range(seeds)]
        found = {policy: [serve(jobs, CLUSTER, policy) for jobs in runs] for policy in POLICIES}
        part = {
            policy: _mean([[one.place.added for one in each] for each in served]) for policy, served in found.items()
        }
        for policy, served in found.items():
            rate = _mean([list(map(_rate, jobs, each)) for jobs, each in zip(runs, served, strict=True)])
            took = _mean([[one.end - job.arrival for job, one in zip(jobs, each, strict=True)]
                          for jobs, each in zip(runs, served, strict=True)])  # fmt: skip
            more = part[policy] / part["packed"]
            cells = (
                f"{load:.0%}", policy, f"{part[policy]:.0%}", f"{more:.2f}", PUBLISHED.get(policy, ""),
                f"{rate / 1e9:.2f}", f"{_mean([[over_spines(each)] for each in served]):.2f}", f"{took / 3600:.3f}",
            )  # fmt: skip
            yield Row(cells, "no more jobs than packed" if policy == "hire" and more <= 1 else "")


def _rate(job: Request, served: Served) -> float:
    return job.bytes * job.iterations / (served.end - served.begin)


def _mean(each: list[list[float]]) -> float:
    return float(np.mean([np.mean(one) for one in each]))


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=4, metavar="N", help="sets of jobs, whose means are printed (4)")


def _parts(options: argparse.Namespace) -> Iterator[Part]:
    columns = (
        ("load", 5), ("policy", -7), ("served", 6), ("x packed", 8), ("HIRE", -9), ("rate", 6), ("spines", 6),
        ("hours", 6),
    )  # fmt: skip
    title = f"200 jobs on 256 hosts, means over seeds 0 to {options.seeds - 1}; HIRE, as published (its baselines)"
    yield Part(title, columns, partial(_rows, options.seeds))


TABLE = Table("hire", "many jobs that share switches that add", _parts, _configure)
