"""Reconfigurable fabrics: ports and wavelengths are never overdrawn, and go where the traffic is."""

from __future__ import annotations

import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from syntony.topologies import Topology, TopologyError, parse
from syntony.topologies.demand import AllReduce, Demand, read_demand
from syntony.topologies.families.optical.circuits import apportioned, layers, matchings, strides
from syntony.topologies.graph.distance import diameter

PATTERNS = ["ring", "all_to_all", "all_reduce", "dp3xtp4", "pp3xtp4", "dp2xpp2xep3", "tp1xep12", "pp12"]


def _used(topology: Topology, unit: int) -> Counter[tuple[int, int]]:
    """Circuits per pair; every link is a whole number of them."""
    circuits = Counter[tuple[int, int]]()
    for link in topology.links:
        number = link.bandwidth / unit
        assert number.denominator == 1
        circuits[link.src, link.dst] += int(number)
    return circuits


@pytest.mark.parametrize("family", ["sip-ocs", "topoopt"])
@pytest.mark.parametrize("traffic", PATTERNS)
@pytest.mark.parametrize("ports", [1, 2, 3, 7])
def test_no_rank_has_more_circuits_than_ports_and_everybody_reaches_everybody(
    family: str, traffic: str, ports: int
) -> None:
    topology = parse(f"{family}:12,{traffic},{ports},bandwidth=1")
    circuits = _used(topology, 1)
    for way in (0, 1):
        of_rank = Counter[int]()
        for pair, number in circuits.items():
            of_rank[pair[way]] += number
        assert max(of_rank.values()) <= ports
    assert diameter(topology) is not None


def test_topoopt_gives_one_group_rings_of_different_strides() -> None:
    """TotientPerms: strides without a common divisor with n; SelectPermutations: near a geometric series."""
    assert strides(16, 1) == [1]
    assert strides(16, 2) == [1, 3]  # q = 4, and 3 and 5 are as near
    assert strides(64, 3) == [1, 3, 15]  # q = 4
    assert strides(6, 4) == [1, 5, 1, 5]  # there are only two
    topology = parse("topoopt:16,all_reduce,2")
    assert {(link.dst - link.src) % 16 for link in topology.links} == {1, 3}
    assert len(topology.links) == 32
    assert topology.generators == ((*range(1, 16), 0),)


@pytest.mark.parametrize("ranks", [12, 16, 64, 101, 256])
@pytest.mark.parametrize("ports", [1, 2, 3, 4])
def test_topoopts_diameter_grows_as_the_root_of_the_ranks(ranks: int, ports: int) -> None:
    """TopoOpt's bound is O(d n^(1/d)): a route takes at most about q steps of every stride."""
    furthest = diameter(parse(f"topoopt:{ranks},all_reduce,{ports}"))
    assert furthest is not None
    assert furthest <= 1.5 * ports * ranks ** (1 / ports)


def test_topoopt_divides_ports_by_bytes(tmp_path: Path) -> None:
    """Eight ranks, 4 ports: an all_reduce of 4/7 (each sends 1) and an all_to_all in which each sends 3."""
    everybody = list(range(8))
    path = tmp_path / "job.json"
    path.write_text(json.dumps({
        "all_reduce": [{"members": everybody, "bytes": 4 / 7}],
        "all_to_all": [{"members": everybody, "bytes": 3}],
    }))  # fmt: skip
    circuits = _used(parse(f"topoopt:8,{path},4,bandwidth=1"), 1)
    # One ring of stride 1, and three matchings of the all_to_all: among its equal pairs those 1, 3 and 5 ahead.
    expected = Counter({(i, (i + 1) % 8): 2 for i in range(8)})
    expected += Counter({(i, (i + stride) % 8): 1 for stride in (3, 5) for i in range(8)})
    assert circuits == expected


def test_uniform_traffic_is_relayed_on_short_routes() -> None:
    """64 ranks, 3 ports, all equal: strides 1, 3 and 15 as for an all_reduce, not 1, 2 and 3 (21 hops).

    The furthest: 59 ahead is 3 * 15 + 4 * 3 + 2 * 1.
    """
    assert diameter(parse("sip-ocs:64,all_to_all,3")) == diameter(parse("topoopt:64,all_reduce,3")) == 9


def test_groups_that_share_a_rank_share_no_port() -> None:
    demand = read_demand("dp3xtp4", 12, "traffic")
    for layer in layers(demand.all_reduces):
        members = [member for group in layer for member in group.members]
        assert sorted(members) == list(range(12))
    assert len(layers(demand.all_reduces)) == 2
    assert layers((AllReduce((0, 1), 1.0), AllReduce((1, 2), 1.0), AllReduce((3, 4), 1.0))) == [
        [AllReduce((0, 1), 1.0), AllReduce((3, 4), 1.0)],
        [AllReduce((1, 2), 1.0)],
    ]


def test_apportionment_is_dhondts() -> None:
    assert apportioned(8, [100_000, 80_000, 30_000, 20_000]) == [4, 3, 1, 0]
    assert apportioned(3, [0.0, 0.0]) == [0, 0]
    assert apportioned(3, [0.0, 2.0]) == [0, 3]


