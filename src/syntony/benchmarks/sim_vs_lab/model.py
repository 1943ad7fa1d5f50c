r"""The lab as the simulator sees it: what its wires carry of our bytes, and which wires a socket uses. Pure.

        0 ─── h0 ─── w0 ─── s0 ─── w1 ─── h1 ─── 1       one node per machine, so that hosts that forward (tori) can:
          memory    goodput             memory           a rank hangs on its host by what memory copies in a second

**Goodput.** A rate limit counts whole Ethernet frames; of a jumbo frame, TCP's payload is what is left of the MTU
beside 20 bytes of IP and 20 + 12 of TCP (timestamps), and Ethernet's header comes on top. Acknowledgements go the other
way, one for every packet that the kernel handles as one, and take their share of a wire that is busy both ways.

**The token bucket.** A wire that was idle for as long as its bucket takes to fill lets `burst` bytes pass at once. A
collective's bottleneck is busy from beginning to end, so that happens there once: it saves burst / rate seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from syntony.lab.lab_spec import LabSpec, Machine, Wire
from syntony.lab.wires import shaping
from syntony.lab.wires.routes import Route, routes_of
from syntony.synth.simulation.sockets import Sockets
from syntony.topologies.topology import Link, Node, Topology

ETHERNET = 14
"""Bytes of a frame's header, as rate limiters count it."""
IP = 20
TCP = 32
"""Bytes of a header with timestamps."""
FRAME = 72
"""Bytes before every message: FramePrefix and FrameHeader (csrc/core/frames/frame_wire.hpp)."""
ACKNOWLEDGED = Fraction(ETHERNET + IP + TCP, shaping.SEGMENT)
"""Bytes of acknowledgements per byte: one for every packet of the kernel's, which may choose to send fewer."""
USUAL_SOCKETS = 2
"""Between two ranks on hosts with one address (TcpEndpoints::flows_with); else one per rail."""


def payload_share(mtu: int = shaping.MTU) -> Fraction:
    """Bytes of payload per byte that a rate limiter counts."""
    return Fraction(mtu - IP - TCP, mtu + ETHERNET)


def goodput(rate: Fraction, message: int) -> Fraction:
    """Bytes/s of messages of `message` bytes over a wire of `rate` bytes/s that is busy both ways."""
    return rate * Fraction(message, message + FRAME) * payload_share() / (1 + ACKNOWLEDGED)


def burst_seconds(spec: LabSpec) -> float:
    """What a full bucket saves; the same on all wires but very slow ones."""
    return min((shaping.burst(end.rate) / float(end.rate) for wire in spec.wires for end in wire.ends), default=0.0)


def network_of(spec: LabSpec, message: int, latency: Mapping[int, float], memory: float) -> Topology:
    """The lab's machines and wires, for messages of `message` bytes.

    `latency`: seconds one way, by wire; `memory`: bytes/s that a host copies.
    """
    ranks, topology = spec.topology.ranks, spec.topology
    nodes = [*topology.nodes[:ranks]]
    nodes += [Node(ranks + machine.id, "switch", machine.name) for machine in spec.machines]
    ends: list[tuple[int, int, float, Fraction]] = []
    for rank in range(ranks):
        host = ranks + spec.host_of[rank].id
        ends += [(rank, host, 0.0, Fraction(memory)), (host, rank, 0.0, Fraction(memory))]
    for wire in spec.wires:
        for near, far in (wire.ends, wire.ends[::-1]):
            ends.append(
                (ranks + near.machine, ranks + far.machine, latency[wire.id], goodput(near.rate, message)),
            )
    links = tuple(Link(number, *end[:2], *end[2:]) for number, end in enumerate(ends))
    return Topology(f"lab of {topology.name}", tuple(nodes), links)


def sockets_of(spec: LabSpec) -> Sockets:
    """The links of `network_of` that the bytes of every socket cross.

    The higher rank dials, as it does where both begin at once (csrc/core/tcp/meeting/tcp_meeting.hpp): socket k the
    lower one's k-th address, from the address that its route says; the lower one's bytes go to that. Sockets on one way
    are one here: a stream gets no more of it by having two, since streams of a pair take turns
    (csrc/core/tcp/tcp_flow.hpp). Ranks of one host share memory.
    """
    routes = {(route.machine, route.destination): route for route in routes_of(spec)}
    ranks = spec.topology.ranks
    ways: dict[tuple[int, int], tuple[tuple[int, ...], ...]] = {}
    for high in range(ranks):
        for low in range(high):
            one, other = spec.host_of[high], spec.host_of[low]
            if one == other:
                ways[high, low], ways[low, high] = ((_up(high), _down(low)),), ((_up(low), _down(high)),)
                continue
            many = max(USUAL_SOCKETS, len(one.ports), len(other.ports))
            there, back = [], []
            for number in range(many):
                address = other.ports[number % len(other.ports)].address
                there.append((_up(high), *_walk(spec, routes, one, address), _down(low)))
                answers = routes[one.id, address].source
                back.append((_up(low), *_walk(spec, routes, other, answers), _down(high)))
            ways[high, low], ways[low, high] = tuple(dict.fromkeys(there)), tuple(dict.fromkeys(back))
    return Sockets(ways)


def _up(rank: int) -> int:
    return 2 * rank


def _down(rank: int) -> int:
    return 2 * rank + 1


def _walk(spec: LabSpec, routes: Mapping[tuple[int, str], Route], start: Machine, address: str) -> list[int]:
    """The links from machine to machine, by the lab's routes."""
    here, links = start, []
    while all(port.address != address for port in here.ports):
        (hop,) = routes[here.id, address].hops
        links.append(_link(spec, hop.wire, here))
        here = spec.machines[hop.far.machine]
    return links


def _link(spec: LabSpec, wire: Wire, near: Machine) -> int:
    return 2 * spec.topology.ranks + 2 * wire.id + (0 if wire.ends[0].machine == near.id else 1)
