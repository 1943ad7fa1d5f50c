"""Who shares a machine with whom."""

from __future__ import annotations

from fractions import Fraction

import pytest

from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.hosts import Host, hosts_of
from syntony.topologies.parse import parse
from syntony.topologies.topology import TopologyError


@pytest.mark.parametrize("name", ["star:4", "torus:2x2", "ring:3", "dgx1", "dgx-a100:1"])
def test_without_nics_every_rank_is_a_host(name: str) -> None:
    topology = parse(name)
    assert hosts_of(topology) == tuple(Host((rank,), (), (rank,)) for rank in range(topology.ranks))


def test_a_box_ends_at_its_nics() -> None:
    topology = parse("rail:boxes=2,gpus=2,rails=2")
    names = [[topology.nodes[node].name for node in host.nodes] for host in hosts_of(topology)]
    assert names == [
        ["rank0", "rank1", "nvswitch0", "nic0.0", "nic0.1"],
        ["rank2", "rank3", "nvswitch1", "nic1.0", "nic1.1"],
    ]
    assert [host.ranks for host in hosts_of(topology)] == [(0, 1), (2, 3)]
    assert [len(host.nics) for host in hosts_of(topology)] == [2, 2]


@pytest.mark.parametrize("name", ["dgx-a100:3", "rail:boxes=4,gpus=4,rails=2", "rail:boxes=2,gpus=1,rails=4"])
def test_hosts_share_nothing_and_hold_all_ranks_and_nics(name: str) -> None:
    topology = parse(name)
    hosts = hosts_of(topology)
    nodes = [node for host in hosts for node in host.nodes]
    assert len(nodes) == len(set(nodes))
    assert [rank for host in hosts for rank in host.ranks] == list(range(topology.ranks))
    nics = [node.id for node in topology.nodes if node.kind == "nic"]
    assert sorted(nic for host in hosts for nic in host.nics) == nics
    assert all(set(host.ranks) | set(host.nics) <= set(host.nodes) for host in hosts)


def test_nics_back_to_back_need_no_switch() -> None:
    wiring = Wiring("pair")
    one, other = wiring.rank((0, 0)), wiring.rank((1, 0))
    nics = wiring.nic("nic0", (0, 1)), wiring.nic("nic1", (1, 1))
    for ends in ((one, nics[0]), (nics[0], nics[1]), (nics[1], other)):
        wiring.cable(*ends, Fraction(10**9), 0.0)
    assert hosts_of(wiring.topology()) == (Host((0,), (2,), (0, 2)), Host((1,), (3,), (1, 3)))


def test_a_nic_between_two_boxes_is_refused() -> None:
    wiring = Wiring("shared")
    one, other = wiring.rank((0, 0)), wiring.rank((1, 0))
    nic = wiring.nic("nic0", (0, 1))
    wiring.cable(one, nic, Fraction(10**9), 0.0)
    wiring.cable(other, nic, Fraction(10**9), 0.0)
    with pytest.raises(TopologyError, match=r"shared: NIC nic0 has cables to rank 0's box and to rank 1's; a NIC"):
        hosts_of(wiring.topology())
