"""Channels for NCCL's graph files: paths and rates as in NCCL, packings beside all orders, bounds, faults, files."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _solve
from syntony.__main__ import main
from syntony.synth.nccl.channels import Channel, ChannelSet, Host, Shape
from syntony.synth.nccl.graph_file import COLLNET, NVLS, RING, TREE, channels_on, fault_of, graph_text, read_graphs
from syntony.synth.nccl.machine.hosts import host_named
from syntony.synth.nccl.machine.machine import Machine, MachineError
from syntony.synth.nccl.machine.paths import PathKind
from syntony.synth.nccl.packing.bound import channel_bound
from syntony.synth.nccl.packing.packing import pack
from tests.sampled import examples

MACHINES = Path(__file__).parents[2] / "data" / "nccl_machines"
FOREIGN = Path(__file__).parents[4] / "shared" / "foreign" / "nccl-topology"


def machine_file(name: str, *, across: bool = False) -> Host:
    return host_named(f"file:{MACHINES / name}.xml", across=across)


def meshed(rates: dict[tuple[int, int], int], gpus: int) -> Host:
    """GPUs with links of their own, all joined through one slow switch, too."""
    machine = Machine("meshed")
    switch = machine.node("pci", "pci")
    nodes = [machine.node("gpu", f"gpu{gpu}") for gpu in range(gpus)]
    for gpu, node in enumerate(nodes):
        machine.add_gpu(node, gpu, gpu, 80)
        machine.join("PCI", node, switch, Fraction(1))
    for (one, other), rate in rates.items():
        if rate:
            machine.join("NVL", nodes[one], nodes[other], Fraction(rate))
    return Host(machine, across=False)


def best_by_trial(host: Host, shape: Shape, count: int) -> Fraction:
    """The best total of up to `count` channels, by trying all of them."""
    others = range(1, len(host.machine.gpus))
    orders = [Channel((0, *rest)) for rest in permutations(others)]
    if shape == "chain":
        orders = [Channel(order) for order in permutations(range(len(host.machine.gpus)))]
    return max(
        host.speed(shape, chosen) * len(chosen)
        for number in range(1, count + 1)
        for chosen in combinations_with_replacement(orders, number)
    )


def test_paths_and_rates_are_those_of_nccl() -> None:
    """What NCCL 2.30.7 prints for this file (NCCL_DEBUG_SUBSYS=GRAPH): 12 GB/s PCI, 10 between sockets, PHB, SYS."""
    host = machine_file("two_sockets")
    one, two, far = (host.machine.gpus[gpu].node for gpu in (0, 1, 2))
    near, across = host.paths.between(one, two), host.paths.between(one, far)
    assert (near.kind, near.rate) == (PathKind.PIX, 12)
    assert (across.kind, across.rate) == (PathKind.SYS, 10)
    assert host.paths.between(one, host.machine.nets[0].node).kind == PathKind.PIX
    assert {float(link.rate) for link in host.machine.links} == {10, 12, 12.5}


def test_a_nic_behind_another_gpu_is_reached_through_it() -> None:
    host = machine_file("switched_rails", across=True)
    gpu, net = host.machine.gpus[0].node, host.machine.nets[1].node
    sending = host.paths.between(gpu, net)
    assert sending.kind == PathKind.PXN
    assert host.machine.gpus[1].node in [link.src for link in sending.links]
    assert host.paths.local_gpus == (0, 1)


@pytest.mark.parametrize(
    ("name", "across", "ring", "tree"),
    [
        ("two_sockets", False, 10, 12),
        ("two_sockets", True, 10, Fraction(96, 13)),
        ("four_linked", False, 80, 80),
        ("switched_rails", True, 96, 96),
    ],
)
def test_at_least_what_nccl_finds_itself(name: str, across: bool, ring: Fraction, tree: Fraction) -> None:
    """NCCL 2.30.7's own search on the same files: 10 and 10, 10 and 7, 80 and 80, 96 and 96 GB/s."""
    host = machine_file(name, across=across)
    rings = pack(host, "ring")
    chains = pack(host, "chain", exactly=len(rings.chosen.channels), timeout=5)
    assert rings.chosen.total == ring
    assert rings.fraction == pytest.approx(1, abs=1e-4)
    assert chains.chosen.total >= tree * Fraction(999, 1000)
    assert len(chains.chosen.channels) == len(rings.chosen.channels)
    for found in (rings, chains):
        assert host.fault(found.chosen) == ""
        assert float(found.chosen.total) <= found.bound.rate


