"""The guilty are named, and nobody else."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.topologies.probed.health import examine
from tests.topologies.probed.networks import measured, two_level


@given(st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_ten_per_cent_of_noise_is_health(ranks: int, seed: int) -> None:
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    measurements, root = measured(ranks, lambda a, b: (1e-6, 1e9 * float(random.uniform(0.9, 1))))
    assert examine(measurements, root) == ()


@pytest.mark.parametrize("guilty", list(permutations(range(4), 2)))
def test_one_slow_direction_of_one_pair(guilty: tuple[int, int]) -> None:
    measurements, root = measured(4, lambda a, b: (1e-6, 1e9 if (a, b) != guilty else 0.6e9), shared=lambda _: 1e9)
    (finding,) = examine(measurements, root)
    assert finding.ranks == guilty
    a, b = guilty
    assert finding.sentence == f"rank {a} (host{a}) -> rank {b} (host{b}): 600 MB/s, its peers have 1 GB/s"


def test_a_late_pair() -> None:
    measurements, root = measured(4, lambda a, b: (5e-3 if {a, b} == {0, 3} else 1e-4, 1e9))
    assert [finding.ranks for finding in examine(measurements, root)] == [(0, 3), (3, 0)]
    assert "latency 5 ms, its peers' is 100 us" in examine(measurements, root)[0].sentence


def test_a_slow_network_card_is_named_once_each_way_and_its_wires_are_not() -> None:
    measurements, root = measured(
        5,
        lambda a, b: (1e-6, 0.3e9 if 2 in (a, b) else 1e9),
        shared=lambda ranks: 0.3e9 if ranks == (2,) else 1e9,
    )
    findings = examine(measurements, root)
    assert [finding.ranks for finding in findings] == [(2,), (2,)]
    assert "sends" in findings[0].sentence
    assert "receives" in findings[1].sentence


def test_what_is_slow_between_hosts_is_not_compared_with_what_is_inside() -> None:
    measurements, root = measured(12, two_level)
    assert examine(measurements, root) == ()
    slow, root = measured(12, lambda a, b: (1e-6, 1e9) if (a, b) == (0, 1) else two_level(a, b))
    assert [finding.ranks for finding in examine(slow, root)] == [(0, 1)]


def test_tolerance() -> None:
    measurements, root = measured(4, lambda a, b: (1e-6, 1e9 if (a, b) != (0, 1) else 0.6e9), shared=lambda _: 1e9)
    assert examine(measurements, root, tolerance=0.5) == ()
