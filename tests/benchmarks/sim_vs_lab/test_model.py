"""What is computed before anything is measured: goodput, the lab's network, its sockets, and predictions."""

from __future__ import annotations

from fractions import Fraction

import pytest

from syntony.benchmarks.sim_vs_lab.cells import CASES, FABRICS, Case, Fabric
from syntony.benchmarks.sim_vs_lab.model import burst_seconds, goodput, network_of, payload_share, sockets_of
from syntony.benchmarks.sim_vs_lab.prediction import Predictor, memory_rate
from syntony.topologies.topology import Topology

SLOT = 128 * 1024
MEMORY = 1e12
MIB = 1 << 20


def network(fabric: Fabric) -> Topology:
    spec = fabric.spec()
    return network_of(spec, SLOT, {wire.id: 1e-5 for wire in spec.wires}, MEMORY)


def seconds(fabric: Fabric, case: Case, size: int) -> float:
    spec = fabric.spec()
    predictor = Predictor(spec, {wire.id: 0.0 for wire in spec.wires}, MEMORY)
    return predictor.predict(case.program(), size).seconds


def test_goodput_by_hand() -> None:
    """Of a jumbo frame of 9014 bytes, 66 are headers; 66 more come the other way for each 16 KiB; 72 for each slot."""
    assert payload_share() == Fraction(8948, 9014)
    assert payload_share(1500) == Fraction(1448, 1514)
    rate = Fraction(25 * 10**6)
    assert float(goodput(rate, SLOT)) == pytest.approx(25e6 * 8948 / 9014 * 131072 / 131144 * 16384 / 16450)


@pytest.mark.parametrize("fabric", FABRICS, ids=str)
def test_every_socket_leads_from_rank_to_rank(fabric: Fabric) -> None:
    topology, sockets = network(fabric), sockets_of(fabric.spec())
    assert set(sockets.ways) == {(src, dst) for src in range(4) for dst in range(4) if src != dst}
    for (src, dst), ways in sockets.ways.items():
        for way in ways:
            at = src
            for link in way:
                assert topology.links[link].src == at
                at = topology.links[link].dst
            assert at == dst


def test_hosts_that_forward_and_rails() -> None:
    torus, rail = sockets_of(FABRICS[1].spec()), sockets_of(FABRICS[2].spec())
    assert [len(way) for way in torus.ways[0, 3]] == [4]  # rank, host, host, host, rank; both sockets go the same way
    assert [len(way) for way in torus.ways[0, 1]] == [3]
    assert [len(way) for way in rail.ways[0, 1]] == [2]  # shared memory
    for pair in ((0, 2), (2, 0), (1, 3), (3, 0)):
        first, second = (set(way[1:-1]) for way in rail.ways[pair])
        assert not first & second, "two sockets, two rails"


def test_the_bucket_saves_what_fills_it() -> None:
    assert burst_seconds(FABRICS[0].spec()) == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("fabric", "load"),
    [
        (FABRICS[0], Fraction(3, 4)),  # three quarters of a rank's data go over its cable
        (FABRICS[1], Fraction(1, 2)),  # and over its two cables evenly, the diagonals forwarded
        (FABRICS[2], Fraction(1, 2)),  # two ranks, half of whose data go over two rails
        (FABRICS[3], Fraction(2)),  # two ranks, half of whose data go over a cable of half the rate
    ],
    ids=str,
)
def test_all_to_all_takes_as_long_as_its_busiest_cable(fabric: Fabric, load: Fraction) -> None:
    size = 64 * MIB
    ideal = float(load * size / goodput(fabric.bytes_per_second, SLOT)) - burst_seconds(fabric.spec())
    assert seconds(fabric, Case("direct", "all_to_all"), size) == pytest.approx(ideal, rel=0.01)


def test_a_ring_on_a_star_is_nearly_as_fast_as_its_bound() -> None:
    size = 64 * MIB
    ideal = 1.5 * size / float(goodput(FABRICS[0].bytes_per_second, SLOT)) - burst_seconds(FABRICS[0].spec())
    assert seconds(FABRICS[0], CASES[0], size) == pytest.approx(ideal, rel=0.01)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_predicted_faster_than_its_bound(case: Case) -> None:
    for fabric in FABRICS:
        spec = fabric.spec()
        predictor = Predictor(spec, {wire.id: 1e-5 for wire in spec.wires}, MEMORY)
        found = predictor.predict(case.program(), 4 * MIB)
        assert found.seconds >= found.bound > 0


def test_memory_has_a_rate() -> None:
    assert 1e7 < memory_rate() < 1e13
