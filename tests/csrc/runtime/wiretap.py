"""A bootstrap that puts a proxy before every rank: it hears what passes, and does one thing to it."""

from __future__ import annotations

import re
import selectors
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Literal

from tests.csrc.runtime.harness import Rank


@dataclass(frozen=True)
class Fault:
    """Happens to the first connection that has passed `after` bytes on: a bit changes, or both ends are closed."""

    what: Literal["change", "close", "reset"]
    after: int


class Wiretap:
    """Stands before a rank's listening socket."""

    def __init__(self, address: tuple[str, int], fault: Fault | None) -> None:
        self._address, self._fault = address, fault
        self.heard = bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            dialed, _ = self._listener.accept()
            threading.Thread(target=self._hand_on, args=(dialed,), daemon=True).start()

    def _hand_on(self, dialed: socket.socket) -> None:
        with dialed, socket.create_connection(self._address) as accepted, selectors.DefaultSelector() as ready:
            ready.register(dialed, selectors.EVENT_READ, accepted)
            ready.register(accepted, selectors.EVENT_READ, dialed)
            passed = 0
            while True:
                for key, _ in ready.select():
                    try:
                        said = bytearray(key.fileobj.recv(65536))  # type: ignore[union-attr]
                        self.heard += said
                        passed += len(said)
                        if said and self._fault is not None and passed >= self._fault.after:
                            fault, self._fault = self._fault, None
                            if fault.what == "change":
                                said[-1] ^= 1
                            else:
                                for end in (dialed, accepted) if fault.what == "reset" else ():
                                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                                return
                        if not said:
                            return
                        key.data.sendall(said)
                    except OSError:
                        return


class Tapped:
    """A bootstrap through which this rank publishes a wiretap's address instead of its own."""

    def __init__(self, rank: Rank, fault: Fault | None) -> None:
        self._bootstrap, self._fault = rank.bootstrap("tapped"), fault
        self.rank, self.size = rank.rank, rank.size
        self.tap: Wiretap | None = None

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        if name == "tcp":
            address = re.search(rb"(127\.0\.0\.1):(\d+)", blob)
            assert address is not None, blob
            self.tap = Wiretap((address[1].decode(), int(address[2])), self._fault)
            blob = blob[: address.start(2)] + str(self.tap.port).encode() + blob[address.end(2) :]
        return self._bootstrap.all_gather(name, blob)
