"""A machine from NCCL's topology file (as written by NCCL_TOPO_DUMP_FILE), with NCCL's own rates.

The format is described in topologies/readers/nccl_xml.py, whose reader rejects malformed files. As in NCCL, only GPUs
with a rank and network devices with a `dev` count; if no GPU has a rank, all do. RCCL's `<xgmi>` is read like NCCL's
`<nvlink>`, with RCCL's rates.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from syntony.base.files.xml_document import Element, parse
from syntony.synth.nccl.machine.machine import LOCAL_RATE, Machine, MachineError, MachineNode
from syntony.topologies.readers import nccl_xml

# 0.1 Gbit/s of one lane (src/graph/topo.cc of NCCL 2.30); generation 3 if the file does not say.
_PCI_LANE = {"2.5": 15, "5": 30, "5.0": 30, "8": 60, "8.0": 60, "16": 120, "16.0": 120, "32": 240, "32.0": 240}
_PCI_LANE |= {"64": 480, "64.0": 480}
_NVLINK = ((100, "40.1"), (90, "20.6"), (86, "12"), (80, "20"), (70, "20"), (60, "18"))
# RCCL (src/graph/topo.h, VEGA_XGMI_WIDTH and successors): gfx906 and 908, 90a, 94x.
_XGMI = (("90a", "36"), ("910", "36"), ("94", "48"), ("95", "48"), ("906", "24"), ("908", "24"))
_NET_UNTOLD = 10_000  # Mbit/s


def is_topology_file(path: Path) -> bool:
    """Whether a file looks like NCCL's XML of a machine."""
    try:
        return path.is_file() and b"<system" in path.read_bytes()[:4096]
    except OSError:
        return False


