"""FasterMoE's model of guests, against the counting of every row; and the demand that stands in for routers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.overlap.step.demand import Visits, placed, wanted, zipf

SIZES = st.sampled_from([(2, 4), (2, 6), (3, 3), (4, 8)])


@st.composite
def counted(draw: st.DrawFn) -> np.ndarray:
    ranks, experts = draw(SIZES)
    rows = draw(st.lists(st.integers(0, 9), min_size=ranks * experts, max_size=ranks * experts))
    return np.array(rows, float).reshape(ranks, experts)


@given(counted(), st.randoms())
def test_experts_are_placed_so_that_the_busiest_rank_has_less_to_do(counts: np.ndarray, random) -> None:
    ranks, experts = counts.shape
    asked, local = counts.sum(axis=0), experts // ranks
    before = np.array(random.sample(range(experts), experts))
    after = placed(asked, ranks, before)
    assert sorted(after) == list(range(experts))

    def most(places: np.ndarray) -> float:
        return max(asked[places // local == rank].sum() for rank in range(ranks))

    assert (after == before).all() or most(after) <= 0.95 * most(before)
    stay = after // local == before // local
    assert (after[stay] == before[stay]).all()


def test_the_most_wanted_experts_part() -> None:
    assert placed([9, 8, 1, 1], 2, np.arange(4)).tolist() == [0, 3, 2, 1]


@given(counted(), st.floats(0, 10), st.floats(0, 10), st.integers(0, 20))
def test_loads_are_those_of_the_busiest_rank(counts: np.ndarray, row: float, byte: float, weight: int) -> None:
    visits = Visits(row, byte, 3, weight)
    ranks, experts = counts.shape
    local, order = experts // ranks, wanted(counts)
    found = []
    for number in range(experts + 1):
        guests = set(order[:number].tolist())
        computed, out, into = np.zeros(ranks), np.zeros(ranks), np.zeros(ranks)
        lent, borrowed = np.zeros(ranks), np.zeros(ranks)
        for rank in range(ranks):
            for expert in range(experts):
                rows, home = counts[rank, expert], expert // local
                computed[rank if expert in guests else home] += rows
                if home == rank or not rows:
                    continue
                if expert in guests:
                    lent[home] += weight
                    borrowed[rank] += weight
                else:
                    out[rank] += 3 * rows
                    into[home] += 3 * rows
        moved = max((out + lent).max(), (into + borrowed).max()) + max(out.max(), into.max())
        found.append(row * computed.max() + 2 * byte * moved)
    assert visits.seconds(counts) == pytest.approx(found)
    chosen = visits.guests(counts)
    assert found[len(chosen)] == pytest.approx(min(found))
    assert set(chosen.tolist()) == set(order[: len(chosen)].tolist())


@given(counted(), st.floats(0, 10), st.floats(0, 10), st.integers(0, 20))
def test_all_are_guests_or_none(counts: np.ndarray, row: float, byte: float, weight: int) -> None:
    visits = Visits(row, byte, 3, weight, together=True)
    none, *_, every = visits.seconds(counts)
    assert len(visits.guests(counts)) == (counts.shape[1] if every < none * (1 - 1e-9) else 0)


def test_guests_follow_demand() -> None:
    visits = Visits(1e-3, 1e-8, 512, 1 << 20)
    for hot in range(8):
        counts = np.full((4, 8), 10.0)
        counts[:, hot] = 500
        assert hot in visits.guests(counts)
    assert not visits.guests(np.full((4, 8), 100.0)).size


def test_zipf() -> None:
    assert zipf(4, 0.0).tolist() == [0.25] * 4
    shares = zipf(8, 1.0, first=3)
    assert shares.sum() == pytest.approx(1)
    assert shares[3] == pytest.approx(2 * shares[4])
    assert shares.argmax() == 3
