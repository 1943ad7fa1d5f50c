"""Flows: hand-made cases, closed forms, and the core against plain Python on random flow graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.simulation.flows import Flows, PathPolicy, Paths, simulate_flows
from tests.sampled import examples
from tests.synth.engines import flow_reference

EXACT: dict[str, Any] = {"rel": 1e-9, "abs": 1e-12}


def test_one_flow_takes_alpha_plus_beta() -> None:
    found = simulate_flows(Flows.make(Paths.of([[[0, 1]]]), [4.0, 2.0], 6.0, latency=0.25))
    assert (found.start[0], found.left[0], found.arrival[0]) == (0.0, 3.0, 3.25)
    assert found.seconds == 3.25


def test_parking_lot() -> None:
    """The classical lot: a long flow over three links, a short one on each; then the last link is half as fast."""
    long, short = [0, 1, 2], [[[0]], [[1]], [[2]]]
    found = simulate_flows(Flows.make(Paths.of([[long], *short]), [1.0] * 3, 1.0))
    assert found.left.tolist() == [2.0] * 4
    # Link 2 carries 1/2: the long flow and its neighbour get 1/4 each, the others 3/4.
    found = simulate_flows(
        Flows.make(Paths.of([[long], *short]), [1.0, 1.0, 0.5], [1.0, 0.75, 0.75, 1.0]), timeline=True
    )
    assert found.left.tolist() == pytest.approx([4.0, 1.0, 1.0, 4.0], **EXACT)
    rates = {(time, link): rate for time, link, rate in zip(found.times, found.link, found.rate, strict=True)}
    assert rates == {
        (0.0, 0): 1.0, (0.0, 1): 1.0, (0.0, 2): 0.5, (1.0, 0): 0.25, (1.0, 1): 0.25,
        (4.0, 0): 0.0, (4.0, 1): 0.0, (4.0, 2): 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("senders", [1, 7, 100])
def test_incast(senders: int) -> None:
    paths = Paths.of([[[sender, senders]] for sender in range(senders)])
    found = simulate_flows(Flows.make(paths, [10.0] * (senders + 1), 3.0, latency=0.5))
    assert found.arrival == pytest.approx(np.full(senders, senders * 3.0 / 10 + 0.5), **EXACT)


def test_staggered_flows_share_what_is_left() -> None:
    """Flow 1 comes at 1, when flow 0 has 3 of its 4 bytes left; they share until flow 1 is done."""
    found = simulate_flows(Flows.make(Paths.of([[[0]], [[0]]]), [1.0], [4.0, 1.0], release=[0.0, 1.0]))
    assert found.start.tolist() == [0.0, 1.0]
    assert found.left.tolist() == pytest.approx([5.0, 3.0], **EXACT)


def test_spray_loads_every_path_by_its_part() -> None:
    """Two equal paths double the rate; of two unequal ones the slower limits both parts; a twin takes two parts."""
    both = [[0], [1]]
    assert simulate_flows(Flows.make(Paths.of([both]), [1.0, 1.0], 4.0, policy=PathPolicy.spray)).left[0] == 2.0
    assert simulate_flows(Flows.make(Paths.of([both]), [1.0, 3.0], 4.0, policy=PathPolicy.spray)).left[0] == 2.0
    uneven = Paths.of([[[0], [1], [1]]])
    assert simulate_flows(Flows.make(uneven, [1.0, 2.0], 3.0, policy=PathPolicy.spray)).left[0] == 1.0
    # A plain flow beside the part on link 1: half of the sprayed flow's rate and all of its own fill the link.
    found = simulate_flows(Flows.make(Paths.of([both, [[1]]]), [1.0, 1.0], [4.0, 9.0], policy=[1, 0]))
    assert found.left[0] == pytest.approx(4.0 / (2 / 3), **EXACT)
    assert found.path.tolist() == [-1, 2]


def test_least_loaded_goes_round() -> None:
    """Four equal flows behind a shared link take the four spines one by one; the fifth the first again."""
    choices = [[0, 1 + spine] for spine in range(4)]
    flows = Flows.make(Paths.of([choices]), [8.0, *[1.0] * 4], [2.0] * 5, set=0, policy=PathPolicy.least_loaded)
    assert simulate_flows(flows).path.tolist() == [0, 1, 2, 3, 0]


def test_waits_for_arrivals_and_for_lanes() -> None:
    """0 and 1 share a lane; 2 passes 0 on; 3 needs both ends; 4 carries nothing and takes its latency."""
    flows = Flows.make(
        Paths.of([[[0]], [[0]], [[1]], [[1]], [[]]]),
        [1.0, 1.0],
        [1.0, 1.0, 1.0, 1.0, 5.0],
        latency=[0.5, 0.5, 0.5, 0.5, 2.0],
        after=[[], [], [0], [1, 2], [3]],
        after_left=[[], [0], [], [2], []],
    )
    found = simulate_flows(flows)
    assert found.start.tolist() == pytest.approx([0.0, 1.0, 1.5, 3.0, 4.5], **EXACT)
    assert found.left[4] == found.start[4]
    assert found.seconds == pytest.approx(6.5, **EXACT)


def test_a_circle_never_starts() -> None:
    found = simulate_flows(Flows.make(Paths.of([[[0]], [[0]]]), [1.0], [1.0, 1.0], after=[[1], [0]]))
    assert np.isinf(found.start).all()


@pytest.mark.parametrize("weight", [0.25, 3.0])
def test_weights_stand_for_many_flows(weight: float) -> None:
    """A crossing of weight w fills its link at 1/w of the capacity."""
    paths = Paths(np.asarray([0, 1]), np.asarray([0, 1]), np.asarray([0]), np.asarray([weight]))
    assert simulate_flows(Flows.make(paths, [1.0], 1.0)).left[0] == pytest.approx(weight, **EXACT)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"set": 7}, r"set\[0\] is 7; it must be in 0..1-1"),
        ({"policy": 3}, r"policy\[0\] is 3; policies are 0 fixed, 1 spray, 2 least_loaded"),
        ({"latency": -1.0}, r"latency\[0\] is -1.0+; it must be finite and not negative"),
        ({"after": [[4]]}, r"after\[0\] is 4; it must be in 0..1-1"),
        ({"after": (np.asarray([0, 2]), np.asarray([0]))}, r"after_offset\[1\] must be the length of what it cuts, 1"),
        ({"capacity": [0.0]}, r"capacity\[0\] is 0.0+; it must be finite and positive"),
        ({"capacity": []}, r"link\[0\] is 0; it must be in 0..0-1"),
        ({"release": np.nan}, r"release\[0\] is nan"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change: dict[str, Any], sentence: str) -> None:
    arguments = {"paths": Paths.of([[[0]]]), "capacity": [1.0], "bytes": 1.0} | change
    with pytest.raises(ValueError, match=sentence):
        simulate_flows(Flows.make(**arguments))


@examples(200)
@given(
    routes=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True), min_size=1, max_size=12),
    capacity=st.lists(st.integers(1, 9), min_size=6, max_size=6),
)
def test_rates_are_max_min_fair(routes: list[list[int]], capacity: list[int]) -> None:
    """The certificate: every flow crosses a full link on which no flow is faster. The reference's rates have it; the
    core's loads are theirs, and so (the first to end shows it) is its fastest flow."""
    rates = flow_reference.fair_rates([dict.fromkeys(route, 1.0) for route in routes], [float(c) for c in capacity])
    load = [sum(rate for rate, route in zip(rates, routes, strict=True) if link in route) for link in range(6)]
    for rate, route in zip(rates, routes, strict=True):
        assert any(
            load[link] >= capacity[link] * (1 - 1e-9)
            and rate >= max(other for other, path in zip(rates, routes, strict=True) if link in path) * (1 - 1e-9)
            for link in route
        )
    found = simulate_flows(Flows.make(Paths.of([[route] for route in routes]), capacity, 1.0), timeline=True)
    first = found.times == 0
    assert dict(zip(found.link[first].tolist(), found.rate[first].tolist(), strict=True)) == pytest.approx(
        {link: rate for link, rate in enumerate(load) if rate}, **EXACT
    )
    assert found.left.min() == pytest.approx(1 / max(rates), **EXACT)


