"""Linux's /sys: the PCI tree of a machine with its GPUs and NICs, its NUMA nodes, and the xGMI links of AMD's driver.

    sys/bus/pci/devices/0000:34:00.0 -> ../../../devices/pci0000:2b/0000:2b:00.0/0000:34:00.0     the path is the tree
        class 0x030200   vendor 0x10de   device 0x20b0   numa_node 0
        max_link_speed "16.0 GT/s PCIe"   max_link_width, current_link_width 16
        net/eth0/speed 100000 (Mbit/s)    infiniband/mlx5_0/ports/1/rate "400 Gb/sec (4X NDR)"
    sys/devices/system/node/node0/distance "10 21"
    sys/class/kfd/kfd/topology/nodes/2/io_links/0/properties: type 11 (xGMI), node_to 3, max_bandwidth 50000 (MB/s)

(The kernel's Documentation/ABI/testing/sysfs-bus-pci, sysfs-class-net, sysfs-class-infiniband; amdkfd's kfd_crat.h.)
The speed of a link is the lower maximum of its two ends, because idle GPUs slow their links down; its width is the
current one. Interfaces that are down are left out. NVLinks are not in /sys, so they are read from `nvidia-smi topo -m`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

from syntony.topologies.readers import hardware, nvidia_smi
from syntony.topologies.readers.assembly import Assembly
from syntony.topologies.readers.parts import Part
from syntony.topologies.readers.sysfs import PCI_ADDRESS, entries, field, id_list, pci_functions, read, whole
from syntony.topologies.topology import Topology, TopologyError

_MEGA = 10**6
_XGMI = 11  # CRAT_IOLINK_TYPE_XGMI
_ONE_HOP = 15  # the weight of a direct xGMI link; peers further away weigh a multiple


def read_machine(root: Path, matrix: nvidia_smi.Matrix | None = None) -> Topology:
    """The host below `root`, a folder with `sys` in it; `matrix` is nvidia-smi's matrix of NVLinks, if there is one.

    Raises TopologyError if there is no `sys/devices`.
    """
    if not (root / "sys/devices").is_dir():
        raise TopologyError(f"{root}: this folder is not the root of a Linux system: it has no sys/devices, as / has")
    return _Reader(root, matrix).topology()


class _Reader:
    def __init__(self, root: Path, matrix: nvidia_smi.Matrix | None) -> None:
        self._root = root
        self._matrix = matrix
        name = read(root / "proc/sys/kernel/hostname") or root.resolve().name or "machine"
        self._assembly = Assembly(name if name.isprintable() else "machine", str(root))
        self._cpus: dict[int, Part] = {}
        self._bridges: dict[Path, Part] = {}
        self._gpus: dict[str, Part] = {}  # by PCI address
        self._capability: dict[str, int] = {}  # of the GPUs that are NVIDIA's

    def topology(self) -> Topology:
        self._numa_nodes()
        for device in pci_functions(self._root):
            self._device(device.resolve())
        self._xgmi()
        if self._capability:
            self._nvlinks()
        return self._assembly.topology()

    def _numa_nodes(self) -> None:
        interconnect = _interconnect(read(self._root / "proc/cpuinfo") or "")
        folders = entries(self._root / "sys/devices/system/node", r"node[0-9]{1,4}")
        numbers = [int(folder.name.removeprefix("node")) for folder in folders]
        for number, folder in zip(numbers, folders, strict=True):
            if read(folder / "cpulist") != "":  # memory without processors, such as a GPU's, is a NUMA node too
                self._cpus[number] = self._assembly.cpu(f"cpu{number}", interconnect)
        if not self._cpus:
            self._cpus[0] = self._assembly.cpu("cpu0", interconnect)
        for number, folder in zip(numbers, folders, strict=True):
            distances = [int(word) for word in re.findall(r"[0-9]{1,4}", read(folder / "distance") or "")]
            for other, distance in zip(numbers, distances, strict=False):
                if number in self._cpus and other in self._cpus and number != other and distance:
                    self._assembly.distance(self._cpus[number], self._cpus[other], distance)
        sockets = {
            read(self._root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")
            for cpu in id_list(read(self._root / "sys/devices/system/cpu/online"))
        }
        self._assembly.sockets = len(sockets - {None}) or None

    def _device(self, device: Path) -> None:
        category, vendor = read(device / "class") or "", (read(device / "vendor") or "").removeprefix("0x")
        if category[:4] in ("0x03", "0x12") and vendor in hardware.ACCELERATOR_VENDORS:
            gpu = self._assembly.gpu(f"gpu{len(self._gpus)}", self._above(device), _bandwidth(device))
            self._gpus[device.name] = gpu
            if hardware.ACCELERATOR_VENDORS[vendor] == "NVIDIA":
                number = (read(device / "device") or "").removeprefix("0x")
                self._capability[device.name] = hardware.nvidia_device(number) or 0
        elif category[:4] == "0x02" and (ports := _ports(device)):
            self._assembly.card(f"card-{_short(device)}", self._above(device), _bandwidth(device), ports)

    def _above(self, device: Path) -> Part:
        """The bridge above a device, or its NUMA node."""
        bridge = device.parent
        if bridge not in self._bridges:
            if not re.fullmatch(PCI_ADDRESS, bridge.name):
                node = whole(read(device / "numa_node"))
                return self._cpus.get(-1 if node is None else node, next(iter(self._cpus.values())))
            above = self._above(bridge)
            self._bridges[bridge] = self._assembly.bridge(f"pci-{_short(bridge)}", above, _bandwidth(bridge))
        return self._bridges[bridge]

    def _nvlinks(self) -> None:
        """nvidia-smi counts GPUs in the order of their PCI addresses."""
        if self._matrix is None:
            self._assembly.note("NVLinks are unknown, because nvidia-smi did not list them")
            return
        position = {device: number for number, device in enumerate(self._matrix.devices)}
        shown = [(position.get(f"GPU{number}"), address) for number, address in enumerate(self._capability)]
        gpus = {place: self._gpus[address] for place, address in shown if place is not None}
        capability = {place: self._capability[address] for place, address in shown if place is not None}
        known = nvidia_smi.capabilities(self._matrix)
        nvidia_smi.nvlink_bonds(
            self._assembly,
            self._matrix,
            gpus,
            {place: own or known.get(place, 70) for place, own in capability.items()},
        )

    def _xgmi(self) -> None:
        folders = entries(self._root / "sys/class/kfd/kfd/topology/nodes", r"[0-9]{1,6}")
        properties = {folder.name: _properties(folder / "properties") for folder in folders}
        gpus = {node: self._gpus.get(_address(values)) for node, values in properties.items()}
        for folder in folders:
            one = hardware.xgmi(_architecture(properties[folder.name].get("gfx_target_version", 0)))
            for link in entries(folder / "io_links", r"[0-9]{1,6}"):
                values = _properties(link / "properties")
                src, dst = gpus[folder.name], gpus.get(str(values.get("node_to")))
                direct = values.get("type") == _XGMI and values.get("weight", _ONE_HOP) <= _ONE_HOP
                if direct and src is not None and dst is not None and src is not dst:
                    total = Fraction(values.get("max_bandwidth", 0) * _MEGA) or one
                    count = int(total / one) if total % one == 0 else 1
                    self._assembly.join("xGMI", src, dst, count, total / count)


def _short(device: Path) -> str:
    return device.name.removeprefix("0000:")


def _interconnect(cpuinfo: str) -> Fraction:
    architecture = "arm64" if field(cpuinfo, "CPU implementer") else ""
    if "POWER" in (field(cpuinfo, "cpu") or ""):
        architecture = "ppc64"
    family, model = (whole(field(cpuinfo, key)) or 0 for key in ("cpu family", "model"))
    return hardware.processor_interconnect(architecture, field(cpuinfo, "vendor_id") or "", family, model)


def _bandwidth(device: Path) -> Fraction | None:
    """Bytes/s of a PCI function's link upwards."""
    ends = [device, device.parent] if re.fullmatch(PCI_ADDRESS, device.parent.name) else [device]
    speeds = [_speed(read(end / "max_link_speed")) for end in ends]
    widths = [whole(read(end / f"{when}_link_width")) for end in ends for when in ("max", "current")]
    known = [speed for speed in speeds if speed is not None]
    lanes = [width for width in widths if width is not None and 0 < width <= 32]
    return hardware.pcie(min(known), min(lanes, default=hardware.PCIE_LANES)) if known else None


