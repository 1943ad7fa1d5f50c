"""Clusters of known networks."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syntony.topologies.probed.locality import Cluster
from tests.topologies.probed.networks import measured, two_level


def ranks_of(root: Cluster) -> list[tuple[int, ...]]:
    return [cluster.ranks for cluster in root.walk() if cluster.parts]


def test_a_uniform_network_is_one_cluster() -> None:
    _, root = measured(6, lambda a, b: (1e-6, 1e9 * (1 + 0.01 * ((a + b) % 7))))
    assert ranks_of(root) == [(0, 1, 2, 3, 4, 5)]
    assert [part.ranks for part in root.parts] == [(rank,) for rank in range(6)]


def test_hosts_are_clusters() -> None:
    _, root = measured(12, two_level)
    assert ranks_of(root) == [tuple(range(12)), (0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]
    assert root.around(1, 2).ranks == (0, 1, 2, 3)
    assert root.around(1, 4) is root


def test_three_levels() -> None:
    def wire(a: int, b: int) -> tuple[float, float]:
        return (1e-6, 10e9) if a // 2 == b // 2 else (10e-6, 1e9) if a // 4 == b // 4 else (50e-6, 1e8)

    _, root = measured(8, wire)
    assert ranks_of(root) == [tuple(range(8)), (0, 1, 2, 3), (0, 1), (2, 3), (4, 5, 6, 7), (4, 5), (6, 7)]


def test_a_slow_pair_splits_nothing() -> None:
    _, root = measured(4, lambda a, b: (1e-6, 1e6 if {a, b} == {1, 2} else 1e9))
    assert ranks_of(root) == [(0, 1, 2, 3)]


@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_any_measurements_make_a_tree(ranks: int, seed: int) -> None:
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    _, root = measured(ranks, lambda a, b: (float(random.uniform(1e-6, 1e-3)), float(10 ** random.uniform(6, 10))))
    assert root.ranks == tuple(range(ranks))
    for cluster in root.walk():
        assert len(cluster.parts) != 1
        assert not cluster.parts or sorted(rank for part in cluster.parts for rank in part.ranks) == list(cluster.ranks)