def read_machine(path: Path) -> Machine:
    """The machine in a file. Raises UserError with file, line and element if it is malformed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MachineError(f"{path}: cannot be read: {error.strerror}") from None
    nccl_xml.read(content, str(path))
    return _Reader(parse(content, str(path)), str(path)).machine


class _Reader:
    """Reads the PCI trees first, then the links between devices, which may come later in the file."""

    def __init__(self, root: Element, where: str) -> None:
        self._where = where
        self.machine = Machine(where.rpartition("/")[2])
        gpus = [element for element in _walk(root) if element.tag == "gpu"]
        if not gpus:
            raise MachineError(f"{where}: it names no <gpu>; graph files are for GPUs")
        self._ranked = any("rank" in gpu.attributes for gpu in gpus)
        self._devices: dict[str, MachineNode] = {}
        self._flat: dict[MachineNode, int] = {}
        self._between: dict[MachineNode, Fraction] = {}
        self._later: list[tuple[Element, Element, MachineNode, MachineNode]] = []
        self._nics: dict[str, MachineNode] = {}
        cpus = root.only("cpu")
        if len({cpu.attributes.get("host_hash") for cpu in cpus}) > 1:
            raise MachineError(f"{where}: it describes several hosts of one NVLink domain; one host is supported")
        for cpu in cpus:
            self._cpu(cpu)
        for gpu, link, device, cpu_node in self._later:
            self._link(gpu, link, device, cpu_node)
        sockets = list(self.machine.kinds("cpu"))
        for one in sockets:
            for other in sockets:
                if one is not other:
                    self.machine.connect("SYS", one, other, self._between[one])
        self.machine.sort()

    def _cpu(self, cpu: Element) -> None:
        arch, vendor = cpu.text("arch", ""), cpu.text("vendor", "")
        node = self.machine.node(
            "cpu", f"cpu{cpu.text('numaid', '0')}", intel=vendor == "GenuineIntel", power=arch == "ppc64"
        )
        self._between[node] = _socket_rate(arch, vendor, cpu.integer("familyid", 0), cpu.integer("modelid", 0))
        for child in cpu.children:
            if child.tag == "pci":
                self._pci(child, node, node)
            elif child.tag == "nic":
                key = f"virtual {node.name}"
                if key not in self._nics:
                    self._nics[key] = self.machine.node("nic", f"nic of {node.name}")
                    self.machine.join("PCI", node, self._nics[key], LOCAL_RATE)
                self._net_devices(child, self._nics[key])

    def _pci(self, pci: Element, parent: MachineNode, cpu: MachineNode) -> None:
        rate, bus = _pci_rate(pci), pci.text("busid").lower()
        gpus = [child for child in pci.children if child.tag == "gpu"]
        nic = next((child for child in pci.children if child.tag == "nic"), None)
        if gpus:
            self._gpu(pci, [gpu for gpu in gpus if "rank" in gpu.attributes or not self._ranked], parent, cpu, rate)
        elif nic is not None:
            if bus not in self._nics:
                self._nics[bus] = self.machine.node("nic", f"nic {bus}")
                self.machine.join("PCI", self._nics[bus], parent, rate)
            self._net_devices(nic, self._nics[bus])
        elif any(child.tag == "pci" for child in pci.children):
            inner = parent in self._flat and _flat_switch(pci, 1) == self._flat[parent]
            bridge = parent if inner else self.machine.node("pci", f"pci {bus}")
            if not inner and (generation := _flat_switch(pci, 0)):
                self._flat[bridge] = generation
            for child in pci.children:
                if child.tag == "pci":
                    self._pci(child, bridge, cpu)
            if not inner:
                self.machine.join("PCI", bridge, parent, rate)

    def _gpu(self, pci: Element, gpus: list[Element], parent: MachineNode, cpu: MachineNode, rate: Fraction) -> None:
        if not gpus:
            return
        if len(gpus) > 1:
            pci.refuse("several ranks share this GPU; a graph file names each GPU once in a channel")
        (gpu,) = gpus
        bus = pci.text("busid").lower()
        number = len(self.machine.gpus)
        dev = gpu.integer("dev", number, least=0)
        node = self._devices[bus] = self.machine.node("gpu", f"gpu{dev}")
        self.machine.join("PCI", node, parent, rate)
        rank, sm = gpu.integer("rank", number), gpu.integer("sm", 80)
        self.machine.add_gpu(node, dev, rank, sm, direct=gpu.integer("gdr", 0) != 0)
        self._later += [(gpu, link, node, cpu) for link in gpu.children if link.tag in ("nvlink", "xgmi", "c2c")]

    def _net_devices(self, nic: Element, node: MachineNode) -> None:
        for net in nic.children:
            if net.tag != "net" or "dev" not in net.attributes or net.integer("net", 1) == 0:
                continue
            dev, speed = net.integer("dev", least=0), net.integer("speed", 0)
            if any(known.dev == dev for known in self.machine.nets):
                continue
            rate = Fraction(speed if speed > 0 else _NET_UNTOLD, 8000)
            device = self.machine.node("net", net.text("name", f"net{dev}"))
            self.machine.join("NET", node, device, rate)
            port = (net.text("guid", f"device {dev}"), net.integer("port", 0))
            direct, collective = net.integer("gdr", 0) != 0, net.integer("coll", 0) != 0
            self.machine.add_net(device, dev, port, rate, direct=direct, collective=collective)

    def _link(self, gpu: Element, link: Element, device: MachineNode, cpu: MachineNode) -> None:
        count = link.integer("count", least=0)
        if not count:
            return
        if link.tag == "c2c":
            self.machine.join("C2C", device, cpu, Fraction(link.integer("bw", least=1) * count, 1000))
            return
        capability = gpu.integer("sm", 80)
        rate = count * (_xgmi_rate(gpu.text("gcn", "")) if link.tag == "xgmi" else _nvlink_rate(capability))
        kind = link.text("tclass", "0x03")
        if kind.startswith(("0x03", "0x12")):
            other = self._devices.get(link.text("target").lower())
            if other is not None:
                self.machine.connect("NVL", device, other, rate)
        elif kind.startswith("0x068001"):
            self.machine.join("NVL", device, cpu, rate)
        else:
            switch = next(self.machine.kinds("nvs"), None) or self.machine.node("nvs", "nvswitch")
            self.machine.join("NVL", device, switch, rate)
            self.machine.multicast = capability >= 90


def _walk(element: Element) -> list[Element]:
    return [element, *(below for child in element.children for below in _walk(child))]


def _flat_switch(pci: Element, level: int) -> int:
    """The generation of a Broadcom switch that appears as two levels but is one; 0 for others."""
    words = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    number = 0
    for word in words:
        text = pci.text(word, "0")
        try:
            number = number << 16 | int(text, 16)
        except ValueError:
            return 0
    number &= 0xFFFFFFFFFFFFF000
    if number == 0x1000C0101000A000:
        return 4
    return 5 if number == 0x1000C03010000000 | level * 0x1000 else 0


def _pci_rate(pci: Element) -> Fraction:
    width = int(pci.text("link_width", "") or 0) or 16
    speed = pci.text("link_speed", "").split(" ")[0]
    return Fraction(width * _PCI_LANE.get(speed, 60), 80)


def _nvlink_rate(capability: int) -> Fraction:
    """GB/s of one NVLink as NCCL counts it; 86 is an exception in its generation."""
    if capability != 86 and 80 <= capability < 90:
        return Fraction(20)
    return Fraction(next((rate for least, rate in _NVLINK if capability >= least), "20"))


def _xgmi_rate(architecture: str) -> Fraction:
    name = architecture.removeprefix("gfx")
    return Fraction(next((rate for start, rate in _XGMI if name.startswith(start)), "48"))


def _socket_rate(arch: str, vendor: str, family: int, model: int) -> Fraction:
    """GB/s between two sockets (ncclTopoGetInterCpuBw)."""
    if arch == "ppc64":
        return Fraction(32)
    if arch == "arm64":
        return Fraction(6)
    if vendor == "AuthenticAMD":
        return Fraction(16)
    if vendor == "GenuineIntel":
        steps = ((0xCF, 40), (0x8F, 22), (0x55, 10))
        return Fraction(next((rate for least, rate in steps if family == 6 and model >= least), 6))
    if vendor.strip() in ("CentaurHauls", "Shanghai"):
        return Fraction(9 if (family, model) == (7, 0x5B) else 6)
    return LOCAL_RATE
