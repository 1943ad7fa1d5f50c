"""Topologies to test with: names of every family, and arbitrary small networks."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from hypothesis import strategies as st

from syntony.topologies import Link, Node, Topology, TopologyError
from syntony.topologies.families import FAMILIES

EXAMPLES = [family.example for family in FAMILIES.values()]

SMALL = [
    "ring:1", "ring:2", "ring:3", "ring:7", "full:1", "full:2", "full:5", "star:1", "star:2", "star:5,multicast=on",
    "torus:1", "torus:2", "torus:5", "torus:2x2", "torus:3x4", "torus:1x3", "torus:3x3x3", "torus:2x3x2x3",
    "torus:4x4,bandwidth=1e9x2e9", "mesh:1", "mesh:6", "mesh:3x3", "mesh:2x3x4", "mesh:3x3,bandwidth=2e9x1e9",
    "hypercube:0", "hypercube:1", "hypercube:4", "dgx1", "dgx-a100", "dgx-a100:3", "dgx-h100:2,nvls=off",
    "clos:1,1", "clos:2,2,oversubscription=4", "clos:2,3,2,pods=3,cores=4,core_oversubscription=7/2", "fat-tree:2",
    "dragonfly:1,1,1,1", "dragonfly:2,2,1", "dragonfly:3,1,1,3", "dragonfly-plus:1,1,1,1", "dragonfly-plus:2,3,1,1,3",
    "bigraph:1,1", "bigraph:3,1,2", "llama3-24k:1,2,1,2,2", "superpod:2,2,2,2,2,sharp=on", "megascale:1,2,1,2,3",
    "rail-only:3,2", "hpn:2,1,1,2,2,3",
    "rail:2,1,1", "rail:2,2,2", "rail:3,4,2", "rail:2,2,4", "rail:3,6,3", "rail:2,3,1", "rail:4,1,3",
    "pcie-tree:1,1,1", "pcie-tree:3,1,2", "pcie-tree:2,2,1,boxes=2,nics=2", "dgx1-p100", "dgx2:2", "mi250:2",
    "mi300x:2", "gaudi2:3", "nvl72:planes=1", "tpuv2:4x16", "tpuv3:2x2", "tpuv4:1x1x1", "tpuv4:2x2x4", "tpuv4:4x4x8",
    "ascend-910b:2", "nvl256:2,2,spines=2", "nvl256:1,3,planes=1", "frontier:1,1,1", "frontier:3,2,2",
    "graphcore-pod:1", "graphcore-pod:3", "wafer:1x3", "cxl-pool:1", "cxl-pool:4",
    "hammingmesh:1x1,board=1x1", "hammingmesh:2x3,board=1x2", "hammingmesh:2x2,board=3x3",
    "bcube:3,1", "bcube:2,4", "bcube:3,3", "dcell:3,0", "dcell:3,1", "dcell:2,2", "jellyfish:2,ports=2,network=1",
    "jellyfish:7,ports=4,network=3", "jellyfish:6,ports=6,network=5,seed=9", "sip-ring:2,ring", "sip-ring:7,all_to_all",
    "sip-ocs:5,ring,ports=3", "sip-ocs:12,dp2xpp2xep3", "topoopt:9,all_reduce", "topoopt:8,dp2xtp4,ports=1",
]  # fmt: skip


def refusal(build: Callable[[], object]) -> str | None:
    """The sentence with which `build` refuses, None if it succeeds. Any other exception goes through."""
    try:
        build()
    except TopologyError as error:
        return str(error)
    return None


_RATES = st.fractions(min_value=Fraction(1, 10**6), max_value=10**13)


def names() -> st.SearchStrategy[str]:
    """Names of small topologies of every family, with and without overrides."""
    count = st.integers(1, 9)
    shape = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(lambda sizes: "x".join(map(str, sizes)))
    divisors = st.tuples(st.integers(2, 3), st.integers(1, 3), st.integers(1, 3), st.booleans())
    rails = divisors.map(lambda t: (t[0], t[1] * t[2], t[1]) if t[3] else (t[0], t[1], t[1] * t[2]))
    plain = st.one_of(
        st.builds("ring:{}".format, count),
        st.builds("full:{}".format, count),
        st.builds("star:{}".format, count),
        st.builds("torus:{}".format, shape),
        st.builds("mesh:{}".format, shape),
        st.builds("hypercube:{}".format, st.integers(0, 5)),
        st.just("dgx1:"),
        st.builds("dgx-a100:{}".format, st.integers(1, 3)),
        st.builds("dgx-h100:{}".format, st.integers(1, 3)),
        st.builds("clos:{},{},{}".format, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
        st.builds("dragonfly:{},1,{}".format, st.integers(1, 3), st.integers(1, 2)),
        st.builds("bigraph:{},{}".format, st.integers(1, 3), st.integers(1, 3)),
        rails.map(lambda t: f"rail:boxes={t[0]},gpus={t[1]},rails={t[2]}"),
    )
    bandwidth = _RATES.map(lambda rate: f"bandwidth={rate}")
    alpha = st.floats(0, 1e-3).map(lambda seconds: f"alpha={seconds:.30f}")
    overrides = st.lists(st.one_of(bandwidth, alpha), max_size=2, unique_by=lambda text: text[0])
    return st.builds(lambda name, extra: ",".join([name, *extra]).replace(":,", ":").rstrip(":"), plain, overrides)


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Arbitrary directed multigraphs: any names, rates, parallel links, unconnected parts; without symmetry."""
    kinds = ["rank"] * draw(st.integers(1, 5)) + draw(st.lists(st.sampled_from(["switch", "nic"]), max_size=3))
    label = st.text(min_size=1, max_size=6).filter(str.isprintable)
    labels = draw(st.lists(label, min_size=len(kinds), max_size=len(kinds), unique=True))
    coordinate = st.floats(-100, 100)
    nodes = tuple(
        Node(
            i,
            kind,  # type: ignore[arg-type]
            label,
            multicast=kind == "switch" and draw(st.booleans()),
            reduces=kind == "switch" and draw(st.booleans()),
            place=draw(st.none() | st.tuples(coordinate, coordinate)),
        )
        for i, (kind, label) in enumerate(zip(kinds, labels, strict=True))
    )
    ends = st.integers(0, len(nodes) - 1)
    pairs = draw(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1]), max_size=12))
    few = draw(st.lists(st.tuples(_RATES, st.floats(0, 1)), min_size=1, max_size=3))
    links = []
    for i, (src, dst) in enumerate(pairs if len(nodes) > 1 else []):
        bandwidth, alpha = draw(st.sampled_from(few))
        links.append(Link(i, src, dst, alpha, bandwidth))
    return Topology(draw(st.text(max_size=8).filter(str.isprintable)), nodes, tuple(links))