LINKS = 5


@st.composite
def flow_graphs(draw: st.DrawFn) -> Flows:
    """Anything goes: several paths, any policy, waits on earlier flows, empty paths and empty flows, weights."""
    count = draw(st.integers(1, 9))
    path = st.lists(st.integers(0, LINKS - 1), max_size=3, unique=True)
    sets = draw(st.lists(st.lists(path, min_size=1, max_size=3), min_size=1, max_size=4))
    paths = Paths.of(sets)
    weights = draw(st.lists(st.sampled_from([0.5, 1.0, 1.0, 3.0]), min_size=len(paths.link), max_size=len(paths.link)))
    earlier = [
        st.lists(st.integers(0, flow - 1), max_size=2, unique=True) if flow else st.just([]) for flow in range(count)
    ]
    few = {"min_size": count, "max_size": count}
    return Flows.make(
        Paths(paths.set_offset, paths.path_offset, paths.link, np.asarray(weights)),
        draw(st.lists(st.sampled_from([1.0, 2.0, 7.0]), min_size=LINKS, max_size=LINKS)),
        draw(st.lists(st.sampled_from([0.0, 1.0, 4.0, 5.5]), **few)),
        latency=draw(st.lists(st.sampled_from([0.0, 0.25, 1.0]), **few)),
        release=draw(st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.25]), **few)),
        set=draw(st.lists(st.integers(0, len(sets) - 1), **few)),
        policy=draw(st.lists(st.sampled_from(PathPolicy), **few)),
        after=[draw(some) for some in earlier],
        after_left=[draw(some) for some in earlier],
    )


