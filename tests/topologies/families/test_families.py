"""Families against formulas and against numbers published for the machines that they stand for."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import networkx as nx
import pytest

from syntony.base.quantity import count
from syntony.topologies import Topology, TopologyError, parse
from syntony.topologies.families import FAMILIES
from syntony.topologies.families.boxes.rates import BOX_PARAMETERS, DGX_A100_RATES, BoxRates
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.distance import diameter
from syntony.topologies.graph.symmetry import group_order, orbits
from tests.topologies.cuts import cut, inflow
from tests.topologies.named import EXAMPLES, SMALL

GIGA = 10**9


@pytest.mark.parametrize(
    ("name", "ranks", "nodes", "cables", "degrees", "hops"),
    [
        ("ring:1", 1, 1, 0, {0}, 0),
        ("ring:2", 2, 2, 1, {1}, 1),
        ("ring:7", 7, 7, 7, {2}, 3),
        ("ring:8", 8, 8, 8, {2}, 4),
        ("full:6", 6, 6, 15, {5}, 1),
        ("star:8", 8, 9, 8, {1}, 1),
        ("torus:4x4", 16, 16, 32, {4}, 4),
        ("torus:5x3", 15, 15, 30, {4}, 3),
        ("torus:4x4x4", 64, 64, 192, {6}, 6),
        ("torus:2x3", 6, 6, 9, {3}, 2),
        ("mesh:4x4", 16, 16, 24, {2, 3, 4}, 6),
        ("mesh:8", 8, 8, 7, {1, 2}, 7),
        ("mesh:2x3x4", 24, 24, 46, {3, 4, 5}, 6),
        ("hypercube:0", 1, 1, 0, {0}, 0),
        ("hypercube:5", 32, 32, 80, {5}, 5),
        ("dgx1", 8, 8, 16, {4}, 2),
        ("dgx-a100", 8, 9, 8, {1}, 1),
        ("dgx-a100:2", 16, 16 + 2 + 16 + 1, 16 + 16 + 16, {2}, 1),
        ("dgx-h100:4", 32, 32 + 4 + 32 + 1, 96, {2}, 1),
        ("rail:boxes=4,gpus=8,rails=8", 32, 32 + 4 + 32 + 8, 96, {2}, 2),
        ("rail:boxes=3,gpus=8,rails=4", 24, 24 + 3 + 12 + 4, 24 + 24 + 12, {2}, 2),
        ("rail:boxes=2,gpus=2,rails=4", 4, 4 + 2 + 8 + 4, 4 + 8 + 8, {3}, 2),
    ],
)
def test_sizes_degrees_and_diameters(
    name: str, ranks: int, nodes: int, cables: int, degrees: set[int], hops: int
) -> None:
    topology = parse(name)
    assert topology.ranks == ranks
    assert len(topology.nodes) == nodes
    assert len(topology.links) == 2 * cables
    assert {len(topology.links_from(rank)) for rank in range(ranks)} == degrees
    assert {len(topology.links_to(rank)) for rank in range(ranks)} == degrees
    assert diameter(topology) == hops


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("ring:8", 2 * GIGA),
        ("ring:7", 2 * GIGA),
        ("full:8", 16 * GIGA),
        ("full:7", 12 * GIGA),
        ("star:8", 4 * GIGA),
        ("mesh:8", GIGA),
        ("mesh:4x2", 2 * GIGA),
        ("mesh:3x3", 4 * GIGA),
        ("torus:4x2", 4 * GIGA),
        ("torus:3x3", 8 * GIGA),
        ("hypercube:3", 4 * GIGA),
        ("dgx1", 6 * 25 * GIGA),
        ("dgx-a100", 4 * 300 * GIGA),
        ("rail:2,4,4", 4 * 50 * GIGA),
        ("rail:2,4,2", 2 * 50 * GIGA),
    ],
)
def test_bisection_over_all_even_splits(name: str, bandwidth: int) -> None:
    """Formulas: ring 2, full floor(n/2)*ceil(n/2), mesh and torus 1 or 2 per line across, hypercube n/2, ..."""
    topology = parse(name)
    half = topology.ranks // 2
    ranks = range(topology.ranks)
    least = min(cut(topology, set(chosen), set(ranks) - set(chosen)) for chosen in itertools.combinations(ranks, half))
    assert least == bandwidth


def test_boxes_meet_at_the_rate_of_their_nics() -> None:
    assert cut(parse("dgx-a100:2"), set(range(8)), set(range(8, 16))) == 8 * 25 * GIGA
    assert cut(parse("dgx-h100:3"), set(range(8)), set(range(8, 24))) == 8 * 50 * GIGA


@pytest.mark.parametrize(
    ("name", "inverse_rate"),
    [
        ("dgx1:bandwidth=1", Fraction(7, 6)),
        ("dgx-a100", Fraction(7, 300 * GIGA)),
        ("dgx-a100:2", Fraction(3, 65 * GIGA)),
        ("dgx-h100:2", Fraction(3, 100 * GIGA)),
        ("torus:4x4,bandwidth=1", Fraction(15, 4)),
        ("mesh:4x4,bandwidth=1", Fraction(15, 2)),
    ],
)
def test_allgather_optimum_is_the_published_one(name: str, inverse_rate: Fraction) -> None:
    """ForestColl's algebra: a broadcast rate x per rank is possible if and only if every rank can take in N*x."""
    topology = parse(name)
    for rate, feasible in ((1 / inverse_rate, True), (Fraction(1001, 1000) / inverse_rate, False)):
        inflows = [inflow(topology, rate, rank) for rank in range(topology.ranks)]
        assert all(flow >= topology.ranks * rate for flow in inflows) == feasible


