"""A machine from any Topology: one of its hosts, which must all be alike.

Ranks are GPUs. A link between GPUs is an NVLink, as is a link to a switch in the host, unless the switch is named after
a processor or PCI (`cpu0`, `pci-1b:00.0`, `pcie0.1`). NVSwitches are one node, as in NCCL. A NIC is as fast as its
cable, or as its slot if the topology ends at the NIC. Rates are the topology's own, where NCCL would use measured ones.
"""

from __future__ import annotations

import re
from collections import Counter

from syntony.synth.nccl.machine.machine import LinkKind, Machine, MachineError, MachineNode
from syntony.topologies.hosts import Host, hosts_of
from syntony.topologies.topology import Topology

_GIGA = 10**9
_PROCESSOR = re.compile(r"(host\d+\.)?(cpu|numa|socket)")
_PCI = re.compile(r"(host\d+\.)?(pci|card|device|plx)")
_CAPABILITY = ((r"h100|h200|h800|llama3|superpod:|superpod$", 90), (r"b200|b300|nvl72", 100), (r"dgx1|dgx2|v100", 70))


def machine_of(topology: Topology) -> tuple[Machine, bool]:
    """A host of the topology, and whether there are several. Raises MachineError if they differ."""
    hosts = hosts_of(topology) if any(node.kind == "nic" for node in topology.nodes) else ()
    if len(hosts) < 2:
        every = tuple(node.id for node in topology.nodes)
        nics = tuple(node.id for node in topology.nodes if node.kind == "nic")
        return _machine(topology, Host(tuple(range(topology.ranks)), nics, every)), False
    shapes = Counter(_shape(topology, host) for host in hosts)
    if len(shapes) > 1:
        one, other = (f"{ranks} GPUs, {nics} NICs, {total:g} GB/s inside" for ranks, nics, total in list(shapes)[:2])
        raise MachineError(
            f"{topology.name}: its hosts differ ({one}; {other}); a graph file describes one host, and all must read "
            "the same order: write one for each kind of host, from its own file"
        )
    return _machine(topology, hosts[0]), True


def _shape(topology: Topology, host: Host) -> tuple[int, int, float]:
    inside = set(host.nodes)
    total = sum(link.bandwidth for node in host.nodes for link in topology.links_from(node) if link.dst in inside)
    return len(host.ranks), len(host.nics), float(total / _GIGA)


def _machine(topology: Topology, host: Host) -> Machine:
    inside = set(host.nodes)
    capability = next((found for word, found in _CAPABILITY if re.search(word, topology.name)), 80)
    machine = Machine(topology.name)
    made: dict[int, MachineNode] = {}
    switch: MachineNode | None = None
    for node in (topology.nodes[id] for id in host.nodes):
        if node.kind == "rank":
            number = re.fullmatch(r"(?:host\d+\.)?gpu(\d+)", node.name)
            made[node.id] = machine.node("gpu", node.name)
            machine.add_gpu(
                made[node.id],
                int(number.group(1)) if number else host.ranks.index(node.id),
                host.ranks.index(node.id),
                capability,
            )
        elif node.kind == "nic":
            made[node.id] = machine.node("nic", node.name)
        elif _PROCESSOR.match(node.name):
            made[node.id] = machine.node("cpu", node.name)
        elif _PCI.match(node.name):
            made[node.id] = machine.node("pci", node.name)
        else:
            switch = switch or machine.node("nvs", "nvswitch")
            machine.multicast = machine.multicast or node.reduces
            made[node.id] = switch
    for link in topology.links:
        if link.src in inside and link.dst in inside and made[link.src] is not made[link.dst]:
            src, dst = made[link.src], made[link.dst]
            machine.connect(_link_kind(src, dst), src, dst, link.bandwidth / _GIGA)
    for dev, nic in enumerate(host.nics):
        cables = [link.bandwidth for link in topology.links_from(nic) if link.dst not in inside]
        slots = [link.bandwidth for link in topology.links_from(nic) if link.dst in inside]
        rate = (max(cables) if cables else max(slots)) / _GIGA
        device = machine.node("net", f"net of {made[nic].name}")
        machine.join("NET", made[nic], device, rate)
        machine.add_net(device, dev, (made[nic].name, 0), rate, direct=True, collective=False)
    machine.sort()
    machine.assumed.append("rates of links are the topology's, not those that NCCL measured")
    if not all(re.fullmatch(r"(?:host\d+\.)?gpu\d+", topology.nodes[rank].name) for rank in host.ranks):
        machine.assumed.append("GPUs and NICs are numbered in the order of the topology")
    elif host.nics:
        machine.assumed.append("NICs are numbered in the order of the topology")
    return machine


def _link_kind(src: MachineNode, dst: MachineNode) -> LinkKind:
    kinds = {src.kind, dst.kind}
    if kinds <= {"gpu", "nvs"}:
        return "NVL"
    return "SYS" if kinds == {"cpu"} else "PCI"
