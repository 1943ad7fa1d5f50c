"""Routes: every packet arrives, by a shortest way, and the wires share the work."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from syntony.lab.lab_spec import LabError, LabSpec, at_rate, spec_of
from syntony.lab.wires.network import ip_lines, shape_line
from syntony.lab.wires.routes import Route, routes_of
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology

NAMES = [
    "star:4",
    "torus:2x2",
    "torus:3x4",
    "ring:5",
    "dgx1",
    "dgx-a100:2",
    "rail:boxes=3,gpus=2,rails=2",
    "rail:boxes=2,gpus=1,rails=4",
    "hypercube:3",
]


def two_spines() -> Topology:
    """Two leaves of two hosts each, joined by two spines."""
    wiring = Wiring("two spines")
    hosts = [wiring.rank((place, 0)) for place in range(4)]
    leaves = [wiring.switch(f"leaf{place}", (place, 1)) for place in range(2)]
    spines = [wiring.switch(f"spine{place}", (place, 2)) for place in range(2)]
    for place, host in enumerate(hosts):
        wiring.cable(host, leaves[place // 2], Fraction(10), 0.0)
    for leaf in leaves:
        for spine in spines:
            wiring.cable(leaf, spine, Fraction(10), 0.0)
    return wiring.topology()


def distances(spec: LabSpec, goal: int) -> dict[int, int]:
    """Wires to machine `goal`, where hosts with NICs do not forward: written anew, without the planner's own search."""
    far = {machine.id: len(spec.machines) for machine in spec.machines} | {goal: 0}
    for _ in spec.machines:
        for wire in spec.wires:
            for near, other in (wire.ends, wire.ends[::-1]):
                if other.machine == goal or spec.machines[other.machine].forwards:
                    far[near.machine] = min(far[near.machine], far[other.machine] + 1)
    return far


def follow(spec: LabSpec, routes: dict[tuple[int, str], Route], start: int, address: str) -> list[tuple[int, int]]:
    """The wires that a packet takes, each with the machine that it leaves."""
    way = []
    while all(port.address != address for port in spec.machines[start].ports):
        hop = routes[start, address].hops[0]
        assert hop.near.machine == start
        way.append((hop.wire.id, start))
        start = hop.far.machine
        assert len(way) <= len(spec.machines), "a loop"
    return way


@pytest.mark.parametrize("name", NAMES)
def test_every_host_reaches_every_address_by_a_shortest_way(name: str) -> None:
    spec = spec_of(parse(name))
    routes = {(route.machine, route.destination): route for route in routes_of(spec)}
    for goal in spec.hosts:
        far = distances(spec, goal.id)
        for host in spec.hosts:
            if host is not goal:
                lengths = [len(follow(spec, routes, host.id, port.address)) for port in goal.ports]
                assert min(lengths) == far[host.id]


@pytest.mark.parametrize("name", ["torus:2x2", "star:4", "ring:5"])
def test_the_wires_of_a_small_symmetric_network_share_the_work_evenly(name: str) -> None:
    spec = spec_of(parse(name))
    routes = {(route.machine, route.destination): route for route in routes_of(spec)}
    load: Counter[tuple[int, int]] = Counter()
    for goal in spec.hosts:
        for host in spec.hosts:
            if host is not goal:
                load.update(follow(spec, routes, host.id, goal.ports[0].address))
    assert len(load) == 2 * len(spec.wires)
    assert len(set(load.values())) == 1


def test_both_spines_are_used() -> None:
    spec = spec_of(two_spines())
    routes = routes_of(spec)
    up = Counter(route.hops[0].wire.id for route in routes if route.machine == 4 and route.hops[0].far.machine >= 6)
    assert len(up) == 2


def test_ecmp_knows_every_shortest_way() -> None:
    spec = spec_of(two_spines())
    ways = {(route.machine, route.destination): len(route.hops) for route in routes_of(spec, ecmp=True)}
    far_host = spec.machines[3].ports[0].address
    near_host = spec.machines[1].ports[0].address
    assert ways[4, far_host] == 2
    assert ways[4, near_host] == 1
    assert ways[0, far_host] == 1
    assert all(len(route.hops) == 1 for route in routes_of(spec))


def test_a_rail_host_uses_the_rail_of_the_address() -> None:
    spec = spec_of(parse("rail:boxes=2,gpus=2,rails=2"))
    here, there = spec.hosts
    routes = {route.destination: route for route in routes_of(spec) if route.machine == here.id}
    for own, port in zip(here.ports, there.ports, strict=True):
        route = routes[port.address]
        assert (route.source, route.hops[0].near.node) == (own.address, own.node)


def test_nics_on_one_crossbar_take_turns_too() -> None:
    spec = spec_of(parse("dgx-a100:2"))
    here, there = spec.hosts
    routes = {route.destination: route for route in routes_of(spec, ecmp=True) if route.machine == here.id}
    assert len({routes[port.address].hops[0].wire.id for port in there.ports}) == 8


def test_hosts_that_cannot_meet_are_refused() -> None:
    wiring = Wiring("apart")
    for place in range(3):
        wiring.rank((place, 0))
    wiring.cable(0, 1, Fraction(1), 0.0)
    with pytest.raises(LabError, match=r"^apart: nothing leads from rank2 to rank0; in the lab every host must reach"):
        routes_of(spec_of(wiring.topology()))


def test_the_lines_of_ip_and_tc() -> None:
    spec = at_rate(spec_of(parse("rail:boxes=2,gpus=1,rails=2")), Fraction(25 * 10**6))
    host = spec.hosts[0]
    routes = [route for route in routes_of(spec) if route.machine == host.id and route.destination < "198.18.0.5"]
    assert ip_lines(spec, host, routes) == [
        "link set lo up",
        "link set w0 address 02:53:a9:fe:01:00 mtu 9000 gso_max_size 16384 up",
        "addr add 198.18.0.1/32 dev w0",
        "addr add 169.254.1.0 peer 169.254.1.1/32 dev w0",
        "neigh add 169.254.1.1 lladdr 02:53:a9:fe:01:01 dev w0 nud permanent",
        "link set w1 address 02:53:a9:fe:01:02 mtu 9000 gso_max_size 16384 up",
        "addr add 198.18.0.2/32 dev w1",
        "addr add 169.254.1.2 peer 169.254.1.3/32 dev w1",
        "neigh add 169.254.1.3 lladdr 02:53:a9:fe:01:03 dev w1 nud permanent",
        "route add 198.18.0.3/32 src 198.18.0.1 via 169.254.1.1 dev w0",
        "route add 198.18.0.4/32 src 198.18.0.2 via 169.254.1.3 dev w1",
    ]
    assert shape_line(spec.wires[0], spec.wires[0].ends[0].rate) == (
        "qdisc replace dev w0 root tbf rate 200000000bit burst 50000 limit 16777216"
    )
    assert shape_line(spec.wires[0], None) == "qdisc replace dev w0 root blackhole"


def test_ecmp_lines_have_a_next_hop_for_each_way() -> None:
    spec = spec_of(parse("torus:2x2"))
    routes = [route for route in routes_of(spec, ecmp=True) if route.machine == 0 and len(route.hops) == 2]
    assert ip_lines(spec, spec.machines[0], routes)[-1] == (
        "route add 198.18.0.4/32 src 198.18.0.1 nexthop via 169.254.1.1 dev w0 nexthop via 169.254.1.3 dev w1"
    )
