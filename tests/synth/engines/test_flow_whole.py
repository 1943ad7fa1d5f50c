"""Whole paths: proven by the checker, near the optimum that the exact program finds, with bounds that are true."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from syntony.synth.bounds.arcs import Arcs
from syntony.synth.bounds.prices import proven_by
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker import check_schedule
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.flow.search import run
from syntony.synth.engines.flow.whole import whole_paths
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies import parse


@pytest.mark.parametrize(
    "name",
    ["torus:3x3,without=0-1", "dgx1,without=0->1", "mesh:3x4", "rail:boxes=2,gpus=4,rails=2,without=nic0.0", "star:5"],
)
def test_whole_paths_are_nearly_as_good_as_divided_ones(name: str) -> None:
    topology = parse(name)
    collective = Collective.make("all_to_all", topology.ranks)
    bounds = bounds_of(topology, collective)
    schedule = whole_paths(Network(topology, collective), bounds, "flow", 5.0)
    verdict = check_schedule(schedule)
    assert verdict, verdict.fault
    exact = run(topology, collective, 1 << 20, Budget())
    assert seconds_per_byte(exact) <= seconds_per_byte(schedule) <= seconds_per_byte(exact) * Fraction(102, 100)


def test_uneven_blocks_are_cut_by_their_size() -> None:
    topology = parse("torus:3x3,without=0-1")
    sizes = np.random.default_rng(7).integers(1, 1000, 81)
    collective = Collective.make("all_to_all", 9, block_sizes=sizes.tolist())
    schedule = whole_paths(Network(topology, collective), bounds_of(topology, collective), "flow", 5.0)
    verdict = check_schedule(schedule)
    assert verdict, verdict.fault
    total = np.bincount(schedule.collective.chunks.block, schedule.collective.chunks.weight)
    assert (total * sizes[0] == sizes * total[0]).all()
    gap = gap_of(schedule)
    assert gap is not None
    assert gap <= Fraction(2, 100)


def test_any_prices_prove_a_true_bound() -> None:
    random = np.random.default_rng(3)
    for name in ("torus:3x3,without=0-1", "mesh:2x4", "dgx1", "star:4"):
        topology = parse(name)
        collective = Collective.make("all_to_all", topology.ranks)
        network = Network(topology, collective)
        best = bounds_of(topology, collective).throughput.seconds_per_byte
        for _ in range(5):
            prices = proven_by(network, Arcs.of(network), random.random(len(topology.links)))
            assert prices is not None
            assert 0 < prices.share / prices.bandwidth <= best


@pytest.mark.soak
def test_a_torus_of_512_without_a_wire_is_within_two_percent() -> None:
    topology = parse("torus:8x8x8,without=0-1")
    schedule = run(topology, Collective.make("all_to_all", 512), 1 << 30, Budget())
    gap = gap_of(schedule)
    assert gap is not None
    assert gap <= Fraction(2, 100)
