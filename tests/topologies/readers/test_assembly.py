"""What all readers rely on: parts become nodes and links."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from syntony.topologies.readers.assembly import Assembly
from syntony.topologies.topology import Topology

RATE = Fraction(10**9)


def two_nodes(distance: int | None) -> Topology:
    assembly = Assembly("machine", "here")
    one, other = assembly.cpu("cpu0", RATE), assembly.cpu("cpu1", RATE)
    if distance is not None:
        assembly.distance(one, other, distance)
        assembly.distance(other, one, distance)
    return assembly.topology()


def test_latency_between_numa_nodes_follows_their_distance() -> None:
    near, far = two_nodes(10).links, two_nodes(32).links
    assert [link.alpha * 3.2 for link in near] == pytest.approx([link.alpha for link in far])
    assert two_nodes(None) == two_nodes(20)


@pytest.mark.parametrize("shares", list(product([False, True], repeat=3)))
def test_nvswitches_share_if_all_of_them_do(shares: tuple[bool, ...]) -> None:
    assembly = Assembly("machine", "here")
    cpu = assembly.cpu("cpu0", RATE)
    for number, share in enumerate(shares):
        gpu, switch = assembly.gpu(f"gpu{number}", cpu, RATE), assembly.nvswitch(share)
        assembly.join("NVLink", gpu, switch, 1, RATE)
        assembly.join("NVLink", switch, gpu, 1, RATE)
    (switch_node,) = (node for node in assembly.topology().nodes if node.name == "nvswitch")
    assert (switch_node.multicast, switch_node.reduces) == (all(shares), all(shares))


@pytest.mark.parametrize("counts", [(1,), (2, 3), (4, 0, 1)])
def test_wires_that_are_joined_again_add_up(counts: tuple[int, ...]) -> None:
    assembly = Assembly("machine", "here")
    cpu = assembly.cpu("cpu0", RATE)
    one, other = assembly.gpu("gpu0", cpu, RATE), assembly.gpu("gpu1", cpu, RATE)
    for count in counts:
        assembly.join("NVLink", one, other, count, RATE)
    topology = assembly.topology()
    assert [link.bandwidth for link in topology.links if (link.src, link.dst) == (0, 1)] == [sum(counts) * RATE]
    assert not [link for link in topology.links if (link.src, link.dst) == (1, 0)]
