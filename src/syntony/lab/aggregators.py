"""Switches that add: one process of `syntony.lab.aggregator` on each switch of the lab that has an aggregator.

Ranks are told of one of them, the nearest to all hosts together: an all_reduce meets at one switch. Switches in a
host's box have no namespace, and so no process. A profile's rate is not emulated: the process adds as fast as it can.
"""

from __future__ import annotations

import sys
from collections import deque

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


def meeting_place(spec: LabSpec) -> str | None:
    """SYNTONY_AGGREGATOR: the adding switch with the least sum of wires to all hosts; None without any."""
    switches = adding_switches(spec)
    if not switches:
        return None
    nearest = min(switches, key=lambda switch: sum(_wires_to(spec, switch)[host.id] for host in spec.hosts))
    return f"{nearest.ports[0].address}:{PORT}"


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
