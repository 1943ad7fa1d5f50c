"""Aggregating switches: one process of `syntony.lab.aggregator` on each switch of the lab that has an aggregator.

Each rank is told its path: the aggregating switch nearest to its host, if other hosts share it, and the one nearest to
all hosts together, where all sums meet.

        h0 h1 h2 h3       paths of h0, h1: s0,s2
         └s0┘  └s1┘       paths of h2, h3: s1,s2
           └─s2─┘

PANAMA's jobs have a tree for each switch that is equally near to all hosts: several paths, separated by semicolons.

If the root shares its slots among jobs, a server is attached to it by a cable of any rate, and all paths continue to
the server. Switches in a host's box have no namespace, and so no process. A profile's rate is not emulated: the process
adds as fast as it can.
"""

from __future__ import annotations

import sys
from collections import Counter, deque

from syntony.lab.aggregator import arguments_of, arguments_of_server, needs_server
from syntony.lab.lab_spec import LabSpec, Machine
from syntony.topologies.aggregator import Aggregator

PORT, SERVER_PORT = 29600, 29601
"""Any port is free in a separate namespace."""
SPREAD = ("panama",)
"""Profiles whose jobs have several trees."""


def adding_switches(spec: LabSpec) -> tuple[Machine, ...]:
    """The switches of the lab that have an aggregator."""
    return tuple(
        machine
        for machine in spec.machines
        if not machine.ranks and spec.topology.nodes[machine.nodes[0]].aggregator is not None
    )


def services(spec: LabSpec) -> tuple[tuple[Machine, tuple[str, ...]], ...]:
    """Services beside the ranks: an aggregator on each of `adding_switches`, and a server on the root."""
    switches = adding_switches(spec)
    found = [(switch, _command(PORT, arguments_of(_aggregator(spec, switch)))) for switch in switches]
    for root in _roots(spec, switches):
        if needs_server(_aggregator(spec, root)):
            found.append((root, _command(SERVER_PORT, arguments_of_server(_aggregator(spec, root)))))
    return tuple(found)


def ways(spec: LabSpec) -> tuple[str, ...]:
    """By rank, its SYNTONY_AGGREGATOR; empty if no switch aggregates."""
    switches = adding_switches(spec)
    trees = [_ways(spec, switches, root) for root in _roots(spec, switches)]
    return tuple(";".join(each) for each in zip(*trees, strict=True))


def _ways(spec: LabSpec, switches: tuple[Machine, ...], root: Machine) -> tuple[str, ...]:
    own = {
        host.id: min(switches, key=lambda switch: (_wires_to(spec, switch)[host.id], switch is not root))
        for host in spec.hosts
    }
    below = Counter(own[host.id].id for host in spec.hosts for _ in host.ranks)
    server = f",{root.ports[0].address}:{SERVER_PORT}" if needs_server(_aggregator(spec, root)) else ""

    def way(host: Machine) -> str:
        first = own[host.id]
        alone = first is root or below[first.id] == 1
        return ",".join(f"{switch.ports[0].address}:{PORT}" for switch in ([root] if alone else [first, root])) + server

    return tuple(way(spec.host_of[rank]) for rank in range(spec.topology.ranks))


def _aggregator(spec: LabSpec, switch: Machine) -> Aggregator:
    aggregator = spec.topology.nodes[switch.nodes[0]].aggregator
    assert aggregator is not None
    return aggregator


def _command(port: int, arguments: list[str]) -> tuple[str, ...]:
    return (sys.executable, "-m", "syntony.lab.aggregator", "--listen", f"0.0.0.0:{port}", *arguments)


def _roots(spec: LabSpec, switches: tuple[Machine, ...]) -> list[Machine]:
    """The switch nearest to all hosts together; for a job with several trees, all that are equally near."""

    def far(switch: Machine) -> tuple[int, int]:
        hops = _wires_to(spec, switch)
        to_hosts = [hops[host.id] for host in spec.hosts]
        return sum(to_hosts), max(to_hosts)

    distances = [far(switch) for switch in switches]
    nearest = [switch for switch, distance in zip(switches, distances, strict=True) if distance == min(distances)]
    return nearest if nearest and _aggregator(spec, nearest[0]).name in SPREAD else nearest[:1]


def _wires_to(spec: LabSpec, goal: Machine) -> dict[int, int]:
    far = {goal.id: 0}
    waiting = deque([goal.id])
    while waiting:
        machine = waiting.popleft()
        for _, _, end in spec.wires_of(machine):
            if end.machine not in far:
                far[end.machine] = far[machine] + 1
                waiting.append(end.machine)
    return far
