"""The matrix of `nvidia-smi topo -m`, of machines written down from its documented form."""

from __future__ import annotations

import random
import re
from collections import Counter
from fractions import Fraction
from functools import partial

import pytest

from syntony.topologies import Topology, TopologyError, parse
from syntony.topologies.readers.nvidia_smi import read, recognizes
from tests.topologies.named import refusal

GIGA = 10**9
PCIE4 = Fraction("31.5") * GIGA

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks
"""

DGX1 = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tmlx5_0\tmlx5_1\tmlx5_2\tmlx5_3\tCPU Affinity
GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\tPIX\tPHB\tSYS\tSYS\t0-19,40-59
GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\tPIX\tPHB\tSYS\tSYS\t0-19,40-59
GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\tPHB\tPIX\tSYS\tSYS\t0-19,40-59
GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\tPHB\tPIX\tSYS\tSYS\t0-19,40-59
GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\tSYS\tSYS\tPIX\tPHB\t20-39,60-79
GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\tSYS\tSYS\tPIX\tPHB\t20-39,60-79
GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tPHB\tPIX\t20-39,60-79
GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tPHB\tPIX\t20-39,60-79
mlx5_0\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\tSYS\tSYS\t X \tPHB\tSYS\tSYS\t
mlx5_1\tPHB\tPHB\tPIX\tPIX\tSYS\tSYS\tSYS\tSYS\tPHB\t X \tSYS\tSYS\t
mlx5_2\tSYS\tSYS\tSYS\tSYS\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\t X \tPHB\t
mlx5_3\tSYS\tSYS\tSYS\tSYS\tPHB\tPHB\tPIX\tPIX\tSYS\tSYS\tPHB\t X \t
"""


def _switched(links: int, boxes: list[list[str]], numa: list[int], model: str = "") -> str:
    """All GPUs on NVSwitches; `boxes` are the devices that share an upper PCI switch, `numa` their nodes."""
    devices = sorted((device for box in boxes for device in box), key=lambda name: (name[:3] != "GPU", int(name[3:])))
    home = {device: number for number, box in enumerate(boxes) for device in box}
    models = "".join(f"GPU {n}: {model} (UUID: GPU-{n})\n" for n, d in enumerate(devices) if model and d[:3] == "GPU")
    lines = ["\t\x1b[4m" + "\t".join(devices) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]
    for one in devices:
        cells = []
        for other in devices:
            near = "PXB" if home[one] == home[other] else ("NODE" if numa[home[one]] == numa[home[other]] else "SYS")
            both = one[:3] == other[:3] == "GPU"
            cells.append(" X " if one == other else f"NV{links}" if both else near)
        tail = f"\t0-47\t{numa[home[one]]}\t\tN/A" if one[:3] == "GPU" else "\t\t\t\t"
        lines.append(one + "\t" + "\t".join(cells) + tail)
    return models + "\n".join(lines) + "\n" + LEGEND + "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_9\n"


DGX_A100 = _switched(
    12,
    [[f"GPU{2 * k}", f"GPU{2 * k + 1}", f"NIC{2 * k}", f"NIC{2 * k + 1}"] for k in range(4)],
    [3, 1, 7, 5],
)
DGX_H100 = _switched(18, [[f"GPU{k}", f"NIC{k}"] for k in range(8)], [0] * 4 + [1] * 4, "NVIDIA H100 80GB HBM3")
DGX_B200 = _switched(18, [[f"GPU{k}"] for k in range(8)], [0] * 4 + [1] * 4, "NVIDIA B200")

PCIE = """\
        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity
GPU0     X      PIX     NODE    SYS     0-15            0
GPU1    PIX      X      NODE    SYS     0-15            0
GPU2    NODE    NODE     X      SYS     0-15            0
GPU3    SYS     SYS     SYS      X      16-31           1
"""


def _read(text: str) -> Topology:
    return read(text.encode(), "m.txt")


def _named(topology: Topology) -> dict[str, int]:
    return {node.name: node.id for node in topology.nodes}


