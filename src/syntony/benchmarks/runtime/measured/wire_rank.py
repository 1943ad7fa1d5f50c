"""One of the two ranks of the table `wire`, started in the lab: ours, gloo and MPI in turns with bare sockets.

    python -m syntony.benchmarks.runtime.measured.wire_rank WORK RESULTS

WORK is a JSON `Work`, equal on both ranks; rank 0 writes RESULTS, a JSON list of `Crossing`s.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from syntony.benchmarks.bench.contenders import Contender, Syntony, TorchGroup
from syntony.benchmarks.bench.measurement import Measurement, Memory, by_clock, local_measurement
from syntony.benchmarks.mpi.lab_hosts import LabHosts
from syntony.benchmarks.mpi.remote_peer import RemotePeer
from syntony.benchmarks.runtime.measured.devices import sent
from syntony.benchmarks.runtime.measured.sweep import case_of
from syntony.collectives.bootstrap.launch import Exchange, RankError
from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator

OURS, IN_PLACE, GLOO, RAW = "auto", "in place", "gloo", "raw TCP"
_TIMEOUT = 120.0  # seconds that a collective may take
_BYTES_A_TURN = 8 << 20
_UNSENT = 64 << 10


@dataclass(frozen=True)
class Work:
    """`peers`: MPI libraries, whose mpiexec dials `hosts`."""

    collectives: tuple[str, ...]
    sizes: tuple[int, ...]
    turns: int
    peers: tuple[str, ...] = ()
    hosts: LabHosts | None = None

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Work:
        """What `asdict` made, read from JSON, which has lists only."""
        hosts = fields.pop("hosts")
        tuples: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
        }
        return cls(**tuples, hosts=LabHosts(tuple(hosts["addresses"]), hosts["shell"]) if hosts else None)


@dataclass(frozen=True)
class Crossing:
    """Medians of the slower rank in seconds, by contender; `wrong`: elements."""

    collective: str
    size: int
    seconds: dict[str, float]
    wrong: int


class RawTcp:
    """A connection to the other rank over which both send and receive as much at once, from and to ordinary memory.

    The kernel keeps no more than _UNSENT bytes that wait for the wire, as on our own sockets. Else megabytes pile up in
    the buffers of both ends and leave the caches before they are read: of some connections, not of all, which then take
    twice as long (8 MiB: 14 to 18 ms instead of 7.2, whichever cores the two run on).
    """

    def __init__(self, exchange: Exchange, most: int) -> None:
        with socket.create_server(("", 0)) if exchange.rank == 0 else socket.socket() as listener:
            port = listener.getsockname()[1] if exchange.rank == 0 else 0
            port = int(exchange.all_gather("raw TCP", str(port).encode())[0])
            if exchange.rank == 0:
                self._socket, _ = listener.accept()
            else:
                self._socket = socket.create_connection((os.environ["MASTER_ADDR"], port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        self._socket.setblocking(False)
        self._sent, self._received = (np.ones(most, np.uint8).data for _ in range(2))
        self._poll = select.poll()

    def swap(self, size: int) -> None:
        """So many bytes each way."""
        sent = received = 0
        while True:
            try:
                while sent < size:
                    sent += self._socket.send(self._sent[sent:size])
            except BlockingIOError:
                pass
            try:
                while received < size:
                    received += self._socket.recv_into(self._received[received:size])
            except BlockingIOError:
                pass
            if sent == received == size:
                return
            self._poll.register(self._socket, (sent < size) * select.POLLOUT | (received < size) * select.POLLIN)
            self._poll.poll()

    def close(self) -> None:
        self._socket.close()


def carried(collective: str, size: int) -> int:
    """Bytes that each of two ranks must send: half the larger buffer, of a sum in shares twice."""
    return size if collective == "all_reduce" else size // 2


def main(words: Sequence[str]) -> int:
    work_file, results = map(Path, words)
    work = Work.of(json.loads(work_file.read_text()))
    with TcpBootstrap.from_environment() as exchange, Communicator.create(exchange, _TIMEOUT) as communicator:
        ours = Syntony(communicator, OURS)
        peers: list[Contender | RemotePeer] = [
            TorchGroup(exchange, GLOO, _TIMEOUT),
            *(RemotePeer(exchange, name, _TIMEOUT, work.hosts) for name in work.peers),
        ]
        raw = RawTcp(exchange, max(work.sizes))
        memory = Memory(exchange.rank, exchange.size)
        met = [(collective, size) for collective in work.collectives for size in work.sizes]
        found = [_measure(exchange, memory, ours, peers, raw, work.turns, *case) for case in met]
        if exchange.rank == 0:
            results.write_text(json.dumps([asdict(crossing) for crossing in found]))
        communicator.barrier()
        raw.close()
        for peer in peers:
            peer.close()
    return 0


def _measure(
    exchange: Exchange,
    memory: Memory,
    ours: Syntony,
    peers: Sequence[Contender | RemotePeer],
    raw: RawTcp,
    turns: int,
    collective: str,
    size: int,
) -> Crossing:
    """All in turns. gloo has sums in place only, and gathers out of place only."""
    case, summed = case_of(collective, size, exchange.size), collective == "all_reduce"
    found: dict[str, Measurement | None] = {
        OURS: local_measurement(ours, memory, case, summed),
        IN_PLACE: local_measurement(ours, memory, case, True),
    }
    for peer in peers:
        found[peer.label] = (
            peer.measurement(case, summed)
            if isinstance(peer, RemotePeer)
            else local_measurement(peer, memory, case, summed)
        )
    measurements = {label: one for label, one in found.items() if one is not None}
    assert len(measurements) == len(found), "all have these collectives"
    times: dict[str, list[int]] = {RAW: [], **{label: [] for label in found}}
    iterations = max(2, min(100, _BYTES_A_TURN // size))
    wrong = sum(measurement.check(1) or 0 for measurement in measurements.values())
    for _ in range(turns):
        for label, measurement in measurements.items():
            before = sum(sent())
            times[label] += measurement.lap(1, iterations)
            if (crossed := sum(sent()) - before) < iterations * carried(collective, size):
                raise RankError(
                    f"{label}: {collective} of {size} bytes sent {crossed} bytes in {iterations} operations"
                )
        ours.barrier()
        times[RAW] += by_clock(partial(raw.swap, carried(collective, size)), iterations)
    mine = {label: 1e-9 * float(np.median(each)) for label, each in times.items()}
    said = exchange.all_gather(f"wire {collective} {size}", json.dumps([mine, wrong]).encode())
    everybody = [json.loads(blob) for blob in said]
    seconds = {label: max(times[label] for times, _ in everybody) for label in mine}
    return Crossing(collective, size, seconds, sum(wrong for _, wrong in everybody))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
