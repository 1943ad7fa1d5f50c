"""Pictures: valid SVG in which every node and every cable can be seen."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given

from syntony.topologies import Link, Node, Topology, parse
from syntony.topologies.drawing.draw import slower_than_their_like, to_svg
from syntony.topologies.drawing.layers import layered
from syntony.topologies.file_format import from_dict
from syntony.topologies.readers import read
from tests.topologies.named import EXAMPLES, SMALL, networks

SVG = "{http://www.w3.org/2000/svg}"


def _drawn(topology: Topology) -> ElementTree.Element:
    root = ElementTree.fromstring(to_svg(topology))
    assert root.tag == f"{SVG}svg"
    return root


def _cables(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [path for path in root.iter(f"{SVG}path") if path.find(f"{SVG}title") is not None]


@pytest.mark.parametrize("name", [*SMALL, *EXAMPLES])
def test_ranks_switches_and_cables_are_all_drawn_inside_the_canvas(name: str) -> None:
    topology = parse(name)
    root = _drawn(topology)
    circles = list(root.iter(f"{SVG}circle"))
    assert len(circles) == topology.ranks
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {str(rank) for rank in range(topology.ranks)} <= set(texts)
    assert {node.name for node in topology.nodes if node.kind != "rank"} <= set(texts)
    assert f"{name}: {topology.ranks} rank" in (texts[0] or "")
    ways = Counter((link.src, link.dst, link.bandwidth, link.alpha) for link in topology.links)
    back = sum(min(number, ways[dst, src, *speed]) for (src, dst, *speed), number in ways.items())
    assert len(_cables(root)) == len(topology.links) - back / 2  # a link and its way back share a line
    width, height = (float(size) for size in root.attrib["viewBox"].split()[2:])
    for circle in circles:
        assert 0 < float(circle.attrib["cx"]) < width
        assert 0 < float(circle.attrib["cy"]) < height


@given(networks())
def test_any_network_can_be_drawn(topology: Topology) -> None:
    root = _drawn(topology)
    ways = sum(1 if "marker-end" in path.attrib else 2 for path in _cables(root))
    assert ways == len(topology.links)


def test_names_are_escaped() -> None:
    topology = parse("star:2").renamed("<a & b>")
    nodes = (*topology.nodes[:2], replace(topology.nodes[2], name='"<&>"'))
    texts = [text.text for text in _drawn(Topology("<a & b>", nodes, topology.links)).iter(f"{SVG}text")]
    assert '"<&>"' in texts
    assert "<a & b>: 2 ranks" in texts


def test_one_way_links_have_an_arrow_and_parallel_ones_do_not_cover_each_other() -> None:
    nodes = (Node(0, "rank", "a"), Node(1, "rank", "b"))
    links = tuple(Link(i, 0, 1, 0.0, Fraction(1)) for i in range(3))
    paths = _cables(_drawn(Topology("t", nodes, links)))
    assert all("marker-end" in path.attrib for path in paths)
    assert len({path.attrib["d"] for path in paths}) == 3


def test_a_line_bends_around_a_node_in_its_way() -> None:
    """The wrap-around cable of a row of four passes two nodes; the cable between neighbours passes none."""
    paths = {(path.findtext(f"{SVG}title") or "").split(":")[0]: path for path in _cables(_drawn(parse("torus:4x4")))}
    assert " C" in paths["rank3 -- rank0"].attrib["d"]
    assert " L" in paths["rank0 -- rank1"].attrib["d"]


def test_the_legend_tells_every_rate_once() -> None:
    texts = [text.text or "" for text in _drawn(parse("dgx-h100:2")).iter(f"{SVG}text")]
    assert [text for text in texts if re.search(r"B/s per direction", text)] == [
        "450 GB/s per direction, 0.35 us",
        "63 GB/s per direction, 0.35 us",
        "50 GB/s per direction, 0.5 us",
    ]


def placed(name: str) -> dict[str, tuple[float, float]]:
    """Where the nodes of a file without places are drawn, by name."""
    topology = read(Path(__file__).parents[2] / "data" / name)
    found = layered(topology)
    assert found is not None
    return {node.name: place for node, place in zip(topology.nodes, found, strict=True)}


def test_a_network_without_places_is_drawn_in_layers() -> None:
    """Hosts, leaves, spine: one above the other; a leaf above the middle of its hosts; nothing on top of another."""
    at = placed("leaf_spine.json")
    heights = {kind: {y for name, (_, y) in at.items() if name.startswith(kind)}
               for kind in ("nvswitch", "gpu", "nic", "leaf", "spine")}  # fmt: skip
    assert all(len(found) == 1 for found in heights.values())
    assert [*map(max, heights.values())] == sorted(map(max, heights.values()))
    for leaf, hosts in (("leaf0", (0, 1, 2)), ("leaf1", (3, 4, 5))):
        below = [at[f"nic{host}.{nic}"][0] for host in hosts for nic in (0, 1)]
        assert at[leaf][0] == pytest.approx(sum(below) / len(below))
    assert at["leaf0"][0] < at["spine"][0] < at["leaf1"][0]
    for y in {y for _, y in at.values()}:
        row = sorted(x for x, height in at.values() if height == y)
        assert all(other - one >= 0.9 for one, other in itertools.pairwise(row))


def test_the_slow_uplink_is_seen_and_names_are_kept() -> None:
    topology = read(Path(__file__).parents[2] / "data" / "leaf_spine.json")
    slow = slower_than_their_like(topology)
    ends = {frozenset((topology.nodes[topology.links[link].src].name, topology.nodes[topology.links[link].dst].name))
            for link in slow}  # fmt: skip
    assert ends == {frozenset(("leaf1", "spine"))}
    picture = to_svg(topology)
    assert "red where slower than most of its like" in picture
    for node in topology.nodes:
        assert f">{node.name}</text>" in picture


def test_switches_without_hosts_and_ranks_without_switches_are_drawn() -> None:
    nodes = [{"kind": "rank", "name": "a"}, {"kind": "rank", "name": "b"}, {"kind": "switch", "name": "alone"}]
    data = {"format": "syntony-topology", "version": 1, "name": "odd", "nodes": nodes, "links": [
        {"between": ["a", "b"], "alpha": 0, "bandwidth": 1}]}  # fmt: skip
    assert "alone" in to_svg(from_dict(data))
    assert layered(from_dict(data | {"nodes": nodes[:2]})) is None
    assert to_svg(from_dict(data | {"nodes": nodes[:2]}))


def test_a_topology_without_places_of_any_family_has_layers() -> None:
    """Families' own places taken away: every node gets one, no two the same."""
    for name in ("dgx-a100:2", "rail:boxes=3,gpus=4,rails=4", "fat-tree:4", "dgx2", "star:5", "pcie-tree"):
        topology = parse(name)
        bare = replace(topology, nodes=tuple(replace(node, place=None) for node in topology.nodes))
        found = layered(bare)
        assert found is not None
        assert len({(round(x, 3), round(y, 3)) for x, y in found}) == len(topology.nodes), name
