"""Describes a witness, so that a reader of the bound sees which links it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from syntony.base.wording import counted, rate
from syntony.synth.model.bound import Cut, Partition, Prices, Witness
from syntony.synth.model.network import Network
from syntony.topologies.hosts import Host, hosts_of
from syntony.topologies.topology import TopologyError


def describe(network: Network, witness: Witness) -> str:
    """One sentence, without a full stop: `7/8 of the size must leave box 3 over 8 links, 400 GB/s together`."""
    match witness:
        case Cut():
            return _cut(network, witness)
        case Partition():
            return _partition(network, witness)
        case Prices():
            return _prices(witness)


def _cut(network: Network, cut: Cut) -> str:
    inside = set(cut.nodes)
    outside = {node for node, usable in enumerate(network.usable) if usable} - inside
    side, verb = (inside, "enter") if cut.entering else (inside, "leave")
    if len(outside) < len(inside):
        side, verb = outside, "leave" if cut.entering else "enter"
    return f"{_share(cut.share)} must {verb} {_named(network, side)} over {_links(network, cut.links, cut.bandwidth)}"


def _partition(network: Network, partition: Partition) -> str:
    members, count = set(network.collective.members), len(partition.parts)
    smallest = min(partition.parts, key=lambda part: len(part))
    homes = {tuple(sorted(members & set(part))) for part in partition.parts}
    if all(len(home) == 1 for home in homes):
        parts = counted(count, "rank")
    elif homes == {tuple(sorted(members & set(host.ranks))) for host in _hosts(network)} - {()}:
        parts = f"{count} boxes"
    else:
        parts = f"{counted(count, 'part')} (one is {_named(network, set(smallest))})"
    verb = "enter" if partition.entering else "leave"
    wires = sum((network.topology.links[link].bandwidth for link in partition.links), Fraction(0))
    adding = f", or are saved by adders, which take in {rate(partition.bandwidth - wires)}" if partition.adders else ""
    return (
        f"to be summed and spread among {parts}, each byte needs {partition.share} messages that {verb} them over "
        f"{_links(network, partition.links, wires)}{adding}"
    )


def _prices(prices: Prices) -> str:
    count, first = counted(len(prices.links), "link"), prices.prices[0]
    if len(set(prices.prices)) == 1:
        crossed, together = prices.share / first, rate(prices.bandwidth / first)
        return f"even on shortest paths, {crossed} times the size in total must cross {count}, {together} together"
    return (
        f"at the given prices per byte on {count} all data must pay {float(prices.share):g} times the size, "
        f"and the links earn {float(prices.bandwidth):g} per second"
    )


def _share(share: Fraction) -> str:
    return "all of the size" if share == 1 else f"{share} of the size"


def _links(network: Network, links: Sequence[int], bandwidth: Fraction) -> str:
    """`8 links of 50 GB/s (rail0 to nic3.0, ..), 400 GB/s together`."""
    wires = [network.topology.links[link] for link in links]
    names, first = network.topology.nodes, wires[0]
    ends = f"{names[first.src].name} to {names[first.dst].name}"
    if len(wires) == 1:
        return f"one link of {rate(bandwidth)} ({ends})"
    each = f" of {rate(first.bandwidth)}" if len({link.bandwidth for link in wires}) == 1 else ""
    return f"{len(wires)} links{each} ({ends}, ..), {rate(bandwidth)} together"


def _hosts(network: Network) -> tuple[Host, ...]:
    """The boxes; none if the topology has no NICs."""
    try:
        hosts = hosts_of(network.topology)
    except TopologyError:
        return ()
    return hosts if any(host.nics or len(host.ranks) > 1 for host in hosts) else ()


def _named(network: Network, side: set[int]) -> str:
    """The node set by its boxes or ranks, and what else is in it."""
    ranks = sorted(node for node in side if network.topology.nodes[node].kind == "rank")
    hosts = _hosts(network)
    whole = [number for number, host in enumerate(hosts) if side >= set(host.nodes)]
    rest = side - {node for number in whole for node in hosts[number].nodes}
    if whole and not any(node in rest for node in ranks):
        kind = "box" if len(whole) == 1 else "boxes"
        parts = f"{kind} {_ranges(whole)} (ranks {_ranges(ranks)})"
    else:
        parts = f"{'rank' if len(ranks) == 1 else 'ranks'} {_ranges(ranks)}" if ranks else ""
        rest = side - set(ranks)
    others = [network.topology.nodes[node].name for node in sorted(rest)]
    if not others:
        return parts
    listed = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    return f"{parts} with {listed}" if parts else listed


def _ranges(numbers: Sequence[int], shown: int = 6) -> str:
    """Ascending numbers as people list them: `0-7, 9`."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    listed = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:shown]]
    return ", ".join([*listed, ".."] if len(runs) > shown else listed)