def test_dgx1_has_six_nvlinks_per_gpu_and_two_double_neighbours() -> None:
    topology = parse("dgx1")
    for rank in range(8):
        rates = sorted(link.bandwidth / (25 * GIGA) for link in topology.links_from(rank))
        assert rates == [1, 1, 2, 2]


def test_two_wide_torus_is_the_hypercube() -> None:
    torus, cube = parse("torus:2x2x2"), parse("hypercube:3")
    assert {(link.src, link.dst) for link in torus.links} == {(link.src, link.dst) for link in cube.links}


def test_grid_bandwidths_follow_their_dimension() -> None:
    topology = parse("mesh:3x3,bandwidth=2e9x5e9")
    down, across = topology.links_between(0, 3), topology.links_between(0, 1)
    assert [link.bandwidth for link in (*down, *across)] == [2 * GIGA, 5 * GIGA]


def test_ability_to_multicast_is_where_the_hardware_has_it() -> None:
    able = [node.name for node in parse("dgx-h100:2").nodes if node.multicast and node.reduces]
    assert able == ["nvswitch0", "nvswitch1"]
    assert not any(node.multicast or node.reduces for node in parse("dgx-h100:2,nvls=off").nodes)
    assert not any(node.multicast or node.reduces for node in parse("dgx-a100:2").nodes)


@pytest.mark.parametrize("name", [*SMALL, *EXAMPLES])
def test_every_generator_is_an_automorphism(name: str) -> None:
    """Checked here without the library: node by node, and the links as sorted lists."""
    topology = parse(name)
    wires = sorted((link.src, link.dst, link.alpha, link.bandwidth) for link in topology.links)
    for generator in topology.generators:
        assert sorted(generator) == list(range(len(topology.nodes)))
        ends = [(generator[link.src], generator[link.dst]) for link in topology.links]
        moved = sorted((*end, link.alpha, link.bandwidth) for end, link in zip(ends, topology.links, strict=True))
        assert moved == wires
        for node in topology.nodes:
            image = topology.nodes[generator[node.id]]
            assert (image.kind, image.multicast, image.reduces) == (node.kind, node.multicast, node.reduces)


@pytest.mark.parametrize(
    "name",
    ["ring:5", "full:5", "star:4", "mesh:3x2", "mesh:2x2", "torus:3x3", "mesh:3x3,bandwidth=2e9x1e9", "hypercube:3",
     "dgx1", "rail:2,2,2", "rail:2,2,1", "rail:2,1,2", "rail:3,2,2"],
)  # fmt: skip
def test_declared_symmetry_is_all_there_is(name: str) -> None:
    """Counted by exhaustive search. (Some graphs have more than their family declares; these have not.)"""
    topology = parse(name)
    graph = nx.DiGraph()
    for node in topology.nodes:
        graph.add_node(node.id, kind=node.kind)
    for link in topology.links:
        graph.add_edge(link.src, link.dst, rate=link.bandwidth)
    matcher = nx.algorithms.isomorphism.DiGraphMatcher(
        graph, graph, node_match=lambda a, b: a == b, edge_match=lambda a, b: a == b
    )
    count = sum(1 for _ in matcher.isomorphisms_iter())
    assert group_order(len(topology.nodes), topology.generators) == count


@pytest.mark.parametrize(
    "name", ["ring:9", "full:4", "star:6", "torus:4x3x2", "hypercube:4", "dgx-a100:3", "rail:3,4,2"]
)
def test_all_ranks_are_alike(name: str) -> None:
    topology = parse(name)
    assert orbits(len(topology.nodes), topology.generators)[0] == list(range(topology.ranks))


@pytest.mark.parametrize("name", [*SMALL, *EXAMPLES])
def test_every_node_has_a_place_of_its_own(name: str) -> None:
    places = [node.place for node in parse(name).nodes]
    assert None not in places
    for (ax, ay), (bx, by) in itertools.combinations(places, 2):  # type: ignore[misc]
        assert (ax - bx) ** 2 + (ay - by) ** 2 > 0.3**2


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_the_table_of_families_is_complete(family: object) -> None:
    from syntony.topologies.families.family import Family

    assert isinstance(family, Family)
    assert parse(family.example).name == family.example
    assert family.source
    assert family.summary
    assert not family.summary.endswith(".")
    assert set(family.defaults()) <= {parameter.name for parameter in family.parameters}
    assert family.build.__doc__


@pytest.mark.parametrize("name", ["full:1025", "torus:2000x2000", "star:3000000"])
def test_a_size_beyond_reason_is_refused(name: str) -> None:
    with pytest.raises(TopologyError, match=r"more than 100000 nodes|1 to 1024"):
        parse(name)


def test_each_rate_of_a_box_is_a_parameter() -> None:
    built: list[tuple[int, BoxRates]] = []

    def build(boxes: int, rates: BoxRates = DGX_A100_RATES) -> Topology:
        built.append((boxes, rates))
        return parse("ring:2")

    boxes = Parameter("boxes", count, "boxes")
    family = Family("of-boxes", build, (boxes, *BOX_PARAMETERS), summary="", source="", example="")
    assert dict(family.defaults()) == vars(DGX_A100_RATES)
    assert family.signature().startswith("of-boxes:BOXES,bandwidth=300e9,alpha=3.5e-07,pcie_bandwidth=31.5e9,")
    family.topology({"boxes": 3})
    family.topology({"nic_bandwidth": Fraction(7), "boxes": 2, "alpha": 1.0})
    assert built == [(3, DGX_A100_RATES), (2, replace(DGX_A100_RATES, alpha=1.0, nic_bandwidth=Fraction(7)))]
