"""lstopo's XML: a small machine written by hand in its form, damage to it, and this machine where lstopo is there."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from fractions import Fraction

import pytest

from syntony.base.command import UserError
from syntony.topologies import Topology
from syntony.topologies.readers.lstopo_xml import read

GIGA = 10**9
SPEED = Fraction("15.75") * GIGA


def _device(bus: str, index: int, kind: str, speed: str, inside: str = "") -> str:
    where = f'type="PCIDev" gp_index="{index}" pci_busid="0000:{bus}:00.0"'
    return f'<object {where} pci_type="{kind} [0000:0000] a1" pci_link_speed="{speed}">\n{inside}</object>\n'


def _gpu(bus: str, index: int) -> str:
    inside = f'<object type="OSDev" gp_index="{index + 100}" name="nvml{index}" osdev_type="1"/>\n'
    return _device(bus, index, "0302 [10de:20b0]", "15.753846", inside)


def _bridge(bus: str, index: int, inside: str) -> str:
    return (
        f'<object type="Bridge" gp_index="{index}" bridge_type="1-1" depth="1" pci_busid="0000:{bus}:00.0" '
        f'pci_type="0604 [1000:c010] [0000:0000] b0" pci_link_speed="31.507692">\n{inside}</object>\n'
    )


NIC = _device(
    "22",
    20,
    "0207 [15b3:101b]",
    "31.507692",
    '<object type="OSDev" gp_index="21" name="ib0" osdev_type="2"/>\n'
    '<object type="OSDev" gp_index="22" name="mlx5_0" osdev_type="3"/>\n',
)
OTHERS = (  # a server's own VGA chip, a disk, an NVSwitch
    _device("02", 30, "0300 [1a03:2000]", "0.000000")
    + _device("03", 31, "0108 [144d:a808]", "3.938462")
    + _device("04", 32, "0680 [10de:1af1]", "1.0")
)


def _machine(more: str = "", gpus: str = "") -> str:
    package = '<object type="Package" os_index="{0}" gp_index="{1}" nodeset="0x0000000{2}">\n{3}</object>\n'
    memory = '<object type="NUMANode" os_index="{0}" gp_index="{1}" nodeset="0x0000000{2}" local_memory="1"/>\n'
    info = '<info name="CPUVendor" value="GenuineIntel"/><info name="CPUFamilyNumber" value="6"/>'
    info += '<info name="CPUModelNumber" value="106"/>\n'
    host = '<object type="Bridge" gp_index="{0}" bridge_type="0-1" depth="0" bridge_pci="0000:[20-2f]">\n{1}</object>\n'
    first = info + memory.format(0, 50, 1) + host.format(5, gpus or _bridge("20", 6, _gpu("21", 1) + NIC))
    second = memory.format(1, 51, 2) + host.format(7, _gpu("a1", 2)) + host.format(8, OTHERS)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'
        '<object type="Machine" os_index="0" nodeset="0x00000003" gp_index="40">\n'
        + package.format(0, 60, 1, first)
        + package.format(1, 61, 2, second)
        + "</object>\n"
        + '<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">\n'
        + '<indexes length="4">0 1 </indexes>\n<u64values length="12">10 32 32 10 </u64values>\n</distances2>\n'
        + more
        + '<support name="discovery.pu"/>\n</topology>\n'
    )


def _nvlinks(objects: str, values: str) -> str:
    values = f"<u64values>{values}</u64values>"
    name = 'nbobjs="3" kind="25" name="NVLinkBandwidth"'
    return f"<distances2hetero {name}><indexes>{objects}</indexes>{values}</distances2hetero>"


def _read(text: str) -> Topology:
    return read(text.encode(), "m.xml")


def _named(topology: Topology) -> dict[str, int]:
    return {node.name: node.id for node in topology.nodes}


def test_a_machine() -> None:
    topology = _read(_machine())
    names = _named(topology)
    assert list(names) == ["gpu0", "gpu1", "cpu0", "cpu1", "pci-20:00.0", "mlx5_0"]
    assert topology.links_between(0, names["pci-20:00.0"])[0].bandwidth == SPEED
    assert topology.links_between(1, names["cpu1"])[0].bandwidth == SPEED
    (between,) = topology.links_between(names["cpu0"], names["cpu1"])
    assert between.bandwidth == 10 * GIGA  # Ice Lake, as NCCL has it
    assert between.alpha == pytest.approx(0.32e-6)
    assert topology.about == (
        "2 GPUs, 1 NIC of 31.5 GB/s, 2 NUMA nodes, 2 sockets; GPUs reach each other over PCI Express"
    )


def test_nvlinks_between_gpus() -> None:
    values = "1000000 100000 0 100000 1000000 0 0 0 0"
    topology = _read(_machine(_nvlinks("OSDev:101 OSDev:102 Package:60", values)))
    assert [link.bandwidth for link in topology.links_between(0, 1)] == [100 * GIGA]
    assert "NVLink 4 x 25 GB/s between 1 pair of GPUs" in topology.about


def test_nvlinks_to_nvswitches_and_processors() -> None:
    topology = _read(_machine(_nvlinks("PCIDev:1 PCIDev:2 PCIDev:32", "0 0 150000 0 0 150000 150000 150000 0")))
    switch = _named(topology)["nvswitch"]
    assert {link.bandwidth for link in topology.links_to(switch)} == {150 * GIGA}
    assert len(topology.links_from(switch)) == 2
    topology = _read(_machine(_nvlinks("PCIDev:1 PCIDev:2 Package:61", "0 0 0 0 0 75000 0 75000 0")))
    cpu = _named(topology)["cpu1"]
    assert sorted(link.bandwidth for link in topology.links_between(1, cpu)) == [SPEED, 75 * GIGA]


def test_xgmi_between_amd_gpus() -> None:
    gpus = (_gpu("21", 1) + _gpu("22", 3)).replace("10de:20b0", "1002:740f")
    matrix = _nvlinks("OSDev:101 OSDev:103", "0 100000 100000 0").replace("NVLink", "XGMI")
    topology = _read(_machine(matrix, gpus))
    assert "xGMI 1 x 100 GB/s between 1 pair of GPUs" in topology.about


def test_a_machine_without_gpus_or_numa_nodes() -> None:
    bare = '<topology version="3.0"><object type="Machine"><object type="Package"/></object></topology>'
    topology = _read(bare)
    assert [node.name for node in topology.nodes] == ["cpu0"]
    untold = _machine(gpus="\n").replace("15.753846", "0.000000")
    assert "1 PCI link of unknown speed" in _read(untold).about


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('version="2.0"', "", "m.xml:3: <topology>: hwloc's format of version 1 is not read; write it with lstopo of"),
        ("topology", "system", "m.xml:3: <system>: a file of lstopo begins with <topology>"),
        ('os_index="1" gp_index="51"', 'os_index="0"', 'm.xml:21: <object>: os_index="0" is another NUMA node already'),
        ("0000:21:00.0", "21:00", 'm.xml:10: <object>: pci_busid="21:00" is not a PCI bus id such as 0000:1b:00.0'),
        ("0302 [10de:20b0]", "GPU", 'm.xml:10: <object>: pci_type="GPU [0000:0000] a1" is not a class and device'),
        ("15.753846", "fast", 'm.xml:10: <object>: pci_link_speed="fast" is not a number of GB/s such as 15.753846'),
        ('nodeset="0x00000001"', 'nodeset="all"', 'm.xml:5: <object>: nodeset="all" is not a set such as 0x00000003'),
        (' type="Package"', "", "m.xml:5: <object>: attribute 'type' is missing"),
        ("10 32 32 10", "10 32 32", "m.xml:37: <distances2>: it has 3 values for 2 objects; there must be 4 whole"),
        ("10 32 32 10", "10 32 x 10", "m.xml:37: <distances2>: it has 4 values for 2 objects; there must be 4 whole"),
        ('"hwloc2.dtd"', '"x" [<!ENTITY a "b">]', "m.xml:2: a document type declaration is not allowed"),
    ],
)
def test_a_malformed_file_is_refused_with_line_and_attribute(old: str, new: str, sentence: str) -> None:
    assert old in _machine()
    changed = _machine().replace(old, new) if old == "topology" else _machine().replace(old, new, 1)
    with pytest.raises(UserError) as caught:
        _read(changed)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def _sentence(text: str) -> str | None:
    try:
        _read(text)
    except UserError as error:
        return str(error)
    return None


def test_damage_anywhere_is_a_machine_or_a_sentence_with_its_line() -> None:
    seed = 20261121
    print(f"seed {seed}")
    chance = random.Random(seed)
    whole = _machine(_nvlinks("OSDev:101 OSDev:102 PCIDev:32", "0 1 2 3 4 5 6 7 8"))
    values = [found.span(1) for found in re.finditer(r'="([^"]*)"|>([^<]+)<', whole) if found.group(1) is not None]
    refused = 0
    for _ in range(600):
        if chance.random() < 0.7:
            start, end = chance.choice(values)
            damaged = whole[:start] + chance.choice(["", "-1", "x", "0xf...f", "9" * 30, "0.0", "Bridge"]) + whole[end:]
        else:
            start = chance.randrange(len(whole))
            damaged = whole[:start] + chance.choice(["", "<", '"', "\x00"]) + whole[start + chance.choice([1, 9999]) :]
        sentence = _sentence(damaged)
        refused += sentence is not None
        assert sentence is None or re.match(r"m\.xml:\d+: [^\n]+$", sentence), sentence
    assert refused > 200


def test_this_machine() -> None:
    lstopo = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
    if lstopo is None:
        pytest.skip("lstopo (Debian: hwloc-nox) is not installed")
    run = subprocess.run([lstopo, "--of", "xml"], capture_output=True, timeout=30, check=True)
    topology = read(run.stdout, "here.xml")
    assert topology.ranks >= 1
    assert "NUMA node" in topology.about
