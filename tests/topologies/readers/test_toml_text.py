"""Networks written by hand in TOML: patterns of cables, and sentences with lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.topologies.drawing.layers import layered
from syntony.topologies.parse import parse
from syntony.topologies.readers import read
from syntony.topologies.topology import Topology, TopologyError

HOSTS = """\
# two hosts of four, a NIC per pair
name = "two hosts"
ranks = 8
switches = ["tor"]
nics = 4

[[cables]]
ring = ["rank0-3", "rank4-7"]
bandwidth = "50GB/s"
alpha = "1us"

[[cables]]
between = [["rank0-7", "nic0, nic0, nic1, nic1, nic2, nic2, nic3, nic3"]]
bandwidth = 25e9
alpha = 5e-7

[[cables]]
each = "nic0-3"
to = "tor"
bandwidth = "200Gbit/s"
alpha = "2us"
"""
PATTERN = 'ranks = 4\n\n[[cables]]\n{}\nbandwidth = "1GB/s"\nalpha = 1e-6\n'


def written(folder: Path, text: str) -> Topology:
    path = folder / "network.toml"
    path.write_text(text)
    return read(path)


def wires(topology: Topology) -> set[tuple[str, str]]:
    names = [node.name for node in topology.nodes]
    return {(names[link.src], names[link.dst]) for link in topology.links}


def test_a_network_of_two_hosts(tmp_path: Path) -> None:
    topology = written(tmp_path, HOSTS)
    assert topology.name == "two hosts"
    assert [node.kind for node in topology.nodes] == ["rank"] * 8 + ["switch"] + ["nic"] * 4
    assert len(topology.links) == 2 * (8 + 8 + 4)
    assert {("rank0", "rank3"), ("rank5", "nic2"), ("tor", "nic3")} <= wires(topology)
    assert {link.bandwidth for link in topology.links} == {50 * 10**9, 25 * 10**9}
    assert {link.alpha for link in topology.links} == {1e-6, 5e-7, 2e-6}
    again = parse(f"file:{tmp_path / 'network.toml'}")
    assert again == topology


def test_drawings_place_the_nodes(tmp_path: Path) -> None:
    assert layered(topology := written(tmp_path, HOSTS)) is not None
    assert all(node.place is None for node in topology.nodes)


@pytest.mark.parametrize(
    ("group", "links"),
    [
        ('ring = "rank0-3"', 8),
        ('line = "rank0-3"', 6),
        ('mesh = "rank0-3"', 12),
        ('each = "rank0"\nto = "rank1-3"', 6),
        ('between = [["rank0-2", "rank1-3"]]', 6),
    ],
)
def test_patterns(tmp_path: Path, group: str, links: int) -> None:
    assert len(written(tmp_path, PATTERN.format(group)).links) == links


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (PATTERN.format('ring = "rank0-4"'), r"network.toml:3: cables\[0\].ring is .*; there is no node 'rank4'"),
        (PATTERN.format('each = "rank0-3"'), r'network.toml:3: cables\[0\] has no "to"'),
        (PATTERN.format('ring = "rank0-3"\nline = "rank0-1"'), r"network.toml:3: cables\[0\] says ring and line"),
        (PATTERN.format(""), r"network.toml:3: cables\[0\] says not what is joined; give one of between, each, ring"),
        (PATTERN.format('line = "rank0-2"'), r"network.toml: rank3 cannot be reached from rank0"),
        (PATTERN.format('line = "rank0-3"\none_way = true'), r"network.toml: rank1 \(and 2 more\) cannot reach rank0"),
        (PATTERN.format('between = [["rank0-2", "rank3"]]'), r"network.toml:3: .*; 3 nodes cannot be joined with 1"),
        (PATTERN.format('line = ["rank0-2", "rank3"]'), r"network.toml:3: .*line\[1\] is \"rank3\"; that is one node"),
        (PATTERN.format('ring = "rank0"'), r"network.toml:3: .*ring is \"rank0\"; that is one node"),
        (PATTERN.format('mesh = "rank0, rank0"'), r"network.toml:3: cables\[0\] joins node 0 with itself"),
        (PATTERN.format('mesh = "rank0-3"\nspeed = 3'), r"network.toml:3: cables\[0\].*speed"),
        (PATTERN.format('mesh = "rank0-3"').replace('"1GB/s"', "-1"), r"network.toml:3: .*bandwidth is -1; it must be"),
        ("ranks = 4\nswitches = 'tor'\n", r"switches is \"tor\"; it must be a number from 0 to 100000, or names"),
        ("name = 'hosts'\n", r"network.toml: the file has no \"ranks\""),
        ("ranks = 0\n", r"network.toml: ranks is 0; it must be a number from 1 to 100000"),
        ("ranks = 4\nswitches = ['rank1']\n", r"two nodes are called 'rank1'"),
        ("ranks = 4\n[[cables]\n", r"network.toml: no TOML: .*line 2"),
    ],
)  # fmt: skip
def test_sentences_name_the_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(TopologyError, match=sentence):
        written(tmp_path, text)
