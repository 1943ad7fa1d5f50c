"""A way to an aggregator that loses packets: what workers send to it, and what it sends to them."""

from __future__ import annotations

import random
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_HELLO_BYTES = 80
_PORT_AT = 44
"""Where a Hello says on which port its sender takes packets."""


@contextmanager
def lossy(address: str, loss: float, seed: int = 1) -> Iterator[str]:
    """An address that leads to the aggregator at `address`; UDP packets of both ways are lost with chance `loss`.

    Connections are passed on, but each Hello gets the port of a socket of ours in the place of its sender's. (So it
    proves nothing: these aggregators have no secret.)
    """
    relay = _Relay(address, loss, random.Random(seed))
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        yield relay.address
    finally:
        relay.stopped.set()
        thread.join()


class _Relay:
    def __init__(self, address: str, loss: float, rng: random.Random) -> None:
        host, _, port = address.rpartition(":")
        self.goal, self.loss, self.rng = (host, int(port)), loss, rng
        self.stopped = threading.Event()
        self.listener = socket.create_server((host, 0))
        self.up = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.up.bind(self.listener.getsockname())
        self.address = f"{host}:{self.listener.getsockname()[1]}"
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        self.selector.register(self.up, selectors.EVENT_READ, self._up)

    def run(self) -> None:
        while not self.stopped.is_set():
            for key, _ in self.selector.select(0.05):
                key.data(key.fileobj)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self.selector.close()

    def _lost(self) -> bool:
        return self.rng.random() < self.loss

    def _up(self, packets: socket.socket) -> None:
        data = packets.recv(1 << 16)
        if not self._lost():
            packets.sendto(data, self.goal)

    def _accept(self, listener: socket.socket) -> None:
        near, _ = listener.accept()
        far = socket.create_connection(self.goal)
        greeting = bytearray()

        def from_near(_: socket.socket) -> None:
            data = self._read(near)
            if len(greeting) < _HELLO_BYTES:
                greeting.extend(data)
                if len(greeting) < _HELLO_BYTES and data:
                    return
                data = self._with_our_port(bytes(greeting), near) if data else b""
            self._pass(data, near, far)

        self.selector.register(near, selectors.EVENT_READ, from_near)
        self.selector.register(far, selectors.EVENT_READ, lambda _: self._pass(self._read(far), far, near))

    def _with_our_port(self, greeting: bytes, near: socket.socket) -> bytes:
        (port,) = struct.unpack_from("<I", greeting, _PORT_AT)
        goal = (near.getpeername()[0], port)
        down = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        down.bind((self.goal[0], 0))

        def pass_on(packets: socket.socket) -> None:
            data = packets.recv(1 << 16)
            if not self._lost():
                packets.sendto(data, goal)

        self.selector.register(down, selectors.EVENT_READ, pass_on)
        ours = struct.pack("<I", down.getsockname()[1])
        return greeting[:_PORT_AT] + ours + greeting[_PORT_AT + 4 :]

    def _read(self, end: socket.socket) -> bytes:
        with suppress(ConnectionError):
            return end.recv(1 << 16)
        return b""

    def _pass(self, data: bytes, source: socket.socket, goal: socket.socket) -> None:
        with suppress(OSError):
            if data:
                goal.sendall(data)
                return
            goal.shutdown(socket.SHUT_WR)
        with suppress(KeyError):
            self.selector.unregister(source)
