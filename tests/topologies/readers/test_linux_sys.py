"""A machine from Linux's /sys: made-up trees with links like the kernel's, damage to them, and this machine."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import pytest

from syntony.topologies import Topology, TopologyError
from syntony.topologies.readers import nvidia_smi, read
from syntony.topologies.readers.linux_sys import read_machine

GIGA = 10**9


def _pcie(speed: int, lanes: int = 16) -> Fraction:
    return Fraction("15.75") * GIGA * speed * lanes / (8 * 16)


class Machine:
    """Writes a made-up root folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: object) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(f"{text}\n", encoding="utf-8")

    def numa(self, count: int, far: int = 21) -> None:
        for node in range(count):
            folder = f"sys/devices/system/node/node{node}"
            self.write(f"{folder}/cpulist", f"{4 * node}-{4 * node + 3}")
            self.write(f"{folder}/distance", " ".join("10" if node == other else str(far) for other in range(count)))
            for cpu in range(4 * node, 4 * node + 4):
                self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", node // 2)
        self.write("sys/devices/system/cpu/online", f"0-{4 * count - 1}")

    def pci(
        self, path: str, kind: str, ids: str = "1000:c010", numa: int = 0, speed: str = "16.0", width: int = 16
    ) -> str:
        """A PCI function at a path below sys/devices such as `pci0000:20/0000:20:00.0`."""
        folder = f"sys/devices/{path}"
        vendor, device = ids.split(":")
        for key, value in {
            "class": kind,
            "vendor": f"0x{vendor}",
            "device": f"0x{device}",
            "numa_node": numa,
            "max_link_speed": f"{speed} GT/s PCIe",
            "max_link_width": 16,
            "current_link_speed": "2.5 GT/s PCIe",
            "current_link_width": width,
        }.items():
            self.write(f"{folder}/{key}", value)
        links = self.root / "sys/bus/pci/devices"
        links.mkdir(parents=True, exist_ok=True)
        (links / Path(path).name).symlink_to(Path("../../../devices") / path)
        return folder


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Four NUMA nodes on two sockets; a switch with two A100 and a NIC on node 0, a dual-port card on node 3."""
    made = Machine(tmp_path)
    made.write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49")
    made.write("proc/sys/kernel/hostname", "box7")
    made.numa(4)
    root, switch = "pci0000:20/0000:20:00.0", "pci0000:20/0000:20:00.0/0000:21:00.0"
    made.pci(root, "0x060400", "1022:1483")
    made.pci(switch, "0x060400")
    for port, bus in enumerate(("23", "24")):
        made.pci(f"{switch}/0000:22:0{port}.0", "0x060400")
        made.pci(f"{switch}/0000:22:0{port}.0/0000:{bus}:00.0", "0x030200", "10de:20b0")
    made.pci(f"{switch}/0000:22:02.0", "0x060400")
    nic = made.pci(f"{switch}/0000:22:02.0/0000:25:00.0", "0x020700", "15b3:101b")
    made.write(f"{nic}/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)")
    made.write(f"{nic}/infiniband/mlx5_0/ports/1/state", "4: ACTIVE")
    made.write(f"{nic}/net/ib0/speed", "200000")
    made.pci("pci0000:e0/0000:e0:00.0", "0x060400", numa=3)
    card = made.pci("pci0000:e0/0000:e0:00.0/0000:e1:00.0", "0x020000", "8086:1572", numa=3, speed="8.0", width=8)
    for name, speed, state in (("eth0", "10000", "up"), ("eth1", "25000", "up"), ("eth2", "10000", "down")):
        made.write(f"{card}/net/{name}/speed", speed)
        made.write(f"{card}/net/{name}/operstate", state)
    made.pci("pci0000:e0/0000:e0:00.0/0000:e2:00.0", "0x030000", "1a03:2000", numa=3)  # the server's own VGA
    made.pci("pci0000:e0/0000:e0:01.0", "0x060400", numa=3)  # a bridge to nothing
    return made


def _named(topology: Topology) -> dict[str, int]:
    return {node.name: node.id for node in topology.nodes}


def _bandwidth(topology: Topology, one: str, other: str) -> Fraction:
    names = _named(topology)
    (link,) = topology.links_between(names[one], names[other])
    (back,) = topology.links_between(names[other], names[one])
    assert link.bandwidth == back.bandwidth
    return link.bandwidth


def test_a_machine(machine: Machine) -> None:
    topology = read_machine(machine.root)
    assert topology.name == "box7"
    assert [node.name for node in topology.nodes] == [
        "gpu0", "gpu1", "cpu0", "cpu1", "cpu2", "cpu3", "pci-20:00.0", "pci-21:00.0", "pci-22:00.0", "pci-22:01.0",
        "pci-22:02.0", "pci-e0:00.0", "card-e1:00.0", "mlx5_0", "eth0", "eth1",
    ]  # fmt: skip
    assert _bandwidth(topology, "gpu0", "pci-22:00.0") == _pcie(16)  # as fast as it can, though it rests now
    assert _bandwidth(topology, "pci-20:00.0", "cpu0") == _pcie(16)
    assert _bandwidth(topology, "mlx5_0", "pci-22:02.0") == 25 * GIGA
    assert _bandwidth(topology, "card-e1:00.0", "pci-e0:00.0") == _pcie(8, 8)  # as narrow as it is
    assert _bandwidth(topology, "eth1", "card-e1:00.0") == Fraction(25 * GIGA, 8)
    assert _bandwidth(topology, "pci-e0:00.0", "cpu3") == _pcie(16)
    names = _named(topology)
    (between,) = topology.links_between(names["cpu0"], names["cpu3"])
    assert (between.bandwidth, between.alpha) == (16 * GIGA, pytest.approx(0.21e-6))
    assert topology.about == (
        "2 GPUs, 3 NICs (1 of 25 GB/s, 1 of 3.125 GB/s, 1 of 1.25 GB/s), 4 NUMA nodes, 2 sockets; "
        "GPUs reach each other over PCI Express; NVLinks are unknown, because nvidia-smi did not list them"
    )
    assert read(machine.root) == topology


def test_nvidia_smi_adds_the_nvlinks(machine: Machine) -> None:
    matrix = nvidia_smi.parse("\tGPU0 GPU1\nGPU0 X NV12\nGPU1 NV12 X\n", "smi")
    topology = read_machine(machine.root, matrix)
    assert _bandwidth(topology, "gpu0", "gpu1") == 300 * GIGA
    assert "NVLink 12 x 25 GB/s between 1 pair of GPUs" in topology.about
    assert "not known" not in topology.about


def test_amds_driver_tells_xgmi(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.numa(1)
    for bus in ("29", "2c", "ad"):
        machine.pci(f"pci0000:00/0000:{bus}:00.0", "0x038000", "1002:740c")
    nodes = "sys/class/kfd/kfd/topology/nodes"
    machine.write(f"{nodes}/0/properties", "cpu_cores_count 64\nsimd_count 0\nlocation_id 0")
    for node, bus in enumerate((0x29, 0x2C, 0xAD), 1):
        machine.write(f"{nodes}/{node}/properties", f"location_id {bus << 8}\ndomain 0\ngfx_target_version 90010")
    for src, link, dst, rate, weight in (
        (1, 0, 2, 200_000, 15),
        (2, 0, 1, 200_000, 15),
        (1, 1, 3, 0, 15),
        (2, 1, 3, 0, 30),
    ):
        text = f"type 11\nnode_from {src}\nnode_to {dst}\nweight {weight}\nmax_bandwidth {rate}"
        machine.write(f"{nodes}/{src}/io_links/{link}/properties", text)
    machine.write(f"{nodes}/1/io_links/2/properties", "type 2\nnode_from 1\nnode_to 0\nmax_bandwidth 32000")
    topology = read_machine(tmp_path)
    assert _bandwidth(topology, "gpu0", "gpu1") == 200 * GIGA
    assert [link.bandwidth for link in topology.links_between(0, 2)] == [50 * GIGA]  # one of the newest is not told
    assert not topology.links_between(1, 2)  # two hops
    assert "xGMI 4 x 50 GB/s between 1 pair of GPUs, 1 x 50 GB/s one way between 1 pair of GPUs" in topology.about


def test_a_virtual_machine_tells_little(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    nic = machine.pci("pci0000:00/0000:00:03.0", "0x020000", "1af4:1041", numa=-1)
    for key in ("max_link_speed", "max_link_width", "current_link_width"):
        (tmp_path / nic / key).unlink()
    machine.write(f"{nic}/virtio2/net/eth0/speed", "-1")
    topology = read_machine(tmp_path)
    assert [node.name for node in topology.nodes] == ["cpu0", "eth0"]
    assert topology.name == tmp_path.name
    assert topology.about == (
        "no GPU, 1 NIC of 15.75 GB/s, 1 NUMA node; 1 PCI link of unknown speed taken as generation 3 x16"
    )


def test_memory_without_processors_is_no_place_for_devices(machine: Machine) -> None:
    machine.write("sys/devices/system/node/node4/cpulist", "")
    assert "cpu4" not in _named(read_machine(machine.root))


def test_a_folder_that_is_no_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="this folder is not the root of a Linux system"):
        read_machine(tmp_path)


def test_nonsense_in_any_file_gives_a_machine(machine: Machine) -> None:
    seed = 20261121
    print(f"seed {seed}")
    chance = random.Random(seed)
    for path in sorted(path for path in machine.root.rglob("*") if path.is_file()):
        before = path.read_text(encoding="utf-8")
        path.write_text(
            chance.choice(["", "banana", "-1", "\x00\x01", "0-99999999999999", "9" * 5000]), encoding="utf-8"
        )
        assert read_machine(machine.root).ranks >= 1
        path.write_text(before, encoding="utf-8")


def test_folders_may_be_missing(machine: Machine) -> None:
    for folder in ("sys/devices/system", "sys/bus/pci/devices", "proc"):
        (machine.root / folder).rename(machine.root / "elsewhere")
        assert read_machine(machine.root).ranks >= 1
        (machine.root / "elsewhere").rename(machine.root / folder)


def test_this_machine() -> None:
    topology = read_machine(Path("/"))
    assert topology.ranks >= 1
    assert "NUMA node" in topology.about
