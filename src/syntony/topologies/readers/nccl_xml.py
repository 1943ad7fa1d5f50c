"""NCCL's topology file, and RCCL's: what `NCCL_TOPO_DUMP_FILE` writes and `NCCL_TOPO_FILE` reads.

    <system version="1">
      <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49" host_hash="0x8393">
        <pci busid="0000:41:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">       a PCI bridge
          <pci busid="0000:47:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
            <gpu dev="0" sm="80" rank="0" gdr="1">
              <nvlink target="0000:c4:00.0" count="12" tclass="0x068000"/>                  to an NVSwitch
              <c2c bw="44712" count="5"/>                                                   to its processor
            </gpu>
          </pci>
          <pci busid="0000:43:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
            <nic> <net name="mlx5_0" dev="0" speed="200000" port="1" coll="1"/> </nic>      Mbit/s
          </pci>
        </pci>
      </cpu>
    </system>

The format is the one that NCCL 2.30's src/graph/xml.cc and topo.cc accept (RCCL's adds `<xgmi>` and `gcn`), with the
same meaning: if any GPU has a rank, the ranks are the GPUs with one; if any network device has a `dev`, only those with
one count; a link to a GPU that is not in the file is dropped (a container sees only its own GPUs); all NVSwitches are
one node; a width of 0 means 16 lanes. A file written by hand may have neither `<gpu>` nor `<nic>`: then PCI classes 03
and 12 are GPUs, and class 02 are NICs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction

from syntony.base.files.xml_document import Element, parse, shortened
from syntony.topologies.readers import hardware
from syntony.topologies.readers.assembly import Assembly
from syntony.topologies.readers.parts import Part
from syntony.topologies.topology import Topology

_VERSIONS = (1, 2)  # NCCL's, RCCL's
_BUS_ID = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])", re.IGNORECASE)
_MEGABIT = Fraction(10**6, 8)  # bytes/s
_NET_UNTOLD = 10_000  # Mbit/s, if a NIC reports 0 or -1
_LOCAL = Fraction(5000 * hardware.GIGA)  # NCCL's rate within one device

_BusId = tuple[int, int, int, int]


def read(content: bytes, where: str) -> Topology:
    """The topology in a file; raises XmlError that names `where`, the line, the element and the attribute."""
    root = parse(content, where)
    if root.tag != "system":
        root.refuse("an NCCL topology file begins with <system>")
    if (version := root.integer("version")) not in _VERSIONS:
        root.refuse(f'version="{version}" is not known; known are {" and ".join(map(str, _VERSIONS))}')
    return _Reader(root, where).topology()


class _Reader:
    """Two passes, because links name devices that may come later in the file: first the trees, then the links."""

    def __init__(self, root: Element, where: str) -> None:
        self._root = root
        self._assembly = Assembly(_title(root, where), f"{where}:{root.line}: <system>")
        tags = {element.tag for element in _walk(root)}
        self._by_class = "gpu" not in tags, "nic" not in tags
        self._ranked = any(element.tag == "gpu" and "rank" in element.attributes for element in _walk(root))
        self._listed = any(element.tag == "net" and "dev" in element.attributes for element in _walk(root))
        self._hosts: dict[str, int] = {}
        self._many_hosts = len({cpu.attributes.get("host_hash") for cpu in root.children if cpu.tag == "cpu"}) > 1
        self._lines: dict[tuple[int, object], int] = {}
        self._bridges: dict[tuple[int, _BusId], Part] = {}
        self._gpus: dict[tuple[int, _BusId], Part] = {}
        self._later: list[tuple[Callable[[Element, Element, Part], None], Element, Element, Part]] = []
        self._collective_nets = 0
        self._left_out = 0

    def topology(self) -> Topology:
        for cpu in self._root.only("cpu"):
            self._cpu(cpu)
        for read_link, owner, link, part in self._later:
            read_link(owner, link, part)
        if self._collective_nets:
            self._assembly.note(f"{self._collective_nets} of the NICs reduce in the network (collnet)")
        if self._left_out:
            self._assembly.note(f"left out: {self._left_out} without a rank or a dev")
        return self._assembly.topology()

    def _cpu(self, cpu: Element) -> None:
        host = self._hosts.setdefault(cpu.attributes.get("host_hash", ""), len(self._hosts))
        numa = cpu.integer("numaid", -1, least=-1)
        if numa >= 0:
            self._once(cpu, host, ("numaid", numa), f'numaid="{numa}"')
        interconnect = hardware.processor_interconnect(
            cpu.text("arch", ""), cpu.text("vendor", ""), cpu.integer("familyid", 0), cpu.integer("modelid", 0)
        )
        part = self._assembly.cpu(self._name(host, f"cpu{numa if numa >= 0 else ''}"), interconnect, host)
        for child in cpu.only("pci", "nic"):
            if child.tag == "pci":
                self._pci(child, part)
            else:
                self._virtual_nic(child, part)

    def _pci(self, pci: Element, parent: Part) -> None:
        bus = _bus_id(pci, "busid")
        self._once(pci, parent.host, bus, f'busid="{pci.text("busid")}"')
        bandwidth = _pci_bandwidth(pci)
        gpus = [child for child in pci.children if child.tag == "gpu"]
        nics = [child for child in pci.children if child.tag == "nic"]
        kind = _class(pci, "class", _BRIDGE_CLASS)
        gpu_by_class, nic_by_class = self._by_class
        if gpus:
            self._gpu_device(pci, gpus, parent, bandwidth)
        elif nics:
            self._card(nics[0], parent, bandwidth, _short(pci))
        elif kind == "gpu" and gpu_by_class:
            self._gpus[parent.host, bus] = self._assembly.gpu(self._name(parent.host, "gpu"), parent, bandwidth)
        elif kind == "nic" and nic_by_class:
            self._assembly.nic(self._name(parent.host, f"nic-{_short(pci)}"), parent, bandwidth)
        elif any(child.tag == "pci" for child in pci.children):
            bridge = self._assembly.bridge(self._name(parent.host, f"pci-{_short(pci)}"), parent, bandwidth)
            self._bridges[parent.host, bus] = bridge
            for child in pci.only("pci", "pcilink"):
                if child.tag == "pci":
                    self._pci(child, bridge)
                else:
                    self._later.append((self._pci_link, pci, child, bridge))
            return
        for child in pci.only("gpu", "nic", "pci", "pcilink"):
            if child.tag == "pci":
                self._pci(child, parent)

    def _gpu_device(self, pci: Element, gpus: list[Element], parent: Part, bandwidth: Fraction | None) -> None:
        """One device; several ranks may share it, and then its links are listed with each of them."""
        taking_part = [gpu for gpu in gpus if "rank" in gpu.attributes or not self._ranked]
        self._left_out += len(gpus) - len(taking_part)
        if not taking_part:
            return
        device = parent
        if len(taking_part) > 1:
            device = self._assembly.bridge(self._name(parent.host, f"device-{_short(pci)}"), parent, bandwidth)
        for gpu in taking_part:
            order = gpu.integer("rank", least=0) if self._ranked else None
            if order is not None:
                self._once(gpu, 0, ("rank", order), f'rank="{order}"')
            number = gpu.attributes.get("dev")
            name = "gpu" if number is None else f"gpu{gpu.integer('dev', least=0)}"
            own = bandwidth if device is parent else _LOCAL
            part = self._assembly.gpu(self._name(parent.host, name), device, own, order)
        holder = part if device is parent else device
        self._gpus[parent.host, _bus_id(pci, "busid")] = holder
        for link in taking_part[0].children:
            read_link = {"nvlink": self._nvlink, "xgmi": self._xgmi, "c2c": self._c2c}.get(link.tag)
            if read_link is not None:
                self._later.append((read_link, taking_part[0], link, holder))

    def _card(self, nic: Element, parent: Part, bandwidth: Fraction | None, name: str) -> None:
        """A PCI network card; without any `<net>` it is a NIC with the speed of its link."""
        ports: list[tuple[str, Fraction | None]]
        ports = [(self._net_name(parent, net), _net_bandwidth(net)) for net in self._nets(nic)]
        if not any(child.tag == "net" for child in nic.children):
            ports = [(self._name(parent.host, f"nic-{name}"), bandwidth)]
        self._assembly.card(self._name(parent.host, f"card-{name}"), parent, bandwidth, ports)

    def _virtual_nic(self, nic: Element, cpu: Part) -> None:
        """A NIC that is not a PCI device; dumps of containers list the same one at every processor."""
        for net in self._nets(nic):
            key = (cpu.host, ("net", net.text("name", ""), net.text("dev", "")))
            if key not in self._lines:
                self._lines[key] = net.line
                self._assembly.nic(self._net_name(cpu, net), cpu, _net_bandwidth(net))

    def _nets(self, nic: Element) -> list[Element]:
        all_nets = [child for child in nic.children if child.tag == "net"]
        nets = [net for net in all_nets if "dev" in net.attributes or not self._listed]
        self._left_out += len(all_nets) - len(nets)
        self._collective_nets += sum(net.integer("coll", 0) != 0 for net in nets)
        return nets

    def _nvlink(self, gpu: Element, link: Element, src: Part) -> None:
        capability = gpu.integer("sm", least=1)
        self._peer_link("NVLink", link, src, hardware.nvlink(capability), capability >= hardware.NVLINK_SHARP)

    def _xgmi(self, gpu: Element, link: Element, src: Part) -> None:
        self._peer_link("xGMI", link, src, hardware.xgmi(gpu.text("gcn")), shares=False)

    def _peer_link(self, fabric: str, link: Element, src: Part, bandwidth: Fraction, shares: bool) -> None:
        count = link.integer("count", least=0)
        kind = _class(link, "tclass", _PEER_CLASS)
        if kind is None:
            known = _BUS_ID.fullmatch(link.text("target")) and self._gpus.get((src.host, _bus_id(link, "target")))
            kind = "gpu" if known else "nvswitch"
        if kind == "gpu":
            dst = self._gpus.get((src.host, _bus_id(link, "target")))
            if dst is src:
                link.refuse(f'target="{link.text("target")}" is the GPU itself')
            if dst is not None:
                self._assembly.join(fabric, src, dst, count, bandwidth)
            return
        dst = self._assembly.nvswitch(shares) if kind == "nvswitch" else _processor_of(src)
        self._assembly.join(fabric, src, dst, count, bandwidth)
        self._assembly.join(fabric, dst, src, count, bandwidth)

    def _c2c(self, _: Element, link: Element, src: Part) -> None:
        """A link to the processor; `bw` is in MB/s for one of `count`."""
        count, bandwidth = link.integer("count", least=0), Fraction(link.integer("bw", least=1) * 10**6)
        self._assembly.join("C2C", src, _processor_of(src), count, bandwidth)
        self._assembly.join("C2C", _processor_of(src), src, count, bandwidth)

    def _pci_link(self, _: Element, link: Element, src: Part) -> None:
        """A link between two PCI switches beside the tree, at the speed of the first one's uplink."""
        dst = self._bridges.get((src.host, _bus_id(link, "target")))
        if dst is not None and dst is not src:
            self._assembly.join("PCI Express", src, dst, 1, src.bandwidth)

    def _once(self, element: Element, host: int, key: object, shown: str) -> None:
        if (host, key) in self._lines:
            element.refuse(f"{shown} occurs twice, first on line {self._lines[host, key]}")
        self._lines[host, key] = element.line

    def _name(self, host: int, name: str) -> str:
        return f"host{host}.{name}" if self._many_hosts else name

    def _net_name(self, parent: Part, net: Element) -> str:
        name = net.text("name", "") or f"net{net.text('dev', '')}"
        if not name.isprintable():
            net.refuse(f'name="{shortened(name)}" is not printable')
        return self._name(parent.host, name)