@pytest.mark.parametrize("shape", ["ring", "chain"])
@given(st.lists(st.sampled_from([0, 2, 3, 8]), min_size=6, max_size=6))
@examples(6)
def test_nothing_is_missed_on_four_gpus(shape: Shape, rates: list[int]) -> None:
    pairs = [(one, other) for one in range(4) for other in range(one + 1, 4)]
    host = meshed(dict(zip(pairs, rates, strict=True)), 4)
    found = pack(host, shape, most=2, timeout=20)
    best = best_by_trial(host, shape, 2)
    assert found.complete
    assert found.chosen.total >= best * Fraction(999, 1000)
    assert host.fault(found.chosen) == ""
    assert float(found.chosen.total) <= found.bound.rate


NCCL_FOUND = {
    "topo_16p1h": (240, 168),
    "topo_4p2h": (10, 10),
    "topo_4p3l": (120, 1.2),
    "topo_8p1h": (160, 96),
    "topo_8p6l": (220, 24),
    "topo_8p6l_6nic": (220, 144),
    "topo_8p_90a": (80, 0.12),
    "topo_8p_rome": (36, 24),
    "topo_8p_ts1": (16, 16),
}
"""GB/s of the rings that NCCL 2.30.7's own search found, within a host and across."""


@pytest.mark.sweep
@pytest.mark.skipif(not FOREIGN.is_dir(), reason="no machine files of RCCL beside the repository")
@pytest.mark.parametrize("name", NCCL_FOUND)
def test_steps_alone_reach_what_nccl_finds(name: str, tmp_path: Path) -> None:
    """On the file that NCCL was given: it knows no xgmi."""
    text = (FOREIGN / f"{name}.xml").read_text().replace("<xgmi", "<nvlink").replace('version="2"', 'version="1"')
    (tmp_path / "machine.xml").write_text(text)
    for across, least in zip((False, True), NCCL_FOUND[name], strict=True):
        host = host_named(f"file:{tmp_path}/machine.xml", across=across)
        found = pack(host, "ring", timeout=0)
        assert host.fault(found.chosen) == ""
        assert least * 0.9999 <= float(found.chosen.total) <= found.bound.rate


@given(st.lists(st.sampled_from([0, 2, 3, 8]), min_size=10, max_size=10))
@examples(15)
def test_the_search_by_steps_finds_what_there_is_and_always_the_same(rates: list[int]) -> None:
    pairs = [(one, other) for one in range(5) for other in range(one + 1, 5)]
    host = meshed(dict(zip(pairs, rates, strict=True)), 5)
    for shape in ("ring", "chain"):
        found = pack(host, shape, most=3, timeout=0)
        assert host.fault(found.chosen) == ""
        assert found.chosen == pack(host, shape, most=3, timeout=0).chosen
        assert found.chosen.total >= best_by_trial(host, shape, 1)


def test_what_is_no_network_is_refused() -> None:
    offset, none = np.array([0, 1, 1, 1, 1], np.int64), np.zeros(1, np.int32)
    room, cost = np.ones(1), np.ones(1)
    assert (
        _solve.find_channels(1, 0, True, offset[[0, 2]] * 0, none[:0], cost[:0], room, 4, 100).tolist() == [-1, 0] * 4
    )
    with pytest.raises(ValueError, match="do not fit together"):
        _solve.find_channels(3, 0, True, offset, none, cost, room, 4, 100)
    with pytest.raises(ValueError, match="names no link"):
        _solve.find_channels(2, 0, True, offset, none + 1, cost, room, 4, 100)
    with pytest.raises(ValueError, match="costs nothing"):
        _solve.find_channels(2, 0, True, offset, none, cost * 0, room, 4, 100)


def test_subtours_are_no_way_around_the_bound() -> None:
    """Two pairs with fast links inside and a slow one between: without cuts the program would say 100."""
    host = meshed({(0, 1): 100, (2, 3): 100, (1, 2): 3, (0, 3): 3}, 4)
    assert channel_bound(host, "ring", 32).rate == pytest.approx(6, rel=1e-4)  # 3 each way round


def test_faults_are_named() -> None:
    host = machine_file("four_linked")
    good = pack(host, "ring").chosen
    fast = replace(good, speed=good.speed + 1)
    assert "of 20" in host.fault(fast) or "of 40" in host.fault(fast)
    twice = replace(good, channels=(Channel((0, 1, 1, 2)), *good.channels[1:]))
    assert host.fault(twice) == "channel 0 visits twice gpu1"
    short = replace(good, channels=(Channel((0, 1, 2)), *good.channels[1:]))
    assert host.fault(short) == "channel 0 leaves out gpu3"


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    host = machine_file("switched_rails", across=True)
    rings, chains = pack(host, "ring").chosen, pack(host, "chain", exactly=4).chosen
    path = tmp_path / "g.xml"
    path.write_text(graph_text(host, rings, chains, "a -- remark"))
    graphs = read_graphs(path)
    assert fault_of(graphs, "g.xml") == ""
    assert [graph.id for graph in graphs] == [RING, TREE, COLLNET, NVLS]
    found = channels_on(graphs[0], host.machine, "g.xml")
    assert found.channels == rings.channels
    assert float(found.speed) == pytest.approx(float(rings.speed), rel=1e-4)


