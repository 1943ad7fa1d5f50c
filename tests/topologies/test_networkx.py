"""Topologies as graphs of networkx, there and back, and graphs of others as topologies."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import networkx
import pytest

from syntony.__main__ import main
from syntony.topologies.file_format import from_json
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology, TopologyError

NAMES = ["dgx1", "torus:3x4", "star:5", "dgx-a100:2", "rail:boxes=2,gpus=4,rails=4", "dragonfly:2,2,2"]


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name: str) -> None:
    topology = parse(name)
    graph = topology.to_networkx()
    assert Topology.from_networkx(graph) == replace(topology, generators=())
    assert networkx.number_of_edges(graph) == len(topology.links)
    some = topology.links[-1]
    ends = topology.nodes[some.src].name, topology.nodes[some.dst].name
    assert some.bandwidth in {data["bandwidth"] for *_, data in graph.edges(ends[0], data=True)}


def test_switches_that_add_stay_what_they_are() -> None:
    topology = parse("star:4,aggregator=switchml")
    assert Topology.from_networkx(topology.to_networkx()) == replace(topology, generators=())


def test_graphs_of_others() -> None:
    cube = Topology.from_networkx(networkx.hypercube_graph(3), "cube")
    assert (cube.name, cube.ranks, len(cube.links)) == ("cube", 8, 24)  # a cable is two links
    assert {(link.alpha, link.bandwidth) for link in cube.links} == {(1e-6, Fraction(10**9))}
    graph = networkx.DiGraph([("spine", "b"), ("a", "spine")], name="one way")
    graph.nodes["spine"]["kind"] = "switch"
    graph["a"]["spine"].update(bandwidth="200Gbit/s", alpha="700ns")
    graph["spine"]["b"].update(bandwidth=0.5)
    found = Topology.from_networkx(graph)
    assert [(node.name, node.kind) for node in found.nodes] == [("b", "rank"), ("a", "rank"), ("spine", "switch")]
    assert [(link.src, link.dst, link.alpha, link.bandwidth) for link in found.links] == [
        (2, 0, 1e-6, Fraction(1, 2)),
        (1, 2, 7e-7, Fraction(25 * 10**9)),
    ]


@pytest.mark.parametrize(
    ("node", "edge", "sentence"),
    [
        ({"kind": "router"}, {}, "node 0 has kind 'router'; a node is one of rank, switch, nic"),
        ({"place": "left"}, {}, "node 0 has place 'left'"),
        ({"aggregator": "sharp"}, {}, "node 0 has aggregator 'sharp'"),
        ({}, {"bandwidth": "fast"}, "edge 0 -> 1 has bandwidth 'fast'"),
        ({}, {"alpha": [1]}, r"edge 0 -> 1 has alpha \[1\]"),
        ({}, {"alpha": float("nan")}, "edge 0 -> 1 has alpha nan"),
        ({}, {"bandwidth": -1}, "bandwidth -1; it is in bytes/s and positive"),
    ],
)
def test_what_is_no_topology(node: dict[str, object], edge: dict[str, object], sentence: str) -> None:
    graph = networkx.Graph()
    graph.add_node(0, **node)
    graph.add_edge(0, 1, **edge)
    with pytest.raises(TopologyError, match=sentence):
        Topology.from_networkx(graph)


def test_graphml_is_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = networkx.cycle_graph(4)
    networkx.set_edge_attributes(graph, "25GB/s", "bandwidth")
    networkx.set_edge_attributes(graph, "d", "colour")  # not ours
    networkx.write_graphml(graph, tmp_path / "ring.graphml")
    assert main(["topo", "convert", str(tmp_path / "ring.graphml"), str(tmp_path / "ring.json")]) == 0
    found = from_json((tmp_path / "ring.json").read_text())
    assert (found.name, found.ranks, len(found.links)) == ("ring", 4, 8)
    assert found.links[0].bandwidth == 25 * 10**9
    capsys.readouterr()
    for text, said in (
        ("<graphml><graph edgedefault='undirected'><node id='a'/>", "cannot be read as GraphML"),
        ("<graphml xmlns='http://graphml.graphdrawing.org/xmlns'/>", "cannot be read as GraphML"),
        ("<!DOCTYPE graphml [<!ENTITY a 'b'>]><graphml/>", "defines entities"),
    ):
        (tmp_path / "bad.graphml").write_text(text)
        assert main(["topo", "show", f"file:{tmp_path / 'bad.graphml'}"]) == 2
        assert said in capsys.readouterr().err, text
