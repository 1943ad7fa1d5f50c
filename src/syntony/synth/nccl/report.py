"""The expected rates of channels, for people and for programs."""

from __future__ import annotations

from typing import Any

from syntony.base.wording import counted
from syntony.synth.nccl.channels import ChannelSet, Host
from syntony.synth.nccl.packing.packing import Packing


def described(host: Host) -> str:
    """The machine in a line."""
    machine = host.machine
    where = "channels lead to other hosts" if host.across else "channels stay within the host"
    return (
        f"{machine.name}: {counted(len(machine.gpus), 'GPU')}, {counted(len(machine.nets), 'network device')}; {where}"
    )


def packed_line(name: str, packing: Packing) -> str:
    chosen = packing.chosen
    return (
        f"  {name:<6} {counted(len(chosen.channels), 'channel')} x {float(chosen.speed):g} GB/s = "
        f"{float(chosen.total):g} GB/s, {packing.fraction:.1%} of the bound {packing.bound.rate:.6g} GB/s"
    )


def packed_object(host: Host, packing: Packing) -> dict[str, Any]:
    chosen = packing.chosen
    return {
        "channels": len(chosen.channels),
        "speed": float(chosen.speed),
        "busbw": float(chosen.total),
        "bound": packing.bound.rate,
        "fraction": packing.fraction,
        "full": list(packing.bound.full),
        "orders": [[host.machine.gpus[gpu].dev for gpu in channel.gpus] for channel in chosen.channels],
    }


def allowed(host: Host, chosen: ChannelSet) -> float:
    """GB/s that the links allow these channels; the speed may be above the one written."""
    return float(host.link_speed(chosen.shape, chosen.channels) * len(chosen.channels))


def busiest(host: Host, chosen: ChannelSet, most: int = 3) -> list[str]:
    """The links that the channels use most, with the part of their rate."""
    links = host.machine.links
    loads = host.loads(chosen.shape, chosen.channels)
    parts = sorted(((load * chosen.speed / links[link].rate, link) for link, load in loads.items()), reverse=True)
    return [
        f"{links[link].src.name} > {links[link].dst.name} {float(part):.0%} of {float(links[link].rate):g} GB/s"
        for part, link in parts[:most]
    ]