def _above(topology: Topology, name: str) -> str:
    """The PCI switch or processor that a device hangs from."""
    links = topology.links_from(_named(topology)[name])
    above = [topology.nodes[link.dst].name for link in links if topology.nodes[link.dst].kind == "switch"]
    (name,) = [name for name in above if name != "nvswitch"]
    return name


def test_a_dgx1() -> None:
    topology = _read(DGX1 + LEGEND)
    assert topology.about.startswith(
        "8 GPUs, 4 NICs of 15.75 GB/s, 2 NUMA nodes; "
        "NVLink 2 x 25 GB/s between 8 pairs of GPUs, 1 x 25 GB/s between 8 pairs of GPUs"
    )
    degrees = Counter(
        sum(link.bandwidth for link in topology.links_from(gpu) if link.dst < 8) / (25 * GIGA) for gpu in range(8)
    )
    assert degrees == {6: 8}
    assert [_above(topology, f"gpu{gpu}") for gpu in range(8)] == [
        "pci0", "pci0", "pci1", "pci1", "pci2", "pci2", "pci3", "pci3"
    ]  # fmt: skip
    assert _above(topology, "mlx5_2") == "pci2"
    assert _above(topology, "pci0") == "cpu0"
    assert _above(topology, "pci3") == "cpu1"


def test_a_dgx_a100() -> None:
    topology = _read(DGX_A100)
    names = _named(topology)
    assert {"cpu1", "cpu3", "cpu5", "cpu7", "mlx5_0", "mlx5_9", "NIC7"} <= names.keys()
    for gpu in range(8):
        assert [link.bandwidth for link in topology.links_between(gpu, names["nvswitch"])] == [300 * GIGA]
    assert _above(topology, "gpu2") == _above(topology, "NIC2") == "pci1"
    assert topology.links_from(names["NIC2"])[0].bandwidth == PCIE4
    assert not topology.nodes[names["nvswitch"]].reduces
    assert "models are unknown" in topology.about


@pytest.mark.parametrize(("text", "rate"), [(DGX_H100, 450), (DGX_B200, 900)])
def test_models_beside_the_matrix_tell_the_generation(text: str, rate: int) -> None:
    topology = _read(text)
    switch = _named(topology)["nvswitch"]
    assert {link.bandwidth for link in topology.links_to(switch)} == {rate * GIGA}
    assert topology.nodes[switch].multicast
    assert topology.nodes[switch].reduces
    assert "unknown" not in topology.about


def test_four_h100_are_a_mesh_and_three_a100_of_a_switch_are_none() -> None:
    """18 links to three peers at 6 each are all that an H100 has; 12 to each of two peers are more than an A100 has."""
    mesh = _read(_switched(6, [[f"GPU{k}"] for k in range(4)], [0] * 4, "NVIDIA H100 64GB HBM2"))
    assert "NVLink 6 x 25 GB/s between 6 pairs of GPUs" in mesh.about
    assert "nvswitch" not in _named(mesh)
    assert "nvswitch" in _named(_read(_switched(12, [[f"GPU{k}"] for k in range(3)], [0] * 3)))
    assert "nvswitch" not in _named(_read(_switched(12, [["GPU0"], ["GPU1"]], [0, 0], "NVIDIA A100 80GB PCIe")))


def test_a_machine_without_nvlink() -> None:
    topology = _read(PCIE)
    assert topology.about.startswith("4 GPUs, no NIC, 2 NUMA nodes; GPUs reach each other over PCI Express")
    assert [_above(topology, f"gpu{gpu}") for gpu in range(4)] == ["pci0", "pci0", "cpu0", "cpu1"]
    assert len(topology.links) == 2 * (4 + 1 + 1)


