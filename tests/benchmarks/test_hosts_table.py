"""The table of collectives between hosts: what an algorithm's busiest wire allows. The lab itself needs root."""

from __future__ import annotations

from fractions import Fraction

import pytest

from syntony.benchmarks.runtime.hosts import SIZE, Limits, Network
from syntony.benchmarks.runtime.measured.hosts_rank import Job
from syntony.lab.lab_spec import LabSpec
from syntony.lab.wires.ceiling import Ceiling

MEGA = 1e6


def _ceilings(spec: LabSpec, together: float) -> list[Ceiling]:
    return [Ceiling(wire, near, ("", ""), together, None, (1e-5,)) for wire in spec.wires for near in wire.ends]


@pytest.mark.parametrize(
    ("topology", "collective", "algorithm", "carried"),
    [
        ("star:4", "all_reduce", "ring", 1.5),
        ("star:4", "all_gather", "direct", 0.75),
        ("star:4", "reduce_scatter", "direct", 0.75),
        ("star:4", "all_to_all", "direct", 0.75),
        ("rail:boxes=2,gpus=2,rails=1", "all_reduce", "hierarchical", 1.0),
        ("rail:boxes=2,gpus=2,rails=1", "all_gather", "direct", 1.0),
        ("rail:boxes=2,gpus=2,rails=1", "all_gather", "hierarchical", 0.5),
        ("rail:boxes=2,gpus=2,rails=2", "all_reduce", "hierarchical", 0.5),
        ("rail:boxes=2,gpus=4,rails=1", "reduce_scatter", "hierarchical", 0.5),
    ],
)
def test_limit_is_what_the_busiest_wire_carries(topology: str, collective: str, algorithm: str, carried: float) -> None:
    spec = Network("", topology, "200mbit", {}).spec()
    limits = Limits(spec, _ceilings(spec, 20 * MEGA))
    limit, simulated = limits.of(Job(collective, SIZE, 1, ("auto",)), algorithm)
    assert limit == pytest.approx(carried * SIZE / (20 * MEGA))
    assert limit < simulated < 1.2 * limit


def test_limit_is_that_of_the_slowest_wire() -> None:
    spec = Network("", "star:4", "200mbit", {}).spec()
    ceilings = _ceilings(spec, 20 * MEGA)
    ceilings[3] = Ceiling(ceilings[3].wire, ceilings[3].near, ("", ""), 5 * MEGA, None, (1e-5,))
    limit, _ = Limits(spec, ceilings).of(Job("all_to_all", SIZE, 1, ("auto",)), "direct")
    assert limit == pytest.approx(0.75 * SIZE / (5 * MEGA))


def test_the_same_network_at_another_rate() -> None:
    network = Network("4 hosts at 200 Mbit/s", "star:4", "200mbit", {}).at("1.5gbit")
    assert (network.title, network.rate) == ("4 hosts at 1.5 Gbit/s", "1.5gbit")
    assert {end.rate for wire in network.spec().wires for end in wire.ends} == {Fraction(1_500_000_000, 8)}