def _speed(text: str | None) -> Fraction | None:
    try:
        return hardware.pcie_speed(text or "")
    except ValueError:
        return None


def _ports(device: Path) -> list[tuple[str, Fraction | None]]:
    """The ports of a network card that are up: name, and bytes/s if known. RDMA devices precede interfaces."""
    found: list[tuple[str, Fraction | None]] = []
    for rdma in entries(device / "infiniband", r".+"):
        ports = [port for port in entries(rdma / "ports", r"[0-9]{1,3}") if "ACTIVE" in (read(port / "state") or "")]
        for port in ports:
            rate = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec", read(port / "rate") or "")
            name = rdma.name if len(ports) == 1 else f"{rdma.name}:{port.name}"
            found.append((name, Fraction(rate.group(1)) * hardware.GIGA / 8 if rate else None))
    if found:
        return found
    for folder in (device, *entries(device, r"virtio[0-9]+")):
        for interface in entries(folder / "net", r".+"):
            speed = whole(read(interface / "speed"))
            if read(interface / "operstate") != "down":
                found.append((interface.name, Fraction(speed * _MEGA, 8) if speed and speed > 0 else None))
    return found


def _properties(path: Path) -> dict[str, int]:
    """Lines of a name and a whole number."""
    found = re.findall(r"^(\w+) ([0-9]{1,18})$", read(path) or "", re.MULTILINE | re.ASCII)
    return {name: int(value) for name, value in found}


def _address(properties: dict[str, int]) -> str:
    """The PCI address of a node of AMD's driver: domain, and bus, device and function in one number."""
    place = properties.get("location_id", 0)
    return f"{properties.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7:x}"


def _architecture(version: int) -> str:
    """`90010` is gfx90a: major, minor and stepping."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""
