"""lstopo's XML, as `lstopo --of xml` of hwloc 2 and 3 writes it.

    <topology version="2.0">
      <object type="Machine" nodeset="0x00000003">
        <object type="Package" nodeset="0x00000001"> <info name="CPUVendor" value="GenuineIntel"/>
          <object type="NUMANode" os_index="0" nodeset="0x00000001"/>
          <object type="Bridge" bridge_type="0-1">                                      host bridge: no node of its own
            <object type="Bridge" bridge_type="1-1" pci_busid="0000:2b:00.0" pci_link_speed="15.753846">         GB/s
              <object type="PCIDev" pci_busid="0000:34:00.0" pci_type="0302 [10de:1db8] ..." pci_link_speed="15.753846">
                <object type="OSDev" name="nvml0" gp_index="802"/>
      ...
      <distances2 type="NUMANode" name="NUMALatency" ...>  <indexes>0 1</indexes> <u64values>10 21 21 10</u64values>
      <distances2hetero name="NVLinkBandwidth" ...>        <indexes>OSDev:802 PCIDev:449</indexes>            MB/s

The format is described in hwloc's hwloc2.dtd and topology-xml.c. GPUs are PCI display and processing devices of
vendors of accelerators, which excludes the VGA chip of a server. A speed of 0 means unknown. Links between GPUs are
listed if hwloc was built with NVML or ROCm SMI.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from syntony.base.files.xml_document import Element, parse, shortened
from syntony.topologies.readers import hardware
from syntony.topologies.readers.assembly import Assembly
from syntony.topologies.readers.parts import Part
from syntony.topologies.topology import Topology

_MEGA = 10**6
_PCI_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\].*", re.IGNORECASE)
_BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_SPEED = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")
_LATENCY = 4  # bit of a distance matrix's kind
_NETWORK, _OPENFABRICS = {"2": "2", "3": "16"}, {"2": "3", "3": "32"}  # osdev_type by hwloc's version
_ARCHITECTURES = {"ppc64le": "ppc64", "ppc64": "ppc64", "aarch64": "arm64", "arm64": "arm64"}


def read(content: bytes, where: str) -> Topology:
    """The topology in a file; raises XmlError that names `where`, the line, the element and the attribute."""
    root = parse(content, where, text_in=("indexes", "u64values", "userdata"), doctype=True)
    if root.tag != "topology":
        root.refuse("a file of lstopo begins with <topology>")
    version = root.attributes.get("version", "1").partition(".")[0]
    if version not in ("2", "3"):
        root.refuse(f"hwloc's format of version {shortened(version)} is not read; write it with lstopo of hwloc 2")
    return _Reader(root, where, version).topology()


class _Reader:
    def __init__(self, root: Element, where: str, version: str) -> None:
        self._root = root
        self._version = version
        self._assembly = Assembly(where.rpartition("/")[2], f"{where}:{root.line}: <topology>")
        self._cpus: dict[int, Part] = {}
        self._parts: dict[int, Part] = {}  # by gp_index, which distances use
        self._links: dict[Part, tuple[Fraction, int]] = {}  # per GPU: bytes/s of one of its links, compute capability
        self._gpus = 0

    def topology(self) -> Topology:
        objects = [child for child in self._root.children if child.tag == "object"]
        self._numa_nodes(objects)
        packages = [element for element in _objects(objects) if _type(element) == "Package"]
        self._assembly.sockets = len(packages) or None
        home = next(iter(self._cpus.values()))
        for package in packages:
            self._parts[package.integer("gp_index", -1)] = self._home(package, home)
        for element in objects:
            self._walk(element, home)
        for matrix in self._root.children:
            if matrix.tag in ("distances2", "distances2hetero"):
                self._distances(matrix)
        return self._assembly.topology()

    def _numa_nodes(self, objects: list[Element]) -> None:
        infos = {
            info.text("name", ""): info.text("value", "")
            for element in reversed(list(_objects(objects)))
            for info in element.children
            if info.tag == "info" and _type(element) in ("Machine", "Package")
        }
        interconnect = hardware.processor_interconnect(
            _ARCHITECTURES.get(infos.get("Architecture", ""), ""),
            infos.get("CPUVendor", ""),
            _number(infos.get("CPUFamilyNumber")),
            _number(infos.get("CPUModelNumber")),
        )
        for element in _objects(objects):
            if _type(element) == "NUMANode":
                index = element.integer("os_index", len(self._cpus), least=0)
                if index in self._cpus:
                    element.refuse(f'os_index="{index}" is another NUMA node already')
                self._cpus[index] = self._assembly.cpu(f"cpu{index}", interconnect)
        if not self._cpus:
            self._cpus[0] = self._assembly.cpu("cpu0", interconnect)

    def _walk(self, element: Element, parent: Part) -> None:
        """Adds the devices below an object, with `parent` above them."""
        kind = _type(element)
        if kind == "Bridge" and "pci_busid" in element.attributes:
            parent = self._assembly.bridge(f"pci-{_bus_id(element)}", parent, _bandwidth(element))
        elif kind == "PCIDev":
            self._device(element, parent)
        elif kind != "Bridge":
            parent = self._home(element, parent)
        for child in element.children:
            if child.tag == "object":
                self._walk(child, parent)

    def _home(self, element: Element, otherwise: Part) -> Part:
        """The first NUMA node of an object's node set."""
        if "nodeset" not in element.attributes:
            return otherwise
        return next((self._cpus[node] for node in _bits(element, "nodeset") if node in self._cpus), otherwise)

    def _device(self, element: Element, parent: Part) -> None:
        _bus_id(element)
        found = _PCI_TYPE.fullmatch(element.text("pci_type"))
        if found is None:
            shown = shortened(element.text("pci_type"))
            element.refuse(f'pci_type="{shown}" is not a class and device such as 0302 [10de:20b0] ...')
        category, vendor, device = (part.lower() for part in found.groups())
        if category[:2] in ("03", "12") and vendor in hardware.ACCELERATOR_VENDORS:
            gpu = self._assembly.gpu(f"gpu{self._gpus}", parent, _bandwidth(element))
            self._gpus += 1
            capability = hardware.nvidia_device(device) if vendor == "10de" else None
            self._links[gpu] = hardware.nvlink(capability or 0), capability or 0
            for inner in _objects([element]):
                self._parts[inner.integer("gp_index", -1)] = gpu
        elif category == "0680" and vendor == "10de":  # an NVSwitch; no bridge leads only to those
            self._parts[element.integer("gp_index", -1)] = _NVSWITCH
        elif category[:2] == "02":
            self._assembly.nic(self._nic_name(element), parent, _bandwidth(element))

    def _nic_name(self, element: Element) -> str:
        devices = [inner for inner in _objects(element.children) if _type(inner) == "OSDev"]
        for kind in (_OPENFABRICS[self._version], _NETWORK[self._version]):
            for device in devices:
                if device.text("osdev_type", "") == kind and device.text("name", "").isprintable():
                    return device.text("name", "") or f"nic-{_bus_id(element)}"
        return f"nic-{_bus_id(element)}"

    def _distances(self, matrix: Element) -> None:
        name = matrix.text("name", "")
        if matrix.text("type", "") == "NUMANode" and matrix.integer("kind", 0) & _LATENCY:
            rows = _matrix(matrix)
            cpus = [self._cpus.get(_number(index)) for index in _indexes(matrix)]
            for src, row in zip(cpus, rows, strict=True):
                for dst, distance in zip(cpus, row, strict=True):
                    if src is not None and dst is not None and src is not dst and 0 < distance < 1000:
                        self._assembly.distance(src, dst, distance)
        elif name in ("NVLinkBandwidth", "XGMIBandwidth"):
            rows = _matrix(matrix)
            ends = [self._parts.get(_number(index.rpartition(":")[2])) for index in _indexes(matrix)]
            for src, row in zip(ends, rows, strict=True):
                for dst, megabytes in zip(ends, row, strict=True):
                    if src is not None and src.kind == "gpu" and dst is not None and dst is not src and megabytes:
                        self._bond(name.removesuffix("Bandwidth"), src, dst, Fraction(megabytes * _MEGA))

    def _bond(self, fabric: str, src: Part, dst: Part, bandwidth: Fraction) -> None:
        one, capability = self._links[src]
        count, whole = divmod(bandwidth, one)
        count, one = (int(count), one) if fabric == "NVLink" and not whole else (1, bandwidth)
        fabric = "xGMI" if fabric == "XGMI" else fabric
        if dst is _NVSWITCH:
            dst = self._assembly.nvswitch(capability >= hardware.NVLINK_SHARP)
        self._assembly.join(fabric, src, dst, count, one)
        if dst.kind != "gpu":
            self._assembly.join(fabric, dst, src, count, one)


