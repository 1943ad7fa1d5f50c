"""The graph itself: what it refuses, and what it says about its links."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from syntony.topologies import Link, Node, Topology, TopologyError, parse
from tests.topologies.named import names, networks

RANKS = (Node(0, "rank", "a"), Node(1, "rank", "b"))
SWITCH = Node(2, "switch", "s")
LINK = Link(0, 0, 1, 1e-6, Fraction(10))


@pytest.mark.parametrize(
    ("nodes", "links", "generators", "sentence"),
    [
        ((), (), (), "at least one rank"),
        ((Node(0, "switch", "s"),), (), (), "at least one rank"),
        ((Node(0, "rank", "a"), Node(2, "rank", "b")), (), (), "node 1 carries id 2"),
        ((Node(0, "rank", "a"), Node(1, "gpu", "b")), (), (), "kind 'gpu'"),  # type: ignore[arg-type]
        ((Node(0, "rank", "a"), Node(1, "nic", "n"), Node(2, "rank", "b")), (), (), "ranks come first"),
        ((Node(0, "rank", "a", multicast=True),), (), (), "only a switch multicasts"),
        ((Node(0, "rank", "a"), Node(1, "rank", "a")), (), (), "nodes 0 and 1 share the name 'a'"),
        (RANKS, (replace(LINK, id=3),), (), "link 0 carries id 3"),
        (RANKS, (replace(LINK, dst=2),), (), "ends at node 2; nodes are 0..1"),
        (RANKS, (replace(LINK, src=-1),), (), "ends at node -1"),
        (RANKS, (replace(LINK, dst=0),), (), "from node 0 to itself"),
        (RANKS, (replace(LINK, alpha=-1e-9),), (), "alpha -1e-09"),
        (RANKS, (replace(LINK, alpha=float("nan")),), (), "alpha nan"),
        (RANKS, (replace(LINK, bandwidth=Fraction(0)),), (), "bandwidth 0"),
        (RANKS, (replace(LINK, bandwidth=1e9),), (), "exact Fraction"),  # type: ignore[arg-type]
        (RANKS, (LINK,), ((1, 0),), "generator 0 is not an automorphism: it maps link 0 (0 -> 1) to 1 -> 0"),
        (RANKS, (), ((0, 0),), "generator 0 is not a permutation"),
        (RANKS, (), ((1, 0), (0, 1, 2)), "generator 1 is not a permutation"),
        ((*RANKS, SWITCH), (), ((0, 2, 1),), "maps node 1 (rank) to node 2 (switch)"),
        (RANKS, (LINK, Link(1, 1, 0, 1e-6, Fraction(11))), ((1, 0),), "not an automorphism"),
        (RANKS, (LINK, Link(1, 1, 0, 2e-6, Fraction(10))), ((1, 0),), "not an automorphism"),
        (RANKS, (LINK, replace(LINK, id=1), Link(2, 1, 0, 1e-6, Fraction(10))), ((1, 0),), "not an automorphism"),
    ],
)
def test_the_impossible_is_refused_in_a_sentence(nodes: Any, links: Any, generators: Any, sentence: str) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology("t", nodes, links, generators)
    assert sentence in str(caught.value)


def test_switches_of_different_ability_are_not_alike() -> None:
    nodes = (RANKS[0], Node(1, "switch", "s", multicast=True), Node(2, "switch", "t"))
    with pytest.raises(TopologyError, match="another kind"):
        Topology("t", nodes, (), ((0, 2, 1),))


@given(networks())
def test_links_are_found_from_both_ends(topology: Topology) -> None:
    everywhere = range(len(topology.nodes))
    for node in everywhere:
        assert list(topology.links_from(node)) == [link for link in topology.links if link.src == node]
        assert list(topology.links_to(node)) == [link for link in topology.links if link.dst == node]
        for other in everywhere:
            expected = [link for link in topology.links if (link.src, link.dst) == (node, other)]
            assert list(topology.links_between(node, other)) == expected
    assert topology.ranks == sum(node.kind == "rank" for node in topology.nodes)


@given(networks())
def test_reversing_turns_every_link_and_twice_is_nothing(topology: Topology) -> None:
    turned = topology.reversed()
    assert [(link.id, link.src, link.dst) for link in turned.links] == [
        (link.id, link.dst, link.src) for link in topology.links
    ]
    assert turned.reversed().renamed(topology.name) == topology


@given(names())
def test_reversing_a_family_keeps_its_symmetry(name: str) -> None:
    topology = parse(name)
    assert topology.reversed().generators == topology.generators
    assert topology.reversed().name == f"{name} reversed"
    assert topology.reversed().reversed() == topology


def test_renaming_leaves_the_original_alone() -> None:
    topology = parse("ring:4")
    assert topology.renamed("loop").name == "loop"
    assert topology.name == "ring:4"
    assert topology.renamed("ring:4") == topology
