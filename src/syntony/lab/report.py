"""What the lab reports about itself: its map and its ceilings, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from syntony.lab.lab import Lab
from syntony.lab.lab_spec import Machine
from syntony.lab.wires import shaping
from syntony.lab.wires.ceiling import Ceiling, median_round_trip
from syntony.lab.wires.delay import DelayFigures

if TYPE_CHECKING:
    from rich.console import RenderableType

_MANY = 24  # rows after which a table is cut short


def map_of(lab: Lab) -> Iterable[RenderableType]:
    """Which namespace is what, and how to enter one."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    spec = lab.spec
    yield f"lab {lab.id}: {spec.topology.name} as {len(spec.machines)} namespaces and {len(spec.wires)} wires"
    table = Table("namespace", "stands for", "addresses", "wires", box=SIMPLE_HEAD)
    for machine in spec.machines[:_MANY]:
        wires = " ".join(f"{wire.name}→{spec.machines[far.machine].name}" for wire, _, far in spec.wires_of(machine.id))
        addresses = " ".join(port.address for port in machine.ports)
        table.add_row(lab.namespace(machine.name), spec.label(machine), addresses, wires)
    yield table
    if len(spec.machines) > _MANY:
        yield f"... and {len(spec.machines) - _MANY} more (--json tells all)"
    yield f"{lab.paths}; to enter one: {_enter(lab, spec.machines[0])}"


def ceilings(measured: Sequence[Ceiling]) -> Iterable[RenderableType]:
    """What the wires carry."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    columns = ("wire", "rate", "TCP, all busy", "alone", "round trip, ms", "worst", "burst, KiB")
    table = Table(*columns, box=SIMPLE_HEAD, caption="rates in Mbit/s; TCP: its payload", caption_justify="left")
    for ceiling in measured[:_MANY]:
        table.add_row(
            _direction(ceiling),
            _mega(ceiling.near.rate),
            f"{_mega(ceiling.together)} {ceiling.together / float(ceiling.near.rate):6.1%}",
            "" if ceiling.alone is None else _mega(ceiling.alone),
            f"{1e3 * median_round_trip(ceiling):.3f}",
            f"{1e3 * ceiling.round_trips[-1]:.3f}",
            f"{shaping.burst(ceiling.near.rate) / 1024:.0f}",
        )
    yield table
    if len(measured) > _MANY:
        yield f"... and {len(measured) - _MANY} more (--json tells all)"
    short = [ceiling for ceiling in measured if ceiling.falls_short]
    if short:
        worst = min(short, key=lambda ceiling: ceiling.together / float(ceiling.near.rate))
        yield (
            f"This machine does not hold these rates: {len(short)} of {len(measured)} directions fall short, "
            f"{_direction(worst)} at {_mega(worst.together)} of {_mega(worst.near.rate)} Mbit/s. "
            "Two cores carry about 500 Mbit/s per wire of a small lab; give a lower --rate."
        )


def delay_line(figures: DelayFigures) -> str:
    """The figures of the delay line, in a sentence."""
    return (
        f"delay line: {figures.packets} packets, {figures.dropped} dropped, {figures.lost} lost, "
        f"{1e6 * figures.mean_lateness:.0f} us late on average, {1e3 * figures.worst_lateness:.2f} ms at worst"
    )


def document(lab: Lab, measured: Sequence[Ceiling]) -> dict[str, Any]:
    """The map and the ceilings. Rates in bytes/s, times in seconds."""
    spec = lab.spec
    found = {(ceiling.wire.id, ceiling.near.machine): ceiling for ceiling in measured}
    return {
        "id": lab.id,
        "topology": spec.topology.name,
        "paths": lab.paths,
        "machines": [
            {
                "name": machine.name,
                "namespace": lab.namespace(machine.name),
                "enter": _enter(lab, machine),
                "nodes": [spec.topology.nodes[node].name for node in machine.nodes],
                "ranks": list(machine.ranks),
                "addresses": [port.address for port in machine.ports],
                "forwards": machine.forwards,
            }
            for machine in spec.machines
        ],
        "wires": [
            {
                "name": wire.name,
                "delay": wire.delay,
                "loss": wire.loss,
                "ends": [
                    {
                        "machine": spec.machines[end.machine].name,
                        "node": spec.topology.nodes[end.node].name,
                        "link": end.link,
                        "rate": float(end.rate),
                        "burst": shaping.burst(end.rate),
                        **_ceiling(found.get((wire.id, end.machine))),
                    }
                    for end in wire.ends
                ],
            }
            for wire in spec.wires
        ],
    }


def _ceiling(ceiling: Ceiling | None) -> dict[str, Any]:
    if ceiling is None:
        return {}
    return {
        "tcp": ceiling.together,
        "tcp_alone": ceiling.alone,
        "round_trip": median_round_trip(ceiling),
        "round_trip_worst": ceiling.round_trips[-1],
    }


def _mega(rate: float | Fraction) -> str:
    """Bytes/s in Mbit/s."""
    return f"{float(rate) * 8 / 1e6:.4g}"


def _direction(ceiling: Ceiling) -> str:
    return f"{ceiling.wire.name} {ceiling.names[0]}→{ceiling.names[1]}"


def _enter(lab: Lab, machine: Machine) -> str:
    return f"ip netns exec {lab.namespace(machine.name)} bash"
