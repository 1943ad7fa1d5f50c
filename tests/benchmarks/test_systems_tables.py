"""Tables of named systems: what is planned is what the table says."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.benchmarks.synthesis.systems import fast, nimble, pccl
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
