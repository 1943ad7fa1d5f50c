"""An aggregator in this process, workers in threads, and frames made by hand from the wire's description."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony import _emulation
from tests.csrc.runtime.sip_hash import sip_hash

MAGIC = 0x41595341
VERSION = 6
WELCOME, LATE, LEAVE, FAILURE = range(1, 5)
PART, SUM, HELD, QUESTION, WANTED = range(1, 6)
AGAIN, MARKED, UNMEASURED = 1, 2, 4
HEAD_BYTES = 64
FLOAT32 = 0

Array = NDArray[Any]


@contextmanager
def aggregator(**options: Any) -> Iterator[str]:
    """The address of an aggregator that serves as long as the block runs."""
    served = _emulation.Aggregator(**options)
    thread = threading.Thread(target=served.run)
    thread.start()
    try:
        yield served.address
    finally:
        served.stop()
        thread.join()


def everybody(ranks: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work` returns for every rank, or the exception that it raised."""
    results: list[Any] = [None] * ranks

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), f"a worker hangs; the others: {results}"
    return results


class Job:
    """Workers that join one job with a token of its own, all by one way or, in a tree, each by its own."""

    def __init__(self, way: str | list[str], ranks: int, timeout: float = 20.0, secret: str = "") -> None:
        self.ways = [way] * ranks if isinstance(way, str) else way
        self.ranks, self.timeout, self.token, self.secret = ranks, timeout, os.urandom(16), secret

    def join(self, rank: int) -> _emulation.AggregationClient:
        return _emulation.AggregationClient(self.ways, self.token, rank, self.timeout, self.secret)

    def reduce(
        self, client: _emulation.AggregationClient, source: Array, number_format: str = "", timeout: float | None = None
    ) -> Array:
        target = np.empty_like(source)
        dtype = source.dtype.name
        patience = self.timeout if timeout is None else timeout
        addresses = (source.ctypes.data, target.ctypes.data)
        client.all_reduce(number_format or dtype, dtype, *addresses, source.size, patience)
        return target

    def all_reduce(self, sources: list[Array], number_format: str = "") -> list[Any]:
        """One operation by all workers."""

        def work(rank: int) -> Array:
            client = self.join(rank)
            try:
                return self.reduce(client, sources[rank], number_format)
            finally:
                client.close()

        return everybody(self.ranks, work)


class Wire:
    """A worker made of bytes."""

    def __init__(self, job: Job, rank: int, version: int = VERSION, above: str = "") -> None:
        host, _, port = job.ways[rank].partition(",")[0].rpartition(":")
        self.address = (host, int(port))
        self.rank, self.token = rank, job.token
        self.socket = socket.create_connection(self.address, timeout=10)
        self.packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.packets.bind((host, 0))
        self.packets.settimeout(10)
        nonce = self._exactly(24)[8:]
        said = hello(job.token, rank, job.ranks, self.packets.getsockname()[1], version=version, above=len(above))
        proof = sip_hash(sip_hash(bytes(16), job.secret.encode()), nonce + said + above.encode())
        self.greeting = said[:-16] + proof + above.encode()
        self.send(self.greeting)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self, kind: int, body: bytes = b"") -> bytes:
        return frame(self.token, kind, body)

    def part(
        self,
        sequence: int,
        elements: int,
        count: int,
        number_format: int = FLOAT32,
        operation: int = 1,
        flags: int = 0,
        path: Sequence[tuple[int, int]] = (),
    ) -> bytes:
        """The packet of `count` zeros that is the job's `sequence`-th."""
        body = bytes(4 * count)
        where = (self.token, PART, sequence, elements, operation, self.rank, count)
        return packet(*where, body, number_format, flags, path)

    def question(self, sequence: int, elements: int, operation: int = 1) -> bytes:
        """What has become of the job's `sequence`-th sum?"""
        return packet(self.token, QUESTION, sequence, elements, operation, self.rank, 0, b"")

    def send_packet(self, data: bytes) -> None:
        self.packets.sendto(data, self.address)

    def receive_packet(self) -> tuple[int, int, int, bytes]:
        """(kind, sequence, flags, payload) of the next."""
        data = self.packets.recv(1 << 16)
        _, kind, _, flags, _, _, sequence = struct.unpack_from("<IBBBB8sQ", data)
        return kind, sequence, flags, data[HEAD_BYTES:]

    def receive(self) -> tuple[int, bytes]:
        """(kind, body) of the next frame; kind 0 at the end of the connection."""
        head = self._exactly(24)
        if len(head) < 24:
            return 0, b""
        _, kind, _, length, _ = struct.unpack("<IIQII", head)
        return kind, self._exactly(length)

    def close(self) -> None:
        self.socket.close()
        self.packets.close()

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            try:
                more = self.socket.recv(length - len(data))
            except ConnectionError:
                break
            if not more:
                break
            data += more
        return data


def hello(
    token: bytes, rank: int, ranks: int, port: int, timeout_ms: int = 10_000, version: int = VERSION, above: int = 0
) -> bytes:
    """Without a proof, and without the `above` bytes of the way up."""
    place = (rank, ranks, 1, ranks, timeout_ms, port, above, 0, 2**32 - 1, 2**32 - 1)
    return struct.pack("<II16s10I16s", MAGIC, version, token, *place, bytes(16))


def frame(token: bytes, kind: int, body: bytes = b"") -> bytes:
    return struct.pack("<II8sII", MAGIC, kind, token[:8], len(body), 0) + body


def packet(
    token: bytes,
    kind: int,
    sequence: int,
    elements: int,
    operation: int,
    rank: int,
    count: int,
    body: bytes,
    number_format: int = FLOAT32,
    flags: int = 0,
    path: Sequence[tuple[int, int]] = (),
) -> bytes:
    head = (MAGIC, kind, number_format, flags, len(path), token[8:], sequence, elements, operation, rank, count)
    places = [number for place in path for number in place] + [0] * (6 - 2 * len(path))
    return struct.pack("<IBBBB8sQQIIIII6H", *head, len(body), 0, *places) + body
