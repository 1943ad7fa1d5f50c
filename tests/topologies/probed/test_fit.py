"""Lines through noisy seconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.topologies.probed.fit import fit

SIZES = [8, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22]


@given(st.floats(1e-7, 1e-2), st.floats(1e6, 1e11))
def test_exact_seconds_give_the_exact_line(latency: float, bandwidth: float) -> None:
    line = fit({size: [latency + size / bandwidth] for size in SIZES})
    assert line.bandwidth == pytest.approx(bandwidth, rel=1e-4)
    assert line.seconds(0) == pytest.approx(latency, rel=1e-4, abs=1e-6 * SIZES[-1] / bandwidth)
    assert line.seconds(1 << 22) == pytest.approx(latency + (1 << 22) / bandwidth, rel=1e-4)


@given(st.integers(0, 2**32 - 1))
def test_noise_that_only_adds_moves_it_little(seed: int) -> None:
    """One repetition in three is late by up to 20 times, and one size is wild throughout."""
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    latency, bandwidth = 50e-6, 25e6
    times = {}
    for size in SIZES:
        true = latency + size / bandwidth
        late = random.random(6) < 1 / 3
        times[size] = list(true * np.where(late, random.uniform(1, 20, 6), random.uniform(1, 1.01, 6)))
        times[size][0] = true * 1.01  # of six, one at least is honest
    wild = int(random.choice([1 << 14, 1 << 16]))
    times[wild] = [second * 10 for second in times[wild]]
    assert fit(times).bandwidth == pytest.approx(bandwidth, rel=0.05)


def test_seconds_that_do_not_grow_fall_back_to_the_largest_message() -> None:
    assert fit({8: [1e-3], 1 << 20: [1e-3]}).bandwidth == pytest.approx((1 << 20) / 1e-3)


def test_one_size_is_no_line() -> None:
    with pytest.raises(ValueError, match="two sizes"):
        fit({8: [1.0]})
