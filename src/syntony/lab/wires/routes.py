r"""Routes: which wire leads to which address. Static, over as few wires as possible. Pure.

                 s1                     h0 reaches h3 through s1 or s2. With one route per pair, each machine always
               /    \                   takes the same wire to an address, and the routes are chosen so that traffic
        h0 ─ s0      s3 ─ h3            between all pairs of hosts would load the wires evenly. With ECMP the kernel
               \    /                   knows both and picks one per connection by a hash of addresses and ports.
                 s2

A host with NICs does not forward, and sends to the k-th NIC of another host from its own k-th (among those on shortest
paths), so flows to different NICs use different rails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from syntony.lab.lab_spec import End, LabError, LabSpec, Machine, Wire

_SWEEPS = 8


@dataclass(frozen=True)
class Hop:
    """The first hop of a path: `wire`, through the end `near`, to the machine at `far`."""

    wire: Wire
    near: End
    far: End


@dataclass(frozen=True)
class Route:
    """At `machine`: packets to `destination` leave by one of `hops`, with `source` as their sender's address."""

    machine: int
    destination: str
    source: str
    hops: tuple[Hop, ...]


def routes_of(spec: LabSpec, ecmp: bool = False) -> tuple[Route, ...]:
    """All routes of the lab: from every machine to every address of another one.

    With `ecmp` a route has all shortest paths, else one. Raises LabError if a host cannot reach another.
    """
    destinations = [(machine, number) for machine in spec.machines for number in range(len(machine.ports))]
    ways = [_shortest(spec, machine, number) for machine, number in destinations]
    for (machine, number), hops in zip(destinations, ways, strict=True):
        for host in spec.hosts:
            if machine.ranks and host.id != machine.id and host.id not in hops:
                goal = spec.topology.nodes[machine.ports[number].node].name
                raise LabError(
                    f"{spec.topology.name}: nothing leads from {spec.label(host)} to {goal}; "
                    "in the lab every host must reach every NIC"
                )
    if not ecmp:
        ways = _balanced(spec, ways)
    return tuple(
        Route(start, machine.ports[number].address, _source(spec, spec.machines[start], hops), hops)
        for (machine, number), way in zip(destinations, ways, strict=True)
        for start, hops in sorted(way.items())
    )


_Ways = dict[int, tuple[Hop, ...]]
"""By machine: the first hops towards one destination."""


def _shortest(spec: LabSpec, goal: Machine, number: int) -> _Ways:
    """Breadth-first search, backwards from port `number` of `goal`."""
    port = goal.ports[number].node
    reached = {goal.id: 0}
    ways: dict[int, list[Hop]] = {}
    frontier = [goal.id]
    while frontier:
        arrived = []
        for machine in frontier:
            if machine != goal.id and not spec.machines[machine].forwards:
                continue
            for wire, far, near in spec.wires_of(machine):
                if machine == goal.id and not goal.forwards and far.node != port:
                    continue
                if reached.setdefault(near.machine, reached[machine] + 1) == reached[machine] + 1:
                    if near.machine not in ways:
                        arrived.append(near.machine)
                    ways.setdefault(near.machine, []).append(Hop(wire, near, far))
        frontier = arrived
    return {
        start: _on_one_rail(spec.machines[start], sorted(hops, key=lambda hop: hop.wire.id), number)
        for start, hops in ways.items()
    }


def _on_one_rail(machine: Machine, hops: list[Hop], number: int) -> tuple[Hop, ...]:
    """Those of `hops` that leave by the NIC matching the destination's `number`; all if there are no NICs."""
    if machine.forwards:
        return tuple(hops)
    nics = sorted({hop.near.node for hop in hops})
    return tuple(hop for hop in hops if hop.near.node == nics[number % len(nics)])


def _source(spec: LabSpec, machine: Machine, hops: tuple[Hop, ...]) -> str:
    """The address of the port through which packets leave."""
    at = {port.node: port.address for port in machine.ports}
    return at.get(hops[0].near.node, machine.ports[0].address)


def _balanced(spec: LabSpec, ways: list[_Ways]) -> list[_Ways]:
    """Chooses one hop each to minimize the sum of squared loads, for one unit from every host to every address.

    Each choice in turn is reconsidered until nothing changes (a local optimum).
    """
    chosen = [{start: hops[0] for start, hops in way.items()} for way in ways]
    load: Counter[tuple[int, int]] = Counter()
    for tree in chosen:
        for host in spec.hosts:
            for hop in _path(tree, host.id):
                load[_lane(hop)] += 1
    for _ in range(_SWEEPS):
        changed = False
        for way, tree in zip(ways, chosen, strict=True):
            for start, hops in way.items():
                if len(hops) == 1:
                    continue
                volume = sum(any(hop.near.machine == start for hop in _path(tree, host.id)) for host in spec.hosts)
                before = tree[start]
                _add(load, tree, start, -volume)
                costs = {}
                for number, hop in enumerate(hops):
                    tree[start] = hop
                    costs[number] = _cost(load, _path(tree, start), volume)
                best = min(costs, key=lambda number: (costs[number], hops[number] != before, number))
                tree[start] = hops[best]
                _add(load, tree, start, volume)
                changed |= tree[start] != before
        if not changed:
            break
    return [{start: (hop,) for start, hop in tree.items()} for tree in chosen]


def _path(tree: Mapping[int, Hop], start: int) -> list[Hop]:
    path = []
    while start in tree:
        path.append(tree[start])
        start = tree[start].far.machine
    return path


def _lane(hop: Hop) -> tuple[int, int]:
    return hop.wire.id, hop.near.machine


def _add(load: Counter[tuple[int, int]], tree: Mapping[int, Hop], start: int, volume: int) -> None:
    for hop in _path(tree, start):
        load[_lane(hop)] += volume


def _cost(load: Counter[tuple[int, int]], path: list[Hop], volume: int) -> Fraction:
    return sum(
        (Fraction((load[_lane(hop)] + volume) ** 2 - load[_lane(hop)] ** 2) / hop.near.rate**2 for hop in path),
        Fraction(),
    )