def test_nvls_has_one_head_per_gpu_and_a_third_of_the_switch(tmp_path: Path) -> None:
    host = machine_file("switched_rails")
    assert host.machine.multicast
    path = tmp_path / "g.xml"
    rings = pack(host, "ring").chosen
    path.write_text(graph_text(host, rings, pack(host, "chain", exactly=len(rings.channels)).chosen, ""))
    nvls = next(graph for graph in read_graphs(path) if graph.id == 3)
    assert (nvls.pattern, [channel.gpus for channel in nvls.channels]) == (5, [(0,), (1,)])
    assert float(nvls.speed_intra) == pytest.approx(18 * 20.6 / 3, rel=1e-3)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, topology = tmp_path / "g.xml", f"file:{MACHINES / 'four_linked.xml'}"
    assert main(["export", "nccl-graph", topology, "-o", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ring"]["busbw"] == 80
    assert main(["export", "nccl-graph", topology, "-o", str(path), "--beside", str(path), "--force"]) == 0
    assert "ring 80 GB/s (+0.0%)" in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0
    assert main(["verify", str(path), "--topology", topology]) == 0
    capsys.readouterr()
    assert main(["simulate", str(path), "--topology", topology, "--json"]) == 0
    ring, _ = json.loads(capsys.readouterr().out)["graphs"]
    assert ring["busbw"] == pytest.approx(80)
    assert main(["simulate", str(path)]) == 2
    path.write_text(path.read_text().replace('<gpu dev="0x3"/>', '<gpu dev="0x2"/>', 1))
    assert main(["verify", str(path)]) == 1
    assert "visits GPU 2 twice" in capsys.readouterr().out


def test_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With NCCL's own choice beside, the gain is exact; without, it is over an estimate, and said to be."""
    topology, dump = f"file:{MACHINES / 'four_linked.xml'}", tmp_path / "dump.xml"
    host = machine_file("four_linked")
    slow = ChannelSet("ring", (Channel((0, 2, 1, 3)),), Fraction(20))
    dump.write_text(graph_text(host, slow, replace(slow, shape="chain"), ""))
    assert main(["advise", topology, "--beside", str(dump), "--json"]) == 0
    graph, tuner, variable = json.loads(capsys.readouterr().out)["advice"]
    assert graph["ratio"] == pytest.approx(4)
    assert (tuner["ratio"], variable["ratio"]) == (1.0, 1.0)
    assert main(["advise", f"file:{MACHINES / 'two_sockets.xml'}"]) == 0
    told = capsys.readouterr().out
    assert "over NCCL's own, estimated at up to 10" in told
    assert "NCCL_P2P_LEVEL=SYS" in told


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('nchannels="4"', 'nchannels="5"', 'nchannels="5", but 4 channels follow'),
        ('typeintra="NVL"', 'typeintra="NVX"', 'typeintra="NVX" is not known'),
        ('dev="0x0"', 'dev="zero"', 'dev="zero" is not a hexadecimal number'),
        ('id="0"', 'id="7"', 'id="7" is not known'),
        ("speedintra=", "speedintro=", "attribute 'speedintra' is missing"),
    ],
)
def test_malformed_files(tmp_path: Path, before: str, after: str, sentence: str) -> None:
    host = machine_file("four_linked")
    path = tmp_path / "g.xml"
    rings = ChannelSet("ring", (Channel((0, 1, 2, 3)),) * 4, Fraction(5))
    text = graph_text(host, rings, replace(rings, shape="chain"), "")
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(ValueError, match=sentence):
        read_graphs(path)


def test_hosts_that_differ_are_refused() -> None:
    with pytest.raises(MachineError, match="no network device"):
        machine_file("four_linked", across=True)
    with pytest.raises(MachineError, match="its hosts differ"):
        host_named("dgx-a100:2,without=rank3")


@pytest.mark.sweep
@pytest.mark.skipif(not FOREIGN.is_dir(), reason="the folder of foreign machine files is not beside the repository")
@pytest.mark.parametrize("name", sorted(path.name for path in FOREIGN.glob("*.xml")) if FOREIGN.is_dir() else [])
def test_foreign_machines(name: str) -> None:
    host = host_named(f"file:{FOREIGN / name}")
    found = pack(host, "ring", timeout=15)
    assert host.fault(found.chosen) == ""
    assert 0 < float(found.chosen.total) <= found.bound.rate
