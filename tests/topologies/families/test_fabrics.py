"""Switched fabrics against the formulas and port counts of the papers and data sheets that they come from.

Every number on the right-hand side is written down by hand from the source, not computed by the code under test.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from fractions import Fraction
from functools import lru_cache

import networkx as nx
import pytest

from syntony.topologies import Topology, TopologyError, file_format, parse
from syntony.topologies.graph.distance import diameter, longest_route
from syntony.topologies.graph.symmetry import group_order, orbits
from syntony.topologies.hosts import hosts_of

GIGA = 10**9

large = lru_cache(parse)
"""The clusters of full size, built once for all tests."""


@pytest.mark.parametrize(
    ("name", "ranks", "switches", "nics", "cables", "hops", "route"),
    [
        # clos: L leaves of H ranks under S spines have L H + L S cables; pods have cores on top.
        ("clos:leaves=2,hosts=2,oversubscription=4", 4, 3, 0, 4 + 2, 1, 4),
        ("clos:leaves=4,hosts=3,spines=2", 12, 6, 0, 12 + 8, 1, 4),
        ("clos:leaves=1,hosts=3", 3, 2, 0, 4, 1, 2),
        ("clos:2,3,spines=2,pods=4,cores=6", 24, 8 + 8 + 6, 0, 24 + 16 + 24, 1, 6),
        # fat-tree (Al-Fares et al., section 3): k^3/4 hosts, 5 k^2/4 switches, k^3/4 cables in each of three layers.
        ("fat-tree:2", 2, 5, 0, 6, 1, 6),
        ("fat-tree:4", 16, 20, 0, 48, 1, 6),
        ("fat-tree:8", 128, 80, 0, 384, 1, 6),
        # dragonfly (Kim et al., section 3.1): N = a p (a h + 1); a = 4, p = h = 2 is the paper's example of 72 nodes.
        ("dragonfly:a=4,p=2,h=2", 72, 36, 0, 72 + 9 * 6 + 36, 1, 5),
        ("dragonfly:a=4,p=2,h=2,g=5", 40, 20, 0, 40 + 5 * 6 + 20, 1, 5),
        ("dragonfly:a=2,p=1,h=1,g=3", 6, 6, 0, 6 + 3 + 3, 1, 5),
        ("dragonfly:a=1,p=2,h=4", 10, 5, 0, 10 + 10, 1, 3),  # one router a group: a full mesh of routers
        # dragonfly+ (Shpiner et al.): k ports give k^2/4 hosts a group, k^2/4 + 1 groups of k switches.
        ("dragonfly-plus:2,2,2,2", 20, 20, 0, 20 + 5 * 4 + 10, 1, 5),
        ("dragonfly-plus:3,3,3,3", 90, 60, 0, 90 + 10 * 9 + 45, 1, 5),
        # bigraph (ACCL): two layers of s switches, s^2 cables between them, three switches on the way at most.
        ("bigraph:switches=3,hosts=2", 12, 6, 0, 12 + 9, 1, 4),
        ("bigraph:switches=4,hosts=8", 64, 8, 0, 64 + 16, 1, 4),
        # Boxes: a cable to the NVSwitch, one to the NIC and one from there, for each GPU (HPN: two from there).
        ("llama3-24k:pods=2,racks=3,boxes=2,gpus=4,spines=2", 48, 12 + 6 + 4 + 2, 48, 3 * 48 + 12 + 4, 1, 8),
        ("llama3-24k:pods=1,racks=3,boxes=2,gpus=4,spines=2", 24, 6 + 3 + 2, 24, 3 * 24 + 6, 1, 6),
        ("superpod:units=3,boxes=4,gpus=2,spines=2", 24, 12 + 6 + 2, 24, 3 * 24 + 12, 1, 6),
        ("superpod:units=3,boxes=4,gpus=2,spines=4,cores=2", 24, 12 + 6 + 4 + 2, 24, 3 * 24 + 12 + 8, 1, 8),
        ("megascale:pods=2,groups=2,boxes=2,gpus=4,spines=2,cores=4", 32, 8 + 16 + 4 + 4, 32, 3 * 32 + 32 + 8, 1, 8),
        ("hpn:segments=2,boxes=2,gpus=2,spines=2", 8, 4 + 8 + 4, 8, 4 * 8 + 16, 1, 6),
        ("hpn:pods=2,segments=1,boxes=2,gpus=2,spines=2,cores=3", 8, 4 + 8 + 8 + 6, 8, 32 + 16 + 24, 1, 8),
        ("rail-only:domains=4,gpus=2", 8, 4 + 2, 8, 3 * 8, 2, 6),
        ("rail-only:domains=8,gpus=2,radix=4", 16, 8 + 8 + 4, 16, 3 * 16 + 16, 2, 8),
    ],
)
def test_counts_and_distances(
    name: str, ranks: int, switches: int, nics: int, cables: int, hops: int, route: int
) -> None:
    topology = parse(name)
    kinds = Counter(node.kind for node in topology.nodes)
    assert (kinds["rank"], kinds["switch"], kinds["nic"]) == (ranks, switches, nics)
    assert len(topology.links) == 2 * cables
    assert diameter(topology) == hops
    assert longest_route(topology) == route


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("fat-tree:4", {"rank": {1}, "leaf": {4}, "spine": {4}, "core": {4}}),
        ("fat-tree:8", {"rank": {1}, "leaf": {8}, "spine": {8}, "core": {8}}),
        ("clos:leaves=4,hosts=3,spines=2", {"rank": {1}, "leaf": {5}, "spine": {4}}),
        ("dragonfly:a=4,p=2,h=2", {"rank": {1}, "r": {2 + 2 + 3}}),  # p + h + a - 1 ports
        ("dragonfly:a=4,p=2,h=2,g=6", {"rank": {1}, "r": {5, 6, 7}}),  # 8 ports for 5 other groups: 3 stay unused
        ("dragonfly-plus:3,3,3,3", {"rank": {1}, "leaf": {6}, "spine": {6}}),
        ("bigraph:switches=4,hosts=8", {"rank": {1}, "upper": {12}, "lower": {12}}),
        ("hpn:segments=2,boxes=3,gpus=2,spines=5", {"rank": {2}, "nvswitch": {2}, "nic": {3}, "tor": {8}, "agg": {4}}),
        ("rail-only:domains=8,gpus=2,radix=4", {"rank": {2}, "nvswitch": {2}, "nic": {2}, "leaf": {4}, "spine": {4}}),
    ],
)
def test_degrees(name: str, degrees: dict[str, set[int]]) -> None:
    topology = parse(name)
    found: dict[str, set[int]] = {}
    for node in topology.nodes:
        assert len(topology.links_from(node.id)) == len(topology.links_to(node.id))
        found.setdefault(_layer(node.name), set()).add(len(topology.links_from(node.id)))
    assert found == degrees


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        # Half of the leaves against the other half: (L / 2) H b / oversubscription.
        ("clos:leaves=2,hosts=2,oversubscription=4", Fraction(GIGA, 2)),
        ("clos:leaves=2,hosts=4,spines=3,oversubscription=4", Fraction(GIGA)),
        ("clos:leaves=4,hosts=2,spines=2,oversubscription=4", Fraction(GIGA)),
        ("clos:leaves=4,hosts=2,spines=2", Fraction(4 * GIGA)),
        # Two pods of 2 leaves of 2 ranks, 7/2 : 1 at their spines.
        ("clos:2,2,spines=2,pods=2,core_oversubscription=7/2", Fraction(8 * GIGA, 7)),
        # s = 2: the worst split takes an upper and a lower switch on each side, s^2/2 cables of h b / s.
        ("bigraph:switches=2,hosts=2", Fraction(25 * GIGA)),
        ("rail-only:domains=4,gpus=2", Fraction(4 * 50 * GIGA)),
        ("hpn:segments=2,boxes=2,gpus=2,spines=2", Fraction(2 * 2 * 50 * GIGA * 15, 16)),  # 16 : 15 at the leaves
    ],
)
def test_bisection_over_all_even_splits(name: str, bandwidth: Fraction) -> None:
    topology = parse(name)
    ranks = range(topology.ranks)
    halves = (set(half) for half in itertools.combinations(ranks, len(ranks) // 2) if 0 in half)
    assert min(_flow(topology, half) for half in halves) == bandwidth


@pytest.mark.parametrize("name", ["fat-tree:4", "clos:leaves=3,hosts=4,spines=5", "fat-tree:6"])
def test_without_oversubscription_every_half_talks_at_full_rate(name: str) -> None:
    topology = parse(name)
    half = topology.ranks // 2
    choose = random.Random(20)
    for _ in range(10):
        assert _flow(topology, set(choose.sample(range(topology.ranks), half))) == half * GIGA


@pytest.mark.parametrize(
    ("name", "side", "bandwidth"),
    [
        # Kim et al., section 3: every two groups share a global cable, so 4 groups have 4 * 5 to the other 5.
        ("dragonfly:a=4,p=2,h=2", 4 * 8, 20 * 25 * GIGA),
        ("dragonfly-plus:2,2,2,2", 2 * 4, 6 * Fraction(25 * GIGA, 2)),
        # The layers of a BiGraph meet at full rate: N / 2 cables' worth.
        ("bigraph:switches=4,hosts=8", 32, 32 * Fraction(25 * GIGA, 2)),
        ("bigraph:switches=3,hosts=2,oversubscription=3", 6, 2 * Fraction(25 * GIGA, 2)),
        # A pod of 24 GPUs with 50 GB/s each, 7 : 1 above.
        ("llama3-24k:pods=2,racks=3,boxes=2,gpus=4,spines=2", 24, Fraction(24 * 50 * GIGA, 7)),
        ("llama3-24k:pods=1,racks=4,boxes=2,gpus=4,spines=2", 16, 16 * 50 * GIGA),
        ("superpod:units=2,boxes=4,gpus=2,spines=2", 8, 8 * 50 * GIGA),
        ("superpod-a100:units=2,boxes=2,gpus=2,spines=4,cores=4,planes=2", 4, 4 * 25 * GIGA),
        ("megascale:pods=2,groups=2,boxes=2,gpus=4,spines=2,cores=4", 16, 16 * 25 * GIGA),
        # Two planes of 2 segments of 2 boxes of 2 rails at 25 GB/s a port, 16 : 15 at the leaves and 15 : 1 above.
        ("hpn:pods=2,segments=2,boxes=2,gpus=2,spines=2", 8, Fraction(2 * 8 * 25 * GIGA, 16)),
    ],
)
def test_bandwidth_between_halves(name: str, side: int, bandwidth: Fraction) -> None:
    """The first `side` ranks against the rest: groups, layers, pods or units."""
    assert _flow(parse(name), set(range(side))) == bandwidth


@pytest.mark.parametrize(
    ("name", "gpus", "switches"),
    [
        # Llama 3, section 3.3.1: 8 pods of 3,072 GPUs, 192 racks a pod.
        ("llama3-24k", 24_576, {"tor": 1536, "cluster": 128, "aggregation": 16}),
        # DGX SuperPOD H100, table of component counts: 4, 16 and 32 units.
        ("superpod", 1024, {"leaf": 32, "spine": 16}),
        ("superpod:units=16,spines=128,cores=64,planes=2", 4096, {"leaf": 128, "spine": 128, "core": 64}),
        ("superpod:units=32,spines=256,cores=128,planes=4", 8192, {"leaf": 256, "spine": 256, "core": 128}),
        # DGX SuperPOD A100: 140 boxes.
        ("superpod-a100", 1120, {"leaf": 56, "spine": 80, "core": 28}),
        # MegaScale trains on 12,288 GPUs.
        ("megascale", 12_288, {"tor": 192, "spine": 192, "core": 1024}),
        # HPN: a pod is 15 segments of 1,024 GPUs with 16 leaves, and has 60 switches a plane.
        ("hpn", 15_360, {"tor": 240, "agg": 120}),
    ],
)
def test_the_published_sizes(name: str, gpus: int, switches: dict[str, int]) -> None:
    topology = large(name)
    assert topology.ranks == gpus
    kinds = Counter(_layer(node.name) for node in topology.nodes)
    assert kinds == {"rank": gpus, "nic": gpus, "nvswitch": gpus // 8, **switches}


@pytest.mark.parametrize(
    ("name", "layer", "below", "above", "port"),
    [
        # Ports below and above, in units of the published port: a trunk counts as the cables it stands for.
        ("llama3-24k", "tor", 16, 16, 50 * GIGA),
        ("llama3-24k", "cluster", 192, Fraction(192, 7), 50 * GIGA),
        ("superpod", "leaf", 32, 32, 50 * GIGA),
        ("superpod", "spine", 64, 0, 50 * GIGA),
        ("superpod:units=16,spines=128,cores=64,planes=2", "spine", 32, 32, 50 * GIGA),
        ("superpod:units=16,spines=128,cores=64,planes=2", "core", 64, 0, 50 * GIGA),
        ("superpod-a100", "leaf", 20, 20, 25 * GIGA),
        ("superpod-a100", "spine", 14, 14, 25 * GIGA),
        ("superpod-a100", "core", 40, 0, 25 * GIGA),
        ("megascale:pods=2", "tor", 64, 64, 25 * GIGA),  # 64 x 200 Gb/s down, 32 x 400 Gb/s up
        ("megascale:pods=2", "spine", 32, 32, 50 * GIGA),
        ("hpn:pods=2", "tor", 128, 120, 25 * GIGA),  # 128 x 200 Gb/s down, 60 x 400 Gb/s up
        ("hpn:pods=2", "agg", 120, 8, 50 * GIGA),
        ("hpn:pods=2", "core", 120, 0, 50 * GIGA),
    ],
)
def test_the_published_ports(name: str, layer: str, below: int, above: int | Fraction, port: int) -> None:
    topology = large(name)
    height = {node.id: node.place[1] for node in topology.nodes if node.place}
    for node in topology.nodes:
        if _layer(node.name) == layer:
            up, down = Fraction(0), Fraction(0)
            for link in topology.links_from(node.id):
                if height[link.dst] > height[node.id]:
                    up += link.bandwidth
                else:
                    down += link.bandwidth
            assert (down, up) == (below * port, above * port)


def test_pods_of_llama3_are_oversubscribed_seven_to_one() -> None:
    """From the links alone: what leaves a pod is a seventh of what its 3,072 NICs of 400 Gb/s bring in."""
    topology = large("llama3-24k")
    pod = {node.id for node in topology.nodes if node.name.startswith(("cluster0.", "tor0."))}
    leaving = sum(link.bandwidth for link in topology.links if link.src in pod and link.dst not in pod)
    entering = [link for link in topology.links if topology.nodes[link.src].kind == "nic" and link.dst in pod]
    assert len(entering) == 3072
    assert leaving == 3072 * 50 * GIGA + Fraction(3072 * 50 * GIGA, 7)  # back to the NICs, and up


@pytest.mark.parametrize(
    ("name", "cables"),
    [("dragonfly:a=4,p=2,h=2", 1), ("dragonfly:a=4,p=2,h=2,g=5", 2), ("dragonfly:a=3,p=1,h=5,g=6", 3),
     ("dragonfly:a=4,p=2,h=2,g=6", 1), ("dragonfly-plus:2,2,2,2", 1), ("dragonfly-plus:2,3,1,4,groups=5", 3)],
)  # fmt: skip
def test_every_two_groups_share_the_same_number_of_global_cables(name: str, cables: int) -> None:
    topology = parse(name)
    group = [node.name.strip("leafspinrk").partition(".")[0] for node in topology.nodes]
    pairs = Counter(
        (group[link.src], group[link.dst])
        for link in topology.links
        if min(link.src, link.dst) >= topology.ranks and group[link.src] != group[link.dst]
    )
    groups = {group[node] for node in range(topology.ranks, len(topology.nodes))}
    assert pairs == dict.fromkeys(itertools.permutations(groups, 2), cables)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("rail-only:domains=4,gpus=3", 3),
        ("rail-only:domains=8,gpus=2,radix=4", 2),
        ("hpn:segments=3,boxes=2,gpus=2,spines=2", 2),
        ("hpn:pods=2,segments=1,boxes=2,gpus=2,spines=2", 2),
        ("superpod:units=2,boxes=2,gpus=2,spines=2", 1),
        ("superpod-a100:units=2,boxes=2,gpus=2,spines=4,cores=2", 1),
        ("megascale:pods=2,groups=1,boxes=2,gpus=2,spines=3", 1),
    ],
)
def test_rails_and_planes_meet_where_they_should(name: str, parts: int) -> None:
    """Without boxes and NICs the rails of rail-only fall apart, and so do the planes of HPN; the others stay whole."""
    topology = parse(name)
    network = nx.Graph()
    for node in topology.nodes:
        if node.kind == "switch" and not node.name.startswith("nvswitch"):
            network.add_node(node.id)
    network.add_edges_from(
        (link.src, link.dst) for link in topology.links if link.src in network and link.dst in network
    )
    assert nx.number_connected_components(network) == parts


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("clos:leaves=3,hosts=2,spines=2", 2**3 * math.factorial(3) * 2),
        ("fat-tree:4", 2**8 * 2**4 * math.factorial(4) * 2**2 * 2),
        ("bigraph:switches=3,hosts=2", 2**6 * math.factorial(3) ** 2 * 2),
        ("dragonfly:a=2,p=2,h=1", 2**6 * 3 * 2),
        ("dragonfly-plus:2,2,2,2", 2**10 * 2**5 * 5 * 2),
        ("llama3-24k:pods=2,racks=2,boxes=2,gpus=2,spines=2", 2**8 * 2**4 * 2**2 * 2 * 2),
        ("superpod:units=2,boxes=3,gpus=2,spines=2", 6**2 * 2**2 * 2 * 2),
        ("superpod-a100:units=3,boxes=2,gpus=2,spines=4,cores=4,planes=2", 2**3 * 6 * 2 * 2**2 * 2),
        ("megascale:pods=2,groups=1,boxes=2,gpus=3,spines=2,cores=2", 2**2 * 6**2 * 2 * 2),
        ("rail-only:domains=8,gpus=2,radix=4", 2**4 * math.factorial(4) * 2 * 2**2),
        ("hpn:segments=2,boxes=2,gpus=2,spines=2", 2**2 * 2**2 * 2 * 2**2 * 2),
    ],
)
def test_the_declared_symmetry(name: str, order: int) -> None:
    """Boxes, rails, pods, spines and cores permuted as the docstrings say, counted by hand."""
    topology = parse(name)
    assert group_order(len(topology.nodes), topology.generators) == order
    assert orbits(len(topology.nodes), topology.generators)[0] == list(range(topology.ranks))


def test_hosts_are_the_boxes() -> None:
    hosts = hosts_of(parse("hpn:segments=2,boxes=2,gpus=2,spines=2"))
    assert [(host.ranks, len(host.nics)) for host in hosts] == [((2 * b, 2 * b + 1), 2) for b in range(4)]
    assert len(hosts_of(parse("clos:leaves=2,hosts=2,oversubscription=4"))) == 4


def test_switches_add_and_copy_where_asked() -> None:
    assert {_layer(node.name) for node in parse("superpod:2,2,2,2,sharp=on,nvls=off").nodes if node.reduces} == {
        "leaf",
        "spine",
    }
    assert all(node.reduces and node.multicast for node in parse("fat-tree:4,multicast=on,reduces=on").nodes[16:])
    assert not any(node.reduces or node.multicast for node in parse("fat-tree:4").nodes)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("clos:leaves=0,hosts=2", "clos: leaves is 0; it must be at least 1"),
        ("clos:leaves=2,hosts=2,cores=4", "cores join pods, but pods is 1"),
        ("clos:leaves=2,hosts=2,spines=2,pods=2,cores=3", "a multiple of the 2 planes"),
        ("clos:leaves=2,hosts=2,core_oversubscription=2", "a single pod has no cores"),
        ("clos:leaves=2,hosts=2,oversubscription=0", "a positive number such as 4 or 7/2"),
        ("fat-tree:3", "fat-tree: k is 3; a switch has an even number of ports"),
        ("dragonfly:a=2,p=1,h=1,g=4", "g is 4; 2 routers with 1 global cables reach 3 groups"),
        ("dragonfly:a=0", "a is 0; it must be at least 1"),
        ("dragonfly-plus:2,2,2,2,groups=6", "groups is 6; 2 spines with 2 uplinks reach 5"),
        ("bigraph:switches=0", "switches is 0; it must be at least 1"),
        ("llama3-24k:pods=1,racks=1,boxes=1", "one box has no network"),
        ("llama3-24k:pods=2,spines=4,cores=6", "a multiple of the 4 planes"),
        ("superpod:planes=2", "but planes divide cores, and there are none"),
        ("superpod:units=2,spines=12,cores=4", "spines is 12; under cores it must be a multiple of 8 rails"),
        ("superpod:units=2,spines=16,cores=3,planes=2", "cores is 3; it must be a multiple of the 2 planes"),
        ("superpod:units=1,boxes=1", "a SuperPOD joins at least 2 boxes"),
        ("megascale:pods=0", "pods is 0; it must be at least 1"),
        ("rail-only:domains=1", "rails join at least 2 domains"),
        ("rail-only:domains=9,radix=4", "beyond 4 it must be a multiple of 2, half the ports"),
        ("rail-only:domains=10,radix=4", "domains is 10; two layers reach 8"),
        ("hpn:cores=8", "cores join pods, but pods is 1"),
        ("clos:leaves=1000,hosts=200", "more than 100000 nodes"),
    ],
)
def test_what_cannot_be_built_is_refused_in_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(name)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("name", ["megascale:pods=1", "superpod-a100", "dragonfly:a=8,p=4,h=4", "fat-tree:16"])
def test_large_ones_survive_their_file(name: str) -> None:
    topology = parse(name)
    assert file_format.from_json(file_format.to_json(topology)) == topology


def _layer(name: str) -> str:
    """`tor0.1a` is a `tor`, `agg-b3` an `agg`."""
    return re.split(r"[-0-9]", name)[0]


def _flow(topology: Topology, sources: set[int]) -> Fraction:
    """The most bytes/s that `sources` can send to all other ranks together."""
    graph = nx.DiGraph()
    for link in topology.links:
        capacity = graph.get_edge_data(link.src, link.dst, {"capacity": 0})["capacity"]
        graph.add_edge(link.src, link.dst, capacity=capacity + link.bandwidth)
    for rank in range(topology.ranks):
        graph.add_edge(*(("source", rank) if rank in sources else (rank, "sink")))
    flow: Fraction = nx.maximum_flow_value(graph, "source", "sink")
    return flow