_BRIDGE_CLASS = {"0x03": "gpu", "0x12": "gpu", "0x02": "nic", "": "bridge"}
_PEER_CLASS = {"0x03": "gpu", "0x12": "gpu", "0x068001": "cpu", "0x0680": "nvswitch"}


def _title(root: Element, where: str) -> str:
    name = root.text("name", "") or where.rpartition("/")[2]
    if not name.isprintable():
        root.refuse(f'name="{shortened(name)}" is not printable')
    return name


def _class(element: Element, attribute: str, kinds: dict[str, str]) -> str | None:
    """The kind of device of a PCI class, by its first digits; None if the attribute is missing."""
    text = element.attributes.get(attribute)
    if text is None:
        return None
    well_formed = re.fullmatch(r"0x[0-9a-fA-F]{2,8}", text) is not None
    kind = next((kind for digits, kind in kinds.items() if well_formed and text.lower().startswith(digits)), None)
    if kind is None:
        known = ", ".join(f"{digits}..." for digits in kinds if digits)
        element.refuse(f'{attribute}="{shortened(text)}" is not a PCI class that can stand here, such as {known}')
    return kind


def _bus_id(element: Element, attribute: str) -> _BusId:
    found = _BUS_ID.fullmatch(element.text(attribute))
    if found is None:
        shown = shortened(element.text(attribute))
        element.refuse(f'{attribute}="{shown}" is not a PCI bus id such as 0000:1b:00.0')
    domain, bus, device, function = (int(part, 16) for part in found.groups())
    return domain, bus, device, function


def _short(pci: Element) -> str:
    return pci.text("busid").lower().removeprefix("0000:")


def _pci_bandwidth(pci: Element) -> Fraction | None:
    text = pci.text("link_speed", "")
    try:
        speed = hardware.pcie_speed(text)
    except ValueError as error:
        pci.refuse(f'link_speed="{shortened(text)}": {error}')
    width = pci.integer("link_width", least=0) if pci.text("link_width", "") else 0
    if width > 32:
        pci.refuse(f'link_width="{width}": PCI Express has at most 32 lanes')
    return None if speed is None else hardware.pcie(speed, width or hardware.PCIE_LANES)


def _net_bandwidth(net: Element) -> Fraction:
    speed = net.integer("speed", 0)
    return (speed if speed > 0 else _NET_UNTOLD) * _MEGABIT


def _processor_of(part: Part) -> Part:
    while part.parent is not None:
        part = part.parent
    return part


def _walk(element: Element) -> Iterator[Element]:
    yield element
    for child in element.children:
        yield from _walk(child)
