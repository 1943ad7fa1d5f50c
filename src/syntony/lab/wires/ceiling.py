"""Ceilings: the TCP throughput and round-trip time of each wire, before anything of ours runs.

All wires carry traffic both ways at once, so the figures also tell whether this machine can emulate the whole lab.
Those that fall short are measured again one by one, to tell whether the machine or the wire is the limit.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from syntony.lab.lab_spec import End, LabSpec, Wire
from syntony.lab.wires import kernel

MOST_AT_ONCE = 32
"""The number of wires measured; in larger labs, some of each rate and delay."""
GOOD = 0.9
"""A wire falls short below this share of its rate. TCP and IP headers take 0.7 % of jumbo frames."""

_WARM_UP = 0.3  # seconds in which token buckets empty and windows open
_SECONDS = 0.7
_ECHOES = 16
_PIECE = 256 * 1024
_BYTES_RECEIVED = slice(128, 136)  # of struct tcp_info: tcpi_bytes_received
_PATIENCE = 10.0


@dataclass(frozen=True)
class Ceiling:
    """One direction of a wire, from `near`; `names` are its two machines.

    `together`: bytes/s of payload while all wires were busy; `alone`: bytes/s with all others idle, if measured;
    `round_trips`: seconds, in ascending order.
    """

    wire: Wire
    near: End
    names: tuple[str, str]
    together: float
    alone: float | None
    round_trips: tuple[float, ...]

    @property
    def best(self) -> float:
        return max(self.together, self.alone or 0.0)

    @property
    def falls_short(self) -> bool:
        """Whether this wire misses its rate while all others are busy."""
        return self.together < GOOD * float(self.near.rate)


def measure(spec: LabSpec, namespace: Callable[[str], str]) -> tuple[Ceiling, ...]:
    """Both directions of every wire, or of a selection in large labs. Takes a few seconds."""
    lanes = [_Lane(spec, namespace, wire, near, far) for wire in chosen(spec) for near, far in _directions(wire)]
    try:
        round_trips = [lane.round_trips() for lane in lanes]
        together = _throughput(lanes)
        alone = [
            _throughput([lane])[0] if rate < GOOD * float(lane.near.rate) else None
            for lane, rate in zip(lanes, together, strict=True)
        ]
    finally:
        for lane in lanes:
            lane.close()
    return tuple(
        Ceiling(lane.wire, lane.near, lane.names, *figures)
        for lane, figures in zip(lanes, zip(together, alone, round_trips, strict=True), strict=True)
    )


def chosen(spec: LabSpec) -> tuple[Wire, ...]:
    """All wires, or enough of each kind to include every kind without exceeding `MOST_AT_ONCE` by much."""
    if len(spec.wires) <= MOST_AT_ONCE:
        return spec.wires
    kinds: dict[object, list[Wire]] = {}
    for wire in spec.wires:
        kinds.setdefault((wire.ends[0].rate, wire.ends[1].rate, wire.delay), []).append(wire)
    each = max(1, MOST_AT_ONCE // len(kinds))
    return tuple(wire for wires in kinds.values() for wire in wires[:: -(-len(wires) // each)])


def _directions(wire: Wire) -> Iterable[tuple[End, End]]:
    return wire.ends, wire.ends[::-1]


class _Lane:
    """A connection over one wire that is used in one direction."""

    def __init__(self, spec: LabSpec, namespace: Callable[[str], str], wire: Wire, near: End, far: End) -> None:
        self.wire = wire
        self.near = near
        self.names = spec.machines[near.machine].name, spec.machines[far.machine].name
        here, there = map(namespace, self.names)
        listener = kernel.inside(there, partial(socket.create_server, (far.link_address, 0)))
        with listener:
            listener.settimeout(_PATIENCE)
            connect = partial(socket.create_connection, listener.getsockname(), _PATIENCE, (near.link_address, 0))
            self.sender = kernel.inside(here, connect)
            self.receiver, _ = listener.accept()
        self.receiver.settimeout(_PATIENCE)
        for connection in (self.sender, self.receiver):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def arrived(self) -> int:
        """Bytes that the receiving kernel has accepted, whether or not they have been read."""
        information = self.receiver.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.stop)
        return int.from_bytes(information[_BYTES_RECEIVED], sys.byteorder)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()

    def round_trips(self) -> tuple[float, ...]:
        times = []
        for _ in range(_ECHOES):
            start = time.perf_counter()
            self.sender.sendall(b"?")
            self.receiver.sendall(self.receiver.recv(1))
            self.sender.recv(1)
            times.append(time.perf_counter() - start)
        return tuple(sorted(times))


def _throughput(lanes: Sequence[_Lane]) -> list[float]:
    """Bytes/s that arrive on each lane while all of them send. One thread serves them all; the kernel does the work."""
    data = memoryview(bytes(_PIECE))
    room = memoryview(bytearray(_PIECE))
    with selectors.DefaultSelector() as selector:
        for lane in lanes:
            lane.sender.setblocking(False)
            lane.receiver.setblocking(False)
            selector.register(lane.sender, selectors.EVENT_WRITE, lane)
            selector.register(lane.receiver, selectors.EVENT_READ, lane)

        def serve(until: float) -> None:
            while (left := until - time.perf_counter()) > 0:
                for key, events in selector.select(left):
                    lane: _Lane = key.data
                    if events & selectors.EVENT_READ:
                        lane.receiver.recv_into(room)
                    else:
                        lane.sender.send(data)

        serve(time.perf_counter() + _WARM_UP)
        before = [lane.arrived() for lane in lanes]
        start = time.perf_counter()
        serve(start + _SECONDS)
        seconds = time.perf_counter() - start
        rates = [(lane.arrived() - was) / seconds for lane, was in zip(lanes, before, strict=True)]
        _drain(selector, lanes, room)
    return rates


def _drain(selector: selectors.BaseSelector, lanes: Sequence[_Lane], room: memoryview) -> None:
    """Reads until nothing has arrived for a while, so that the next measurement starts with empty wires."""
    for lane in lanes:
        selector.unregister(lane.sender)
    quiet = max(0.05, *(4 * lane.wire.delay for lane in lanes))
    while events := selector.select(quiet):
        for key, _ in events:
            key.data.receiver.recv_into(room)


def median_round_trip(ceiling: Ceiling) -> float:
    """Seconds."""
    return statistics.median(ceiling.round_trips)
