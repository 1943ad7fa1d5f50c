"""From spec to kernel: the lines of `ip` and `tc` that build a lab (pure), and the functions that run them.

A lab is built in this order: machines, cables (`delay.py` makes wires with delay or losses), then addresses, routes and
rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from ipaddress import IPv4Address
from types import MappingProxyType

from syntony.lab.lab_spec import End, LabSpec, Machine, Wire
from syntony.lab.wires import kernel, shaping
from syntony.lab.wires.routes import Route

PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "ipv4/conf/all/rp_filter": "0",  # answers may take another route than requests
        "ipv4/conf/default/rp_filter": "0",
        "ipv4/fib_multipath_hash_policy": "1",  # ECMP by addresses and ports, as switches do
        "ipv4/tcp_congestion_control": "reno",  # the only one that every kernel allows in a namespace
        "ipv4/tcp_no_metrics_save": "1",  # no connection reuses metrics of an earlier one
        "ipv6/conf/all/disable_ipv6": "1",  # no router solicitations on the wires
        "ipv6/conf/default/disable_ipv6": "1",
    }
)
"""Set in every namespace before it has devices."""


def make_machines(spec: LabSpec, namespace: Callable[[str], str]) -> None:
    """One namespace for each machine."""
    for machine in spec.machines:
        name = namespace(machine.name)
        kernel.run(["ip", "netns", "add", name])
        kernel.set_parameters(name, {**PARAMETERS, "ipv4/ip_forward": str(int(machine.forwards))})


def make_cables(spec: LabSpec, namespace: Callable[[str], str]) -> None:
    """A veth pair for each wire without delay and losses."""
    lines = []
    for wire in spec.wires:
        if not wire.by_process:
            one, other = (namespace(spec.machines[end.machine].name) for end in wire.ends)
            lines.append(f"link add name {wire.name} netns {one} type veth peer name {wire.name} netns {other}")
    kernel.run(["ip", "-batch", "-"], lines)


def configure(spec: LabSpec, routes: Iterable[Route], namespace: Callable[[str], str]) -> None:
    """Sets addresses, routes and rate limits, once the devices exist."""
    routes_at: dict[int, list[Route]] = {}
    for route in routes:
        routes_at.setdefault(route.machine, []).append(route)
    for machine in spec.machines:
        name = namespace(machine.name)
        kernel.ip(name, ip_lines(spec, machine, routes_at.get(machine.id, [])))
        kernel.tc(name, [shape_line(wire, near.rate) for wire, near, _ in spec.wires_of(machine.id)])


def ip_lines(spec: LabSpec, machine: Machine, routes: Iterable[Route]) -> list[str]:
    """Brings `machine` up: a port's address is set on the first wire plugged in there, and serves all others too."""
    lines = ["link set lo up"]
    address_at = {port.node: port.address for port in machine.ports}
    for wire, near, far in spec.wires_of(machine.id):
        hardware = f" address {_hardware_address(near)}" if not wire.by_process else ""
        lines.append(f"link set {wire.name}{hardware} mtu {shaping.MTU} gso_max_size {spec.packet} up")
        if address := address_at.pop(near.node, None):
            lines.append(f"addr add {address}/32 dev {wire.name}")
        lines.append(f"addr add {near.link_address} peer {far.link_address}/32 dev {wire.name}")
        if not wire.by_process:  # static neighbours: ARP would take a second after a cut wire is mended
            lines.append(f"neigh add {far.link_address} lladdr {_hardware_address(far)} dev {wire.name} nud permanent")
    return [*lines, *map(_route_line, routes)]


def shape_line(wire: Wire, rate: Fraction | None) -> str:
    """Limits the traffic leaving through `wire` to `rate` bytes/s; None: nothing leaves."""
    return f"qdisc replace dev {wire.name} root {shaping.CUT if rate is None else shaping.bucket(rate)}"


def device_of(spec: LabSpec, machine: Machine) -> str | None:
    """The device with the machine's first address; None if no wire is plugged in there."""
    node = machine.ports[0].node
    return next((wire.name for wire, near, _ in spec.wires_of(machine.id) if near.node == node), None)


def _hardware_address(end: End) -> str:
    """Locally administered, and as unique as the link address that it contains."""
    return "02:53:" + IPv4Address(end.link_address).packed.hex(":")


def _route_line(route: Route) -> str:
    ways = [f"via {hop.far.link_address} dev {hop.wire.name}" for hop in route.hops]
    how = ways[0] if len(ways) == 1 else " ".join(f"nexthop {way}" for way in ways)
    return f"route add {route.destination}/32 src {route.source} {how}"