@examples(300)
@given(flow_graphs())
def test_the_core_agrees_with_plain_python(flows: Flows) -> None:
    found = simulate_flows(flows)
    start, left, arrival, path = zip(*flow_reference.simulate(flows), strict=True)
    assert found.start == pytest.approx(start, **EXACT)
    assert found.left == pytest.approx(left, **EXACT)
    assert found.arrival == pytest.approx(arrival, **EXACT)
    assert found.path.tolist() == list(path)


@examples(200)
@given(flow_graphs())
def test_the_timeline_carries_every_byte_and_overloads_no_link(flows: Flows) -> None:
    found = simulate_flows(flows, timeline=True)
    again = simulate_flows(flows, timeline=True)
    assert all(np.array_equal(getattr(found, name), getattr(again, name)) for name in ("arrival", "times", "rate"))
    assert (found.rate <= flows.capacity[found.link] * (1 + 1e-9)).all()
    carried = np.zeros(LINKS)
    for link in range(LINKS):
        mine = found.link == link
        carried[link] = (found.rate[mine][:-1] * np.diff(found.times[mine])).sum()
        assert not mine.any() or found.rate[mine][-1] == 0
    expected = np.zeros(LINKS)
    for flow, path in enumerate(found.path.tolist()):
        first, end = flows.paths.set_offset[flows.set[flow]], flows.paths.set_offset[flows.set[flow] + 1]
        for way in range(first, end) if path < 0 else [path]:
            hops = slice(flows.paths.path_offset[way], flows.paths.path_offset[way + 1])
            part = float(flows.bytes[flow]) / (end - first if path < 0 else 1)
            np.add.at(expected, flows.paths.link[hops], part * flows.paths.weight[hops])
    assert carried == pytest.approx(expected, **EXACT)
