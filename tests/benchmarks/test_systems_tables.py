"""Tables of named systems: what is planned is what the table says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from syntony.benchmarks.synthesis.systems import fast, nimble, pccl, r2ccl, tori
from syntony.synth.engines.workers import seconds_at
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.parse import parse
from tests.synth.networks import replay


@pytest.mark.parametrize(("dst", "paths"), [(1, 3), (4, 4)])
def test_a_pair_uses_all_paths(dst: int, paths: int) -> None:
    """In a node directly and by two GPUs; between nodes by four NICs."""
    topology, demand = nimble.cluster(2), nimble.collective(nimble.pair(8, dst))
    schedule, _ = nimble.planned(topology, demand)
    gain = nimble.single_path(topology, demand) / seconds_at(schedule, nimble.SIZE)
    assert paths - 0.01 < gain < paths + 0.4  # in a node, a NIC carries something too
    replay(schedule)


def test_a_hot_rank_gets_data_by_all_nics_of_its_node() -> None:
    topology, demand = nimble.cluster(2), nimble.collective(nimble.hot(8, 0.9))
    schedule, _ = nimble.planned(topology, demand)
    assert schedule.bounds is not None
    bound = float(schedule.bounds.throughput.seconds_per_byte * nimble.SIZE)
    assert bound <= seconds_at(schedule, nimble.SIZE) < 1.05 * bound
    assert nimble.single_path(topology, demand) > 3 * bound


def test_demands() -> None:
    matrix = nimble.hot(8, 0.5)
    assert np.allclose(matrix.sum(axis=1), 1)
    assert np.allclose(matrix[1:, 0], 0.5)
    assert np.diag(fast.tokens(16)).sum() == 0


def test_groups_together_use_what_no_group_owns() -> None:
    """Two rows of a mesh, and two free ones between them that forward."""
    groups = (pccl.block(4, range(1), range(4)), pccl.block(4, range(3, 4), range(4)))
    topology = parse("mesh:4x4")
    view, collective = pccl.together(topology, groups)
    schedule = pccl.scheduled(view, collective)
    assert view.ranks == 8
    assert gap_of(schedule) == pytest.approx(0, abs=1e-6)
    of_group = float(4 * pccl.GRAIN * collective.unit)
    middle = 2 / 4e9  # seconds per byte: all bytes of two groups' left halves, over the four cables there
    assert float(seconds_per_byte(schedule)) / of_group == pytest.approx(middle, rel=0.001)
    replay(schedule)


@pytest.mark.parametrize("make", [tori.swing, tori.trivance])
@pytest.mark.parametrize("shape", [(8, 8), (16, 16), (8, 8, 8)])
def test_every_rank_hears_of_all(make: Callable[..., list[list[tori.Step]]], shape: Sequence[int]) -> None:
    """Whole messages bring every rank the data of all others; Swing's bring each of them once."""
    ranks = int(np.prod(shape))
    for steps in make(shape, whole=True):
        known = np.eye(ranks, dtype=np.int64)  # [holder, whose data]: how often
        for step in steps:
            places = np.stack(np.unravel_index(np.arange(ranks), shape))
            heard = known.copy()
            for hops in step.hops:
                goal = places.copy()
                goal[step.dimension] += np.where(places[step.dimension] % 2 == 0, hops[0], hops[1])
                goal[step.dimension] %= shape[step.dimension]
                to = np.ravel_multi_index(tuple(goal), shape)
                assert sorted(to.tolist()) == list(range(ranks))
                heard[to] += known
            known = heard
        assert (known == 1).all() if make is tori.swing else (known >= 1).all()


@pytest.mark.parametrize(
    ("make", "shape"),
    [(tori.swing, (8, 8)), (tori.swing, (8, 8, 8)), (tori.trivance, (9, 9)), (tori.trivance, (16, 16))],
)
def test_shrinking_messages_carry_the_least(make: Callable[..., list[list[tori.Step]]], shape: Sequence[int]) -> None:
    """Together 2 (n - 1) / n of a part, from every rank: as much as any all_reduce by equals."""
    ranks = int(np.prod(shape))
    for steps in make(shape, whole=False):
        assert sum(step.share * len(step.hops) for step in steps) == pytest.approx(2 * (ranks - 1) / ranks)


def test_a_message_takes_all_links_of_its_way_at_once() -> None:
    """Swing on a ring of 8, whole: two parts, at distances 1, 1 and 3, so that links carry 1, 1 and 3 halves."""
    topology = parse("torus:8,bandwidth=1GB/s")
    seconds = tori.seconds_of(tori.swing((8,), whole=True), topology, (8,), 1_000_000)
    assert seconds == pytest.approx(5 * 1e-6 + 5 * 0.5e-3)


def test_a_lost_card_costs_an_all_reduce_less_than_its_share() -> None:
    rows = list(r2ccl._rows((4,), ("all_reduce", "all_gather")))
    assert [row.missed for row in rows] == ["", ""]
    kept = [float(str(row.cells[3])) for row in rows]
    assert kept[0] > 0.98
    assert 0.88 < kept[1] < 0.91
