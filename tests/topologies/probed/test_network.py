"""The topology that explains measurements has the wires that were measured."""

from __future__ import annotations

import pytest

from syntony.topologies.file_format import from_json, to_json
from syntony.topologies.probed.network import explain
from tests.topologies.probed.networks import measured, two_level


def test_wires_of_their_own_become_a_full_mesh() -> None:
    topology = explain(*measured(4, lambda a, b: (2e-6, 1e9 + a)))
    assert {node.kind for node in topology.nodes} == {"rank"}
    assert len(topology.links) == 12
    for link in topology.links:
        assert link.bandwidth == 10**9 + link.src
        assert link.alpha == pytest.approx(2e-6)


def test_shared_wires_become_a_switch() -> None:
    topology = explain(*measured(4, lambda a, b: (2e-6, 1e9), shared=lambda _: 1e9))
    assert [node.kind for node in topology.nodes] == ["rank"] * 4 + ["switch"]
    assert {(link.bandwidth, link.alpha) for link in topology.links} == {(10**9, 1e-6)}
    assert len(topology.links) == 8


def test_hosts_behind_a_switch() -> None:
    """Meshes inside, one NIC per host, a switch between: the alpha from rank to rank is the measured one."""
    topology = explain(*measured(12, two_level, shared=lambda ranks: 25e6 if len(ranks) == 4 else 1e12))
    kinds = [node.kind for node in topology.nodes]
    assert (kinds.count("rank"), kinds.count("nic"), kinds.count("switch")) == (12, 3, 1)
    between = [link for link in topology.links if {kinds[link.src], kinds[link.dst]} == {"nic", "switch"}]
    assert {float(link.bandwidth) for link in between} == {25e6}
    inner = [link for link in topology.links if kinds[link.src] == kinds[link.dst] == "rank"]
    assert len(inner) == 3 * 12
    assert {float(link.bandwidth) for link in inner} == {10e9}
    nic = topology.links_from(0)[-1]
    assert 2 * (nic.alpha + between[0].alpha) == pytest.approx(50e-6)
    assert from_json(to_json(topology)) == topology


def test_two_ranks_have_a_wire() -> None:
    topology = explain(*measured(2, lambda a, b: (1e-6, 1e9 + a)))
    assert [(link.src, link.dst, link.bandwidth) for link in topology.links] == [(0, 1, 10**9), (1, 0, 10**9 + 1)]
