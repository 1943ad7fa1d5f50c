"""Switches that add: one process of `syntony.lab.aggregator` on each switch of the lab that has an aggregator.

Ranks are told their way: the adding switch that is nearest to their host, where others have the same, and the one that
is nearest to all hosts together, where all their sums meet.

        h0 h1 h2 h3       ways of h0, h1: s0,s2
         └s0┘  └s1┘       ways of h2, h3: s1,s2
           └─s2─┘

Switches in a host's box have no namespace, and so no process. A profile's rate is not emulated: the process adds as
fast as it can.
"""

from __future__ import annotations

import sys
from collections import Counter, deque

from syntony.lab.lab_spec import LabSpec, Machine

PORT = 29600
"""In a namespace of its own, any port is free."""


def adding_switches(spec: LabSpec) -> tuple[Machine, ...]:
    """The switches of the lab that have an aggregator."""
    return tuple(
        machine
        for machine in spec.machines
        if not machine.ranks and spec.topology.nodes[machine.nodes[0]].aggregator is not None
    )


def command_of(spec: LabSpec, switch: Machine) -> tuple[str, ...]:
    """What runs on `switch`, one of `adding_switches`."""
    from syntony.lab.aggregator import arguments_of

    aggregator = spec.topology.nodes[switch.nodes[0]].aggregator
    assert aggregator is not None
    listen = ("--listen", f"0.0.0.0:{PORT}")
    return (sys.executable, "-m", "syntony.lab.aggregator", *listen, *arguments_of(aggregator))


def ways(spec: LabSpec) -> tuple[str, ...]:
    """By rank, its SYNTONY_AGGREGATOR; empty without any adding switch."""
    switches = adding_switches(spec)
    if not switches:
        return ()
    far = {switch.id: _wires_to(spec, switch) for switch in switches}
    root = min(switches, key=lambda switch: (sum(hops := [far[switch.id][host.id] for host in spec.hosts]), max(hops)))
    own = {
        host.id: min(switches, key=lambda switch: (far[switch.id][host.id], switch is not root)) for host in spec.hosts
    }
    below = Counter(own[host.id].id for host in spec.hosts for _ in host.ranks)

    def way(host: Machine) -> str:
        first = own[host.id]
        alone = first is root or below[first.id] == 1
        return ",".join(f"{switch.ports[0].address}:{PORT}" for switch in ([root] if alone else [first, root]))

    return tuple(way(spec.host_of[rank]) for rank in range(spec.topology.ranks))


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
