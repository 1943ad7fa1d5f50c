"""An aggregator in this process, workers in threads, and frames made by hand from the wire's description."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony import _emulation
from tests.csrc.runtime.sip_hash import sip_hash

MAGIC = 0x41595341
WELCOME, BEGIN, EXPONENTS, CHUNK, LEAVE, FAILURE = range(1, 7)
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
    """Workers that join one job with a token of its own."""

    def __init__(self, address: str, ranks: int, timeout: float = 20.0, secret: str = "") -> None:
        self.address, self.ranks, self.timeout, self.token = address, ranks, timeout, os.urandom(16)
        self.secret = secret

    def join(self, rank: int) -> _emulation.AggregationClient:
        return _emulation.AggregationClient(self.address, self.token, rank, self.ranks, self.timeout, self.secret)

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

    def __init__(self, job: Job, rank: int, version: int = 3) -> None:
        host, _, port = job.address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.token = job.token
        nonce = self._exactly(24)[8:]
        said = nonce + job.token + struct.pack("<II", job.ranks, rank)
        proof = sip_hash(sip_hash(bytes(16), job.secret.encode()), said)
        self.greeting = hello(job.token, rank, job.ranks, version=version, proof=proof)
        self.send(self.greeting)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self, kind: int, operation: int = 0, chunk: int = 0, body: bytes = b"") -> bytes:
        return frame(self.token, kind, operation, chunk, body)

    def begin(self, operation: int, elements: int, number_format: int = FLOAT32, timeout_ms: int = 10_000) -> None:
        self.send(self.frame(BEGIN, operation, 0, struct.pack("<QII", elements, number_format, timeout_ms)))

    def receive(self) -> tuple[int, int, int, bytes]:
        """(kind, operation, chunk, body) of the next frame; kind 0 at the end of the connection."""
        head = self._exactly(32)
        if len(head) < 32:
            return 0, 0, 0, b""
        _, kind, _, operation, chunk, length, _ = struct.unpack("<IIQIIII", head)
        return kind, operation, chunk, self._exactly(length)

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
    token: bytes, rank: int, ranks: int, timeout_ms: int = 10_000, version: int = 3, proof: bytes = bytes(16)
) -> bytes:
    return struct.pack("<II16sIIII16s", MAGIC, version, token, rank, ranks, timeout_ms, 0, proof)


def frame(token: bytes, kind: int, operation: int = 0, chunk: int = 0, body: bytes = b"") -> bytes:
    return struct.pack("<II8sIIII", MAGIC, kind, token[:8], operation, chunk, len(body), 0) + body