_NVSWITCH = Part("nvswitch", "any", 0)


def _objects(elements: list[Element]) -> Iterator[Element]:
    """All <object> elements at and below the given ones, in the order of the file."""
    for element in elements:
        if element.tag == "object":
            yield element
            yield from _objects(element.children)


def _type(element: Element) -> str:
    return element.text("type")


def _bus_id(element: Element) -> str:
    text = element.text("pci_busid")
    if not _BUS_ID.fullmatch(text):
        element.refuse(f'pci_busid="{shortened(text)}" is not a PCI bus id such as 0000:1b:00.0')
    return text.lower().removeprefix("0000:")


def _bandwidth(element: Element) -> Fraction | None:
    """Bytes/s, None if unknown; the file has GB/s, and 0 for unknown."""
    text = element.text("pci_link_speed", "0")
    if not _SPEED.fullmatch(text):
        element.refuse(f'pci_link_speed="{shortened(text)}" is not a number of GB/s such as 15.753846')
    return hardware.pcie_rounded(Fraction(text) * hardware.GIGA) or None


def _bits(element: Element, attribute: str) -> list[int]:
    """The numbers in one of hwloc's sets: 32-bit words, the highest first; `0xf...f`: all higher bits are set."""
    text = element.text(attribute)
    words = [word.removeprefix("0x") for word in text.split(",")]
    if not all(re.fullmatch(r"[0-9a-fA-F]{0,8}|f\.\.\.f", word) for word in words) or len(words) > 256:
        element.refuse(f'{attribute}="{shortened(text)}" is not a set such as 0x00000003')
    whole = 0
    for word in words:
        whole = whole << 32 | (0xFFFFFFFF if "." in word else int(word or "0", 16))
    return [bit for bit in range(whole.bit_length()) if whole >> bit & 1]


def _indexes(matrix: Element) -> list[str]:
    return [word for part in matrix.children if part.tag == "indexes" for word in "".join(part.pieces).split()]


def _matrix(matrix: Element) -> list[list[int]]:
    size = len(_indexes(matrix))
    values = [word for part in matrix.children if part.tag == "u64values" for word in "".join(part.pieces).split()]
    if len(values) != size * size or not all(re.fullmatch(r"[0-9]{1,20}", value) for value in values):
        matrix.refuse(f"it has {len(values)} values for {size} objects; there must be {size * size} whole numbers")
    return [[int(value) for value in values[row * size : (row + 1) * size]] for row in range(size)]


def _number(text: str | None) -> int:
    """A decimal number that hwloc may leave out; -1 if it did."""
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else -1