def test_switches_below_a_switch() -> None:
    rows = ["PIX PXB PXB PHB", "PIX PXB PXB PHB", "PXB PXB PIX PHB", "PXB PXB PIX PHB", "PHB PHB PHB PHB"]
    text = "\tGPU0 GPU1 GPU2 GPU3 GPU4\n"
    for number, row in enumerate(rows):
        cells = row.split()
        text += " ".join([f"GPU{number}", *cells[:number], "X", *cells[number:]]) + "\n"
    topology = _read(text)
    assert _above(topology, "gpu0") == _above(topology, "gpu1") == "pci1"
    assert _above(topology, "pci1") == _above(topology, "pci2") == "pci0"
    assert _above(topology, "gpu4") == "cpu0"
    names = _named(topology)
    assert topology.links_between(names["pci0"], names["cpu0"])


@pytest.mark.parametrize("text", [DGX1, DGX_A100, DGX_H100, PCIE, DGX1.replace("SYS", "SOC")])
def test_it_is_recognized_with_a_prompt_colours_and_old_words(text: str) -> None:
    for variant in (text, f"$ nvidia-smi topo -m\n{text}", text.replace("\x1b[", "["), text.expandtabs(10)):
        assert recognizes(variant)
        assert _read(variant).ranks == parse("full:8" if "GPU7" in text else "full:4").ranks


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("GPU1\tNV1\t X ", "GPU1\tNV9\t X ", "m.txt:3: GPU0 and GPU1 contradict each other: their two cells differ"),
        ("GPU1\tNV1\t X ", "GPU1\tSYS\t X ", "m.txt:3: GPU0 and GPU1 contradict each other: their two cells differ"),
        ("GPU1\tNV1\t X ", "GPU1\tNV1\tNV1", "m.txt:3: the cell of GPU1 and GPU1 is NV1; X is the diagonal"),
        ("GPU1\tNV1\t X ", "GPU1\tFAST\t X ", "m.txt:3: the cell of GPU1 and GPU0 is FAST; known are X, NV#, PIX, PXB"),
        ("GPU1\tNV1\t X ", "GPU9\tNV1\t X ", "m.txt:3: it must be the row of GPU1, as the line of names says"),
        ("mlx5_0\tPIX\tPIX", "mlx5_0\tNV1\tPIX", "m.txt:10: mlx5_0 and GPU0 are not both GPUs, so it cannot be NV1"),
        ("GPU6\tGPU7", "GPU6\tGPU6", "m.txt:1: GPU6 occurs twice in the line"),
        ("GPU7\tSYS\tSYS", "GPU7", "m.txt:9: the row of GPU7 has 11 cells; there are 12 devices"),
        ("mlx5_3\tSYS", "# SYS", "m.txt:13: it must be the row of mlx5_3"),
        ("GPU0\tGPU1", "Gpu0\tGPU1", "m.txt: there is no line of device names such as GPU0 GPU1 NIC0 in it"),
    ],
)
def test_a_broken_matrix_is_refused_with_line_and_cell(old: str, new: str, sentence: str) -> None:
    assert old in DGX1
    with pytest.raises(TopologyError) as caught:
        _read(DGX1.replace(old, new, 1))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_matrix_of_more_devices_than_a_machine_has_is_refused() -> None:
    sentence = refusal(partial(_read, " ".join(f"GPU{n}" for n in range(300)) + "\nGPU0 X"))
    assert sentence == "m.txt:1: it names 300 devices; a machine has at most 256"


def test_damage_anywhere_is_a_machine_or_a_sentence() -> None:
    seed = 20261121
    print(f"seed {seed}")
    chance = random.Random(seed)
    refused = 0
    for _ in range(600):
        text = chance.choice([DGX1, DGX_H100, PCIE])
        position, length = chance.randrange(len(text)), chance.choice([0, 1, 1, 5, len(text)])
        damaged = text[:position] + chance.choice(["", "X", "\t", "\n", "NV", "\x00", "7"]) + text[position + length :]
        sentence = refusal(partial(_read, damaged))
        refused += sentence is not None
        assert sentence is None or re.match(r"m\.txt(:\d+)?: [^\n]+$", sentence)
    assert refused > 200
