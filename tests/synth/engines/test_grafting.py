"""Trees grown by the local search: proven by the checker, near the bound, whatever the network."""

from __future__ import annotations

from fractions import Fraction

import pytest

from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker import check_schedule
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.forest.grafting import grown
from syntony.synth.engines.forest.search import GROWN, run
from syntony.synth.model.collective import Collective
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.parse import parse
from tests.sampled import one_in

KINDS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")
BROKEN = "torus:8x8x4,without=0-1,without=9-13,slowed=40-41@50%"


@pytest.mark.parametrize(("seed", "kind"), one_in(3, range(7), KINDS))
def test_grown_trees_are_proven(kind: str, seed: int) -> None:
    topology = random_network(seed)
    collective = Collective.make(
        kind, topology.ranks, root=topology.ranks - 1 if kind in ("broadcast", "reduce") else 0
    )
    least = bounds_of(topology, collective).throughput.seconds_per_byte
    verdict = check_schedule(grown(topology, collective, least, Budget(5)))
    assert verdict, f"seed {seed}: {verdict.fault}"


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce"])
def test_a_large_broken_torus(kind: str) -> None:
    topology = parse(BROKEN)
    assert topology.ranks >= GROWN
    schedule = run(topology, Collective.make(kind, topology.ranks), 1 << 30, Budget(2))
    verdict = check_schedule(schedule)
    assert verdict, verdict.fault
    gap = gap_of(schedule)
    assert gap is not None
    assert gap <= 0.03


@pytest.mark.parametrize("percent", [50, 75, 90])
def test_a_slow_rank_is_kept_for_its_own_data(percent: int) -> None:
    """It is a leaf of nearly all trees: what it carries for others would be missing at the end."""
    topology = parse(f"star:64,slowed=rank63-switch@{percent}%")
    collective = Collective.make("all_reduce", 64)
    least = bounds_of(topology, collective).throughput.seconds_per_byte
    schedule = grown(topology, collective, least, Budget(60))
    verdict = check_schedule(schedule)
    assert verdict, verdict.fault
    assert seconds_per_byte(schedule) <= least * Fraction(101, 100)
