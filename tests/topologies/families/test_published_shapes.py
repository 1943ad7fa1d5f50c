"""Boxes, pods and datacenter fabrics against the figures and formulas of the papers and vendors that they come from."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest

from syntony.topologies import Topology, TopologyError, parse
from syntony.topologies.families.direct.jellyfish import random_regular
from syntony.topologies.graph.distance import diameter, longest_route
from syntony.topologies.graph.symmetry import orbits
from tests.topologies.cuts import cut, inflow
from tests.topologies.hops import hops_from

FOREIGN = Path(__file__).resolve().parents[4] / "shared" / "foreign" / "nccl-topology"
GIGA = 10**9


@pytest.mark.parametrize(
    ("name", "ranks", "nodes", "cables", "degrees", "hops"),
    [
        # A tree: 2 CPUs, 4 switches, 8 GPUs and the cable between the CPUs.
        ("pcie-tree", 8, 8 + 4 + 2, 8 + 4 + 1, {1}, 1),
        ("pcie-tree:4,2,3", 24, 24 + 8 + 4, 24 + 8 + 6, {1}, 1),
        ("pcie-tree:2,2,2,boxes=3,nics=2", 24, 3 * 14 + 3 * 8 + 1, 3 * 13 + 2 * 24, {1}, 1),
        # NVIDIA DGX-1 white paper: every P100 has its four NVLinks; two hops at most.
        ("dgx1-p100", 8, 8, 16, {4}, 2),
        # NVIDIA NVSwitch overview: 12 switches, 6 NVLinks per GPU; partners' 8 NVLinks are one cable here.
        ("dgx2", 16, 16 + 12, 16 * 6 + 6, {6}, 1),
        ("dgx2:3", 48, 3 * 28 + 3 * 8 + 1, 3 * 102 + 3 * (16 + 8), {7}, 1),
        # NVIDIA GB200 NVL72: 72 GPUs x 18 NVLinks, one to each switch.
        ("nvl72", 72, 72 + 18, 72 * 18, {18}, 1),
        ("nvl72:2,planes=1", 144, 2 * (73 + 72) + 1, 2 * (72 + 144), {2}, 1),
        # RCCL topo_16p1h: 8 modules of two dies; their pairs share 52 xGMI links over 28 cables.
        ("mi250", 16, 16, 28, {3, 4}, 5),
        ("mi250:2", 32, 32 + 16 + 1, 56 + 32 + 16, {4, 5}, 1),
        # Eight, all to all.
        ("mi300x", 8, 8, 28, {7}, 1),
        ("mi300x:4", 32, 32 + 32 + 1, 4 * 28 + 64, {8}, 1),
        ("gaudi", 8, 8, 28, {7}, 1),
        ("gaudi2:2", 16, 16 + 16 + 1, 56 + 32, {8}, 1),
        # DGX GH200: 96 switches in the first layer, 36 in the second.
        ("nvl256", 256, 256 + 96 + 36, 256 * 3 + 96 * 12, {3}, 1),
        # Frontier: 12 xGMI bundles in a node, a NIC beside every second die.
        ("frontier:groups=1,switches=1,nodes=2", 16, 16 + 8 + 1, 2 * 12 + 16, {3, 4}, 3),
        ("ascend-910b:2", 16, 16 + 16 + 1, 56 + 32, {8}, 1),
        ("graphcore-pod", 64, 64, 32 + 2 * 32, {3}, 17),
        ("wafer:4x8", 32, 32, 3 * 8 + 4 * 7, {2, 3, 4}, 10),
        # Tori: as many cables per dimension as chips, half the size per dimension as distance.
        ("tpuv2", 256, 256, 2 * 256, {4}, 8 + 8),
        ("tpuv3", 1024, 1024, 2 * 1024, {4}, 16 + 16),
        ("tpuv3:16x32", 512, 512, 512 + 15 * 32, {3, 4}, 15 + 16),
        ("tpuv2:8x8", 64, 64, 2 * 56, {2, 3, 4}, 14),
        ("tpuv4:4x4x4", 64, 64, 3 * 64, {6}, 6),
        ("tpuv4:4x4x32", 512, 512, 3 * 512, {6}, 2 + 2 + 16),
        ("tpuv4:2x2x4", 16, 16, 8 + 8 + 12, {3, 4}, 1 + 1 + 3),
        ("tpuv4:16x16x16", 4096, 4096, 3 * 4096, {6}, 24),
        # Camarero, Martinez, Beivide (TPDS'15): FCC(a) has 2a^3 nodes, BCC(a) 4a^3; both a diameter of 3a/2, a even.
        ("tpuv4:4x4x8,twisted=on", 2 * 4**3, 128, 3 * 128, {6}, 6),
        ("tpuv4:8x8x16,twisted=on", 2 * 8**3, 1024, 3 * 1024, {6}, 12),
        ("tpuv4:4x8x8,twisted=on", 4 * 4**3, 256, 3 * 256, {6}, 6),
        ("tpuv4:16x8x16,twisted=on", 4 * 8**3, 2048, 3 * 2048, {6}, 12),
        # HammingMesh: four ports per accelerator; a network per row and column of accelerators.
        ("hammingmesh:4x4,board=2x2", 64, 64 + 8 + 8, 16 * 4 + 16 * 8, {4}, 2),
        ("hammingmesh:2x3,board=4x4", 96, 96 + 8 + 12, 6 * 24 + 6 * 16, {4}, 6),
        ("hammingmesh:5x3,board=1x1", 15, 15 + 5 + 3, 15 * 4, {4}, 2),
        # BCube_k of n-port switches: n^(k+1) servers, (k+1) n^k switches, k+1 hops (theorem 1).
        ("bcube:4,1", 4, 4 + 1, 4, {1}, 1),
        ("bcube:4,2", 16, 16 + 2 * 4, 2 * 16, {2}, 2),
        ("bcube:8,4", 4096, 4096 + 4 * 512, 4 * 4096, {4}, 4),
        # DCell_k: t_k = t_(k-1) (t_(k-1) + 1) servers of k+1 ports; the paper's figure 1 is dcell:4,1.
        ("dcell:4,0", 4, 4 + 1, 4, {1}, 1),
        ("dcell:4,1", 20, 20 + 5, 20 + 10, {2}, 3),
        ("dcell:2,2", 42, 42 + 21, 42 + 21 + 21, {3}, 7),
        ("dcell:6,2", 1806, 1806 + 301, 1806 + 903 + 903, {3}, 7),
        # Jellyfish: RRG(N, k, r) has N (k - r) servers and N r / 2 cables between switches.
        ("jellyfish:20,ports=9,network=4", 100, 100 + 20, 100 + 40, {1}, 1),
    ],
)  # fmt: skip
def test_counts_degrees_and_diameters(
    name: str, ranks: int, nodes: int, cables: int, degrees: set[int], hops: int
) -> None:
    topology = parse(name)
    assert (topology.ranks, len(topology.nodes), len(topology.links)) == (ranks, nodes, 2 * cables)
    assert {len(topology.links_from(rank)) for rank in range(ranks)} == degrees
    assert {len(topology.links_to(rank)) for rank in range(ranks)} == degrees
    assert diameter(topology) == hops


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("pcie-tree:2,2,2", 5),  # GPU, switch, CPU, CPU, switch, GPU
        ("pcie-tree:1,2,2", 4),
        ("dgx2", 3),  # GPU, switch, its partner, GPU
        ("nvl72", 2),
        ("nvl72:2", 4),  # GPU, NIC, network, NIC, GPU
        ("hammingmesh:4x4,board=2x2", 4),  # two to change the column, two to change the row
        ("bcube:4,3", 2 * 3),  # BCube (SIGCOMM'09): one switch per digit
        ("jellyfish:40,ports=13,network=12", 2 + 3),  # random regular graphs: a little over ln N / ln r = 1.5
    ],
)
def test_links_between_the_furthest_ranks(name: str, links: int) -> None:
    assert longest_route(parse(name)) == links


@pytest.mark.parametrize(
    ("name", "half", "bandwidth"),
    [
        # Between the CPUs, or what their switches carry; between boxes, what the NICs carry.
        ("pcie-tree", range(4), 2 * 315 * 10**8),
        ("pcie-tree:2,4,2", range(8), 672 * 10**8),
        ("pcie-tree:4,5,1", range(10), 4 * 672 * 10**8),
        ("pcie-tree:2,2,2,boxes=2", range(8), 4 * 25 * GIGA),
        ("pcie-tree:2,2,2,boxes=2,nics=2", range(8), 8 * 25 * GIGA),
        # DGX-1 white paper: four NVLinks between the two quads.
        ("dgx1-p100", range(4), 4 * 20 * GIGA),
        # DGX-2 data sheet: 2.4 TB/s of bisection, both directions together.
        ("dgx2", range(8), 1200 * GIGA),
        ("dgx2:2", range(16), 8 * 12.5 * GIGA),
        # NVL72 data sheet: 130 TB/s, the 1.8 TB/s of all GPUs; half of them send half of it in one direction.
        ("nvl72", range(36), 36 * 900 * GIGA),
        ("nvl72:planes=1", range(36), 36 * 900 * GIGA),
        # MI250: two rows of dies; the six links between rows 1 and 2.
        ("mi250", range(8), 6 * 50 * GIGA),
        ("mi250:2", range(16), 8 * 25 * GIGA),
        # n/2 * n/2 pairs.
        ("mi300x", range(4), 16 * 64 * GIGA),
        ("gaudi", range(4), 16 * 12.5 * GIGA),
        ("gaudi2", range(4), 16 * 37.5 * GIGA),
        ("gaudi2:2", range(8), 8 * 37.5 * GIGA),
        # Torus: two cables per line across the longest dimension, one in an open slice.
        ("tpuv2", range(128), 2 * 16 * 62 * GIGA),
        ("tpuv3:32x16", range(256), 2 * 16 * 82 * GIGA),
        ("tpuv2:8x8", range(32), 8 * 62 * GIGA),
        ("tpuv4:8x4x4", range(64), 2 * 16 * 50 * GIGA),
        ("tpuv4:4x2x2", range(8), 4 * 50 * GIGA),
        # HammingMesh, SC'22: two cables per board and line of a half; 1/2a of the injection of 4 ports.
        ("hammingmesh:4x4,board=2x2", range(32), Fraction(1, 2 * 2) * 32 * 4 * 50 * GIGA),
        ("hammingmesh:2x2,board=4x4", range(32), Fraction(1, 2 * 4) * 32 * 4 * 50 * GIGA),
        ("hammingmesh:4x3,board=1x1", range(6), Fraction(1, 2 * 1) * 6 * 4 * 50 * GIGA),
        # BCube with even n: one cable per server of a half.
        ("bcube:4,2", range(8), 8 * 125 * 10**6),
        ("bcube:2,5", range(16), 16 * 125 * 10**6),
        # DCell_1 with an even number g of cells: a cable between every two cells, g/2 * g/2 across.
        ("dcell:3,1", range(6), 4 * 125 * 10**6),
        ("dcell:5,1", range(15), 9 * 125 * 10**6),
    ],
)
def test_bandwidth_between_the_natural_halves(name: str, half: range, bandwidth: int) -> None:
    topology = parse(name)
    assert cut(topology, half, range(len(half), topology.ranks)) == bandwidth


# Boxes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("dgx1-p100", 80 * GIGA),  # white paper: 160 GB/s per P100, both directions together
        ("dgx2", 150 * GIGA),  # data sheet: 300 GB/s
        ("nvl256", 450 * GIGA),
        ("ascend-910b", 7 * 28 * GIGA),  # 392 GB/s both ways
        ("nvl72", 900 * GIGA),  # data sheet: 1.8 TB/s
        ("mi300x", 448 * GIGA),  # data sheet: 896 GB/s
        ("gaudi", 87.5 * GIGA),  # seven ports of 100 Gb/s
        ("gaudi2", 262.5 * GIGA),  # Intel's network configuration page
    ],
)
def test_a_gpu_has_the_published_bandwidth(name: str, rate: float) -> None:
    topology = parse(name)
    assert {sum(link.bandwidth for link in topology.links_from(rank)) for rank in range(topology.ranks)} == {rate}


def test_the_mi250_is_wired_as_its_machine_file_says() -> None:
    path = FOREIGN / "topo_16p1h.xml"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    # A GPU's xgmi entries name their target by the bus address of the PCI device around the other GPU.
    rank_at = {}
    counts = {}
    for device in ElementTree.parse(path).iter("pci"):
        for gpu in device.findall("gpu"):
            rank_at[device.attrib["busid"]] = int(gpu.attrib["rank"])
    for gpu in ElementTree.parse(path).iter("gpu"):
        for xgmi in gpu.findall("xgmi"):
            counts[int(gpu.attrib["rank"]), rank_at[xgmi.attrib["target"]]] = int(xgmi.attrib["count"])
    ours = {(link.src, link.dst): link.bandwidth / (50 * GIGA) for link in parse("mi250").links}
    assert ours == counts
    assert sum(counts.values()) == 2 * 56


def test_the_mi250s_all_gather_is_bound_by_its_modules_as_in_forestcoll() -> None:
    """1/x = 7/150 with links of 50: 14 shards enter a module over its six links."""
    topology = parse("mi250:bandwidth=50")
    for rate, feasible in ((Fraction(150, 7), True), (Fraction(151, 7), False)):
        assert all(inflow(topology, rate, rank) >= 16 * rate for rank in range(16)) == feasible


def test_a_module_of_the_mi250_has_six_links_to_others() -> None:
    leaving = Counter[int]()
    for link in parse("mi250").links:
        if link.src // 2 != link.dst // 2:
            leaving[link.src // 2] += int(link.bandwidth / (50 * GIGA))
    assert leaving == dict.fromkeys(range(8), 6)


@pytest.mark.parametrize("name", ["dgx2", "dgx2:2", "nvl72:2", "mi300x:3", "gaudi:2", "pcie-tree:2,2,2,2", "dgx1-p100"])
def test_all_gpus_are_alike(name: str) -> None:
    topology = parse(name)
    assert orbits(len(topology.nodes), topology.generators)[0] == list(range(topology.ranks))


def test_nvlink_sharp_is_where_the_hardware_has_it() -> None:
    able = [node.name for node in parse("nvl72:2").nodes if node.multicast and node.reduces]
    assert len(able) == 36
    assert not any(node.multicast for node in parse("nvl72:2,nvls=off").nodes)
    assert not any(node.multicast for node in parse("dgx2").nodes)


# TPU pods ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("twisted", "plain", "gain"), [("4x4x8", "4x4x8", 1.63), ("4x8x8", "4x8x8", 1.31)])
def test_twisting_gains_what_was_measured_for_all_to_all(twisted: str, plain: str, gain: float) -> None:
    """Jouppi et al. (ISCA'23), section 2.8: all-to-all runs 1.63x and 1.31x faster than on the plain torus.

    In a torus the busiest links are those of the longest dimension, each loaded by the mean distance along it. Twisted,
    all links are alike, and each carries a third of the mean distance. Measurements stay a little below that.
    """
    topology = parse(f"tpuv4:{twisted},twisted=on")
    load_twisted = Fraction(sum(hops_from(topology, 0).values()), 3 * topology.ranks)
    load_plain = Fraction(max(map(int, plain.split("x"))), 4)
    assert gain < load_plain / load_twisted < 1.08 * gain


def test_all_axes_of_a_twisted_torus_are_alike() -> None:
    topology = parse("tpuv4:4x4x8,twisted=on")
    wires = {frozenset((link.src, link.dst)) for link in topology.links}
    reached = {next(iter(sorted(wires, key=sorted)))}
    frontier = list(reached)
    for wire in frontier:
        for generator in topology.generators:
            image = frozenset(generator[node] for node in wire)
            if image not in reached:
                reached.add(image)
                frontier.append(image)
    assert reached == wires


def test_a_twisted_slice_keeps_its_cubes_and_closes_elsewhere() -> None:
    """Only cables between cubes (those that leave a 4x4x4 block) go through optical switches, and only they differ."""

    def inside(topology: Topology) -> set[tuple[int, int]]:
        def cube(rank: int) -> int:
            return rank % 8 // 4

        def cell(rank: int) -> tuple[int, ...]:
            return rank // 32, rank // 8 % 4, rank % 4

        return {
            (link.src, link.dst)
            for link in topology.links
            if cube(link.src) == cube(link.dst)
            and sum(abs(a - b) for a, b in zip(cell(link.src), cell(link.dst), strict=True)) == 1
        }

    plain, twisted = parse("tpuv4:4x4x8"), parse("tpuv4:4x4x8,twisted=on")
    assert len(inside(plain)) == 2 * 2 * 3 * 48
    assert inside(plain) == inside(twisted)


# Server-centric and random ----------------------------------------------------------------------------------------


def test_bcube_hops_are_the_digits_that_differ() -> None:
    hops = hops_from(parse("bcube:3,3"), 5)
    for server in range(27):
        assert hops[server] == sum(server // 3**place % 3 != 5 // 3**place % 3 for place in range(3))


@pytest.mark.parametrize(("servers", "level"), [(2, 2), (3, 2), (4, 1), (8, 1)])
def test_dcell_keeps_the_papers_bounds(servers: int, level: int) -> None:
    """DCell (SIGCOMM'08), section 3: bounds of the number of servers t_k, the diameter and the bisection."""
    topology = parse(f"dcell:{servers},{level},bandwidth=1")
    total = topology.ranks
    assert (servers + 0.5) ** 2**level - 0.5 < total < (servers + 1) ** 2**level - 1
    furthest = diameter(topology)
    assert furthest is not None
    assert furthest <= 2 ** (level + 1) - 1
    bound = total / (4 * math.log(total, servers))
    rng = random.Random(4)
    for _ in range(5):
        half = rng.sample(range(total), total // 2)
        assert cut(topology, half, set(range(total)) - set(half)) > bound
    assert cut(topology, range(total // 2), range(total // 2, total)) > bound


def test_dcell_wires_the_papers_figure() -> None:
    """Figure 1: in DCell_1 with n = 4, server 4.0 is joined to 0.3, and 0.0 to 1.0."""
    topology = parse("dcell:4,1")
    between = sorted((link.src, link.dst) for link in topology.links if link.src < link.dst < 20)
    cells = [(src // 4, dst // 4) for src, dst in between]
    assert sorted(cells) == list(itertools.combinations(range(5), 2))
    assert {(0, 4), (3, 16), (7, 17), (15, 19)} <= set(between)


@pytest.mark.parametrize(("nodes", "degree"), [(2, 1), (4, 3), (5, 2), (7, 3), (10, 9), (40, 5), (200, 12)])
def test_jellyfish_switches_have_equally_many_neighbours_and_are_connected(nodes: int, degree: int) -> None:
    for seed in range(20):
        edges = random_regular(nodes, degree, random.Random(seed))
        assert len(set(edges)) == len(edges) == nodes * degree // 2
        assert all(0 <= one < other < nodes for one, other in edges)
        ends = Counter(end for edge in edges for end in edge)
        assert sorted(ends.values()) == sorted([degree] * nodes if nodes * degree % 2 == 0 else
                                               [degree] * (nodes - 1) + [degree - 1])  # fmt: skip
        reached = {0}
        while grown := {end for edge in edges if reached & set(edge) for end in edge} - reached:
            reached |= grown
        assert len(reached) == nodes


def test_jellyfish_is_its_seed() -> None:
    one, again, other = (parse(f"jellyfish:30,ports=8,network=5,seed={seed}") for seed in (3, 3, 4))
    assert one.links == again.links
    assert one.links != other.links
    on_any_machine = [(0, 1), (0, 2), (0, 5), (1, 2), (1, 4), (2, 3), (3, 4), (3, 5), (4, 5)]
    assert random_regular(6, 3, random.Random(1)) == on_any_machine


def test_jellyfish_bisection_is_that_of_random_graphs() -> None:
    """Bollobas (1988), as the paper uses it: at least N (r/4 - sqrt(r ln 2)/2) cables in every half."""
    switches, degree = 40, 12
    topology = parse(f"jellyfish:{switches},ports=13,network={degree},bandwidth=1")
    bound = switches * (degree / 4 - math.sqrt(degree * math.log(2)) / 2)
    rng = random.Random(7)
    for _ in range(20):
        half = set(rng.sample(range(switches), switches // 2))
        crossing = sum(
            1
            for link in topology.links
            if link.src >= switches <= link.dst and (link.src - switches in half) != (link.dst - switches in half)
        )
        assert crossing / 2 >= bound


# Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("pcie-tree:5", "pcie-tree: sockets is 5; it must be 1 to 4"),
        ("pcie-tree:2,0", "pcie-tree: switches is 0; it must be at least 1"),
        ("pcie-tree:2,2,2,0", "pcie-tree: boxes is 0; it must be at least 1"),
        ("dgx2:0", "dgx2: boxes is 0; it must be at least 1"),
        ("mi250:0", "mi250: boxes is 0"),
        ("nvl72:planes=5", "nvl72: planes is 5; it must divide the 18 NVLinks of a GPU"),
        ("nvl72:planes=0", "nvl72: planes is 0"),
        ("tpuv2:16x32", "tpuv2: shape is 16x32; it must be two powers of two up to 16"),
        ("tpuv3:32", "tpuv3: shape is 32; it must be two powers of two up to 32"),
        ("tpuv4:4x4", "tpuv4: shape is 4x4; it must be three multiples of 4"),
        ("tpuv4:2x4x8", "tpuv4: shape is 2x4x8; it must be three multiples of 4"),
        ("tpuv4:4x4x1028", "tpuv4: shape 4x4x1028 has 16448 chips; a pod has 64 cubes of 64"),
        ("tpuv4:4x4x32,twisted=on", "tpuv4: shape 4x4x32 cannot be twisted"),
        ("tpuv4:2x2x4,twisted=on", "tpuv4: shape 2x2x4 cannot be twisted"),
        ("hammingmesh:4", "hammingmesh: boards is 4; it must be rows x columns"),
        ("hammingmesh:4x4,board=0x2", "hammingmesh: board is 0x2; it must be rows x columns"),
        ("bcube:1,2", "bcube: ports is 1; a switch joins at least 2 servers"),
        ("bcube:2,17", "bcube: levels is 17; it must be 1 to 16"),
        ("bcube:10,9", "bcube: 10^9 servers are more than 100000 nodes"),
        ("dcell:1,1", "dcell: servers is 1; a mini-switch joins at least 2"),
        ("dcell:6,4", "dcell: level 4 with 6 servers has over a million servers"),
        ("dcell:2,1000000", "dcell: level 1000000 with 2 servers has over a million servers"),
        ("jellyfish:1", "jellyfish: switches is 1; it must be at least 2"),
        ("jellyfish:9,ports=4,network=4", "so it must be 1 to 3"),
        ("jellyfish:4,ports=9,network=4", "so it must be 1 to 3"),
        ("jellyfish:4,ports=9,network=1", "jellyfish: with network 1 only pairs of 4 switches are joined"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(name)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("pcie-tree:2,2,4,400", 400 * 26 + 1),
        ("dgx2:280", 280 * 36 + 1),
        ("nvl72:62", 62 * 162 + 1),
        ("mi300x:600", 600 * 16 + 1),
        ("hammingmesh:50x50", 10_000 + 200),
        ("bcube:10,4", 14_000),
        ("dcell:9,2", 8190 + 910),
        ("jellyfish:770", 770 * 13),
        ("topoopt:10000,dp1250xtp8", 10_000),
        ("sip-ocs:10000,ring", 10_000),
        ("sip-ring:10000,dp100xtp100,wavelengths=8", 10_000),
    ],
)
def test_ten_thousand_nodes_can_be_built(name: str, nodes: int) -> None:
    assert len(parse(name).nodes) == nodes