def test_sip_ocs_follows_the_ring_that_it_is_given() -> None:
    circuits = _used(parse("sip-ocs:6,ring,3,bandwidth=1"), 1)
    assert circuits == {(rank, (rank + 1) % 6): 3 for rank in range(6)}


def test_ranks_that_would_fall_apart_get_a_ring() -> None:
    circuits = _used(parse("sip-ocs:8,dp1xtp8,1,bandwidth=1"), 1)
    assert circuits == {(rank, (rank + 1) % 8): 1 for rank in range(8)}
    apart = _used(parse("sip-ocs:8,tp2xdp1xep4,2,bandwidth=1"), 1)
    assert all(apart[rank, (rank + 1) % 8] >= 1 for rank in range(8))


matrices = st.integers(2, 7).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 50), min_size=n, max_size=n), min_size=n, max_size=n)
)


@given(matrices)
def test_a_matching_shares_no_end_and_weighs_half_of_the_best(rows: list[list[int]]) -> None:
    weights = np.array(rows, dtype=np.float64)
    np.fill_diagonal(weights, 0)
    src, dst = np.nonzero(weights)
    demand = Demand(len(rows), (), src.astype(np.int64), dst.astype(np.int64), weights[src, dst])
    chosen = matchings(demand, 1)
    assert set(chosen.values()) <= {1}
    assert len({src for src, _ in chosen}) == len({dst for _, dst in chosen}) == len(chosen)
    best = weights[linear_sum_assignment(weights, maximize=True)].sum()
    assert 2 * sum(weights[pair] for pair in chosen) >= best


def test_who_got_a_circuit_counts_half() -> None:
    """0 sends 10 to 1, 6 to 2: one circuit to 1, then one to 2 (10/2 < 6), then again to 1 (10/2 > 6/2)."""
    columns = np.array([0, 0]), np.array([1, 2]), np.array([10.0, 6.0])
    demand = Demand(3, (), *columns)
    for ports, expected in ((1, {(0, 1): 1}), (2, {(0, 1): 1, (0, 2): 1}), (3, {(0, 1): 2, (0, 2): 1})):
        assert matchings(demand, ports) == expected


# SiP-Ring ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("traffic", PATTERNS)
@pytest.mark.parametrize("wavelengths", [1, 2, 9])
def test_no_piece_of_the_ring_carries_more_wavelengths_than_there_are(traffic: str, wavelengths: int) -> None:
    ranks = 12
    topology = parse(f"sip-ring:{ranks},{traffic},{wavelengths},bandwidth=1")
    load = {1: [0] * ranks, -1: [0] * ranks}
    for (src, dst), number in _used(topology, 1).items():
        ahead = (dst - src) % ranks
        way, length = (1, ahead) if 2 * ahead <= ranks else (-1, ranks - ahead)
        for step in range(length):
            load[way][(src + way * step) % ranks] += number
    assert max(load[1]) <= wavelengths
    assert max(load[-1]) <= wavelengths
    assert diameter(topology) is not None


def test_neighbours_use_every_wavelength_of_one_fibre() -> None:
    circuits = _used(parse("sip-ring:10,ring,5,bandwidth=1"), 1)
    assert circuits == {(rank, (rank + 1) % 10): 5 for rank in range(10)}


def test_wavelengths_are_given_in_proportion(tmp_path: Path) -> None:
    """Two pairs that pass the same piece, 3:1 in bytes, and 8 wavelengths beside the neighbours' one."""
    path = tmp_path / "t.json"
    path.write_text('{"sends": [[0, 2, 30], [1, 3, 10]]}')
    circuits = _used(parse(f"sip-ring:8,{path},9,bandwidth=1"), 1)
    assert (circuits[0, 2], circuits[1, 3]) == (6, 2)


def test_a_far_pair_takes_the_shorter_way_round(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"sends": [[0, 6, 1], [0, 4, 1]]}')
    circuits = _used(parse(f"sip-ring:8,{path},5,bandwidth=1"), 1)
    assert (circuits[0, 6], circuits[0, 4]) == (5, 4)  # backwards all five; forwards one is the neighbours'


# ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("topoopt:1,ring", "topoopt: ranks is 1; circuits join at least 2"),
        ("sip-ocs:8,ring,0", "sip-ocs: ports is 0; it must be 1 to 64"),
        ("sip-ring:8,ring,0", "sip-ring: wavelengths is 0; a fibre has 1 to 256"),
        ("sip-ring:1,ring", "sip-ring: ranks is 1; circuits join at least 2"),
        ("topoopt:8", "topoopt: traffic (what is sent: ring, all_to_all"),
        ("topoopt:8,dp4xtp4", "topoopt: traffic: 4x4 is 16 ranks, but there are 8"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(name)
    assert str(caught.value).startswith(sentence)


def test_published_rates() -> None:
    assert {link.bandwidth for link in parse("topoopt:8,all_reduce,1").links} == {Fraction(100 * 10**9, 8)}
    assert {link.bandwidth for link in parse("sip-ring:8,ring").links} == {64 * Fraction(25 * 10**9, 8)}
    assert math.isclose(parse("sip-ocs:8,ring,1").links[0].bandwidth, 64 * 25e9 / 8)
