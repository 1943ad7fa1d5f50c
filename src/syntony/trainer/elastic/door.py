"""The door at which returning ranks knock: HOST:PORT of the job, at the first of its ranks on that host.

    joining rank                                                  the door
    knocks                                           ◄────────►  a handshake (bootstrap/handshake.py)
    waits                                                         .. until a step ends
                                                     ◄──────────  {"rank": 3, "ranks": 4, "port": 40123}
    then the members and the joining ranks all meet at HOST and that port (TcpBootstrap)

The handshake rejects clients that do not know the job's secret.
"""

from __future__ import annotations

import errno
import hmac
import json
import select
import socket
import struct
import threading
import time
from contextlib import suppress

from syntony.base.command import UserError
from syntony.collectives.bootstrap.handshake import PATIENCE, SIZE, Proofs, job_name, job_secret, nonce, proofs, read
from syntony.collectives.bootstrap.user_secret import given_secret

_LENGTH = struct.Struct("<I")
_LARGEST = 1 << 10  # bytes of an invitation
_PAUSE = 0.1  # seconds between two attempts to reach a door


def split(door: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = door.rpartition(":")
    return host.strip("[]"), int(port)


def is_here(door: str) -> bool:
    """Whether this machine has the door's address."""
    try:
        _bound(split(door)[0], 0).close()
    except OSError:
        return False
    return True


def free_port(door: str) -> int:
    """A free port of the door's address."""
    with _bound(split(door)[0], 0) as found:
        return int(found.getsockname()[1])


def own_door() -> str:
    """A door on this machine, if all ranks are here."""
    return f"127.0.0.1:{free_port('127.0.0.1:0')}"


class Door:
    """Admits clients that know the secret, on request. UserError if the port is taken."""

    def __init__(self, door: str) -> None:
        self._door, self._secret = door, _secret()
        self._waiting: list[socket.socket] = []
        self._changed = threading.Lock()  # guards them
        host, port = split(door)
        try:
            self._listener = _bound(host, port)
            self._listener.listen(64)
        except OSError as error:
            raise UserError(f"[elastic] door: cannot listen at {door}: {error.strerror}") from None
        threading.Thread(target=self._accept, name="syntony-door", daemon=True).start()

    @property
    def waiting(self) -> int:
        """The number of waiting ranks that have not disconnected."""
        if not self._waiting:
            return 0
        with self._changed:
            for connection in select.select(self._waiting, [], [], 0)[0]:  # they send nothing: it has disconnected
                self._waiting.remove(connection)
                connection.close()
            return len(self._waiting)

    def admit(self, ranks: int, port: int) -> int:
        """Invites all waiting ranks to meet `ranks` others at a port of this host; returns their number."""
        self.waiting  # noqa: B018
        with self._changed:
            guests, self._waiting = self._waiting, []
        for number, guest in enumerate(guests):
            said = json.dumps({"rank": ranks + number, "ranks": ranks + len(guests), "port": port}).encode()
            with guest, suppress(OSError):
                guest.sendall(_LENGTH.pack(len(said)) + said)
        return len(guests)

    def close(self) -> None:
        """Stops admitting ranks."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._listener.close()
        with self._changed:
            for connection in self._waiting:
                connection.close()
            self._waiting.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    time.sleep(_PAUSE)  # waits for file descriptors to be freed, which no event announces
                    continue
                if error.errno == errno.ECONNABORTED:
                    continue
                return
            threading.Thread(target=self._greet, args=(connection,), name="syntony-door", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        try:
            deadline = time.monotonic() + PATIENCE
            theirs, mine = read(connection, SIZE, deadline), nonce()
            connection.sendall(mine)
            proven = _proofs(self._secret, theirs, mine)
            if not hmac.compare_digest(read(connection, SIZE, deadline), proven.knocks):
                raise ConnectionError("a stranger")
            connection.sendall(proven.opens)
            connection.settimeout(None)
        except OSError:
            connection.close()
            return
        with self._changed:
            self._waiting.append(connection)


def knock(door: str, timeout: float) -> tuple[int, int, int] | None:
    """Waits at a door until it opens: this rank's number, how many ranks meet, and at which port of the door's host.

    None when it closes for good. Raises UserError when nobody answers for `timeout` seconds, or another job does.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection = socket.create_connection(split(door), timeout=PATIENCE)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise UserError(f"--join {door}: nobody opens there: {error.strerror or error}") from None
            time.sleep(_PAUSE)
    with connection:
        mine = nonce()
        try:
            deadline = time.monotonic() + PATIENCE
            connection.sendall(mine)
            proven = _proofs(_secret(), mine, read(connection, SIZE, deadline))
            connection.sendall(proven.knocks)
            if not hmac.compare_digest(read(connection, SIZE, deadline), proven.opens):
                raise ConnectionError("another secret")
        except OSError:
            raise UserError(
                f"--join {door}: what listens there is no job with our secret: SYNTONY_SECRET should be set to one "
                "value at all ranks of the job, as SYNTONY_JOB; without it, the user's own is taken"
            ) from None
        connection.settimeout(None)
        try:
            (size,) = _LENGTH.unpack(read(connection, _LENGTH.size))
            said = json.loads(read(connection, min(size, _LARGEST)))
        except OSError:
            return None
        return int(said["rank"]), int(said["ranks"]), int(said["port"])


def _bound(host: str, port: int) -> socket.socket:
    family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    found = socket.socket(family, kind)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(where)
    except OSError:
        found.close()
        raise
    return found


def _secret() -> bytes:
    return job_secret(given_secret(), job_name())


def _proofs(secret: bytes, of_who_knocks: bytes, of_the_door: bytes) -> Proofs:
    return proofs(secret, of_who_knocks, of_the_door, b"door")
