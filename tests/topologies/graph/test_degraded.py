"""Degraded machines: what is left is what was there, and of the symmetry all that still holds."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.topologies import Permutation, Topology, parse
from syntony.topologies.file_format import write
from syntony.topologies.graph.degraded import degraded
from syntony.topologies.graph.symmetry import orbits
from tests.sampled import examples
from tests.topologies.named import refusal

NAMES = [
    "torus:3x4",
    "mesh:2x3",
    "full:4",
    "star:4",
    "dgx1",
    "dgx-a100:2",
    "rail:boxes=2,gpus=4,rails=2",
    "hypercube:3",
]


@examples(60)
@given(st.sampled_from(NAMES), st.data())
def test_what_is_left_is_what_was_there(name: str, data: st.DataObject) -> None:
    intact = parse(name)
    link = intact.links[data.draw(st.integers(0, len(intact.links) - 1))]
    slow = intact.links[data.draw(st.integers(0, len(intact.links) - 1))]
    node = data.draw(st.integers(1, len(intact.nodes) - 1))
    one_way = data.draw(st.booleans())
    names = [vertex.name for vertex in intact.nodes]
    wire = f"{names[link.src]}{'->' if one_way else '-'}{names[link.dst]}"
    damage = degraded(intact, [wire, names[node]], [f"{names[slow.src]}->{names[slow.dst]}@25%"])
    gone = {(link.src, link.dst)} | (set() if one_way else {(link.dst, link.src)})
    left = damage.topology
    for old in intact.links:
        now = int(damage.link_at[old.id])
        assert (now < 0) == ((old.src, old.dst) in gone or node in (old.src, old.dst))
        if now >= 0:
            same = left.links[now]
            assert (names[old.src], names[old.dst]) == (left.nodes[same.src].name, left.nodes[same.dst].name)
            slower = (old.src, old.dst) == (slow.src, slow.dst)
            assert same.bandwidth == old.bandwidth * (Fraction(1, 4) if slower else 1)
    assert damage.node_at[node] == -1
    assert [vertex.name for vertex in left.nodes] == [name for name in names if name != names[node]]


@pytest.mark.parametrize("name", ["torus:3x3", "full:4", "star:4", "dgx1", "mesh:3x3", "torus:2x4", "ring:6"])
@pytest.mark.parametrize("lost", ["0-1", "0->1", "rank0"])
def test_the_symmetry_that_is_left_has_the_orbits_of_the_stabilizer(name: str, lost: str) -> None:
    intact = parse(name)
    if name == "star:4":
        lost = lost.replace("1", "switch")
    left = degraded(intact, [lost])
    marks = [int(node) for node in range(len(intact.nodes)) if left.node_at[node] < 0]
    lost_links = {link.id for link in intact.links if left.link_at[link.id] < 0}
    fixing = []
    for element in _group(intact):
        moved = intact.link_permutation(element)
        if {moved[link] for link in lost_links} == lost_links and all(element[mark] == mark for mark in marks):
            kept = [node for node in range(len(intact.nodes)) if left.node_at[node] >= 0]
            fixing.append(tuple(int(left.node_at[element[node]]) for node in kept))
    count = len(left.topology.nodes)
    assert orbits(count, left.topology.generators) == orbits(count, fixing)


def _group(topology: Topology) -> set[Permutation]:
    """All elements of the declared group, one by one."""
    found = {tuple(range(len(topology.nodes)))}
    frontier = list(found)
    while frontier:
        fresh = [tuple(generator[i] for i in element) for element in frontier for generator in topology.generators]
        frontier = [element for element in dict.fromkeys(fresh) if element not in found]
        found.update(frontier)
    return found


def test_the_orbits_of_large_machines_stay_few() -> None:
    left = parse("dgx-h100:128,without=nic0.0")
    assert len([orbit for orbit in orbits(len(left.nodes), left.generators) if orbit[0] < left.ranks]) == 3


def test_names_take_damage_wherever_they_come_from(tmp_path: Path) -> None:
    reference = parse("ring:4,without=0-1,slowed=1-2@1/2")
    assert len(reference.links) == 6
    assert reference.links_between(1, 2)[0].bandwidth == Fraction(10**9, 2)
    path = tmp_path / "ring,of,four.json"
    write(parse("ring:4"), path)
    assert parse(f"file:{path},without=0-1,slowed=1-2@1/2").renamed(reference.name) == reference
    assert parse(" ring:4, without=0-1, slowed=1-2@50% ").renamed(reference.name) == reference


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("dgx1,without=0-9", "dgx1: 0-9 is not a link: no node is named '9'; ranks are 0..7"),
        ("dgx1,without=0-5", "no link leads from rank0 to rank5; those from rank0 lead to rank1, rank2, rank3, rank4"),
        ("dgx1,without=rnk3", "no node is named 'rnk3' (did you mean rank3?)"),
        ("dgx1,without=", "no node is named ''"),
        ("dgx-h100:2,without=nic0.0-netwrk", "no node is named 'netwrk' (did you mean network?)"),
        ("dgx1,slowed=0-1", "slowed=0-1 does not say how much bandwidth is left; write slowed=0-1@50%"),
        ("dgx1,slowed=0-1@150%", "'150%' is not a part of a bandwidth; write what is left, such as 50% or 1/2"),
        ("dgx1,slowed=0-1@0", "'0' is not a part of a bandwidth"),
        ("dgx1,slowed=0-1@1/0", "'1/0' is not a part of a bandwidth"),
        ("dgx1,slowed=0-1@half", "'half' is not a part of a bandwidth"),
        ("ring:1,without=0", "no rank is left"),
    ],
)
def test_damage_that_cannot_be_gets_a_sentence(name: str, sentence: str) -> None:
    said = refusal(lambda: parse(name))
    assert said is not None
    assert sentence in said
