"""Rank 0's side of ranks that meet over TCP. The protocol's picture, and the other side, are in tcp_bootstrap.py.

Each rank takes a seat with its mark, a random number that it has drawn. Another connection with the same mark takes
the place of the first, so a rank whose connection was lost comes back and asks again. An answer is kept until every
rank has confirmed that it has it.
"""

from __future__ import annotations

import errno
import hmac
import os
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from syntony.base.command import UserError
from syntony.collectives.bootstrap import bootstraps
from syntony.collectives.bootstrap.handshake import PATIENCE, SIZE, Proofs, nonce, proofs, read

Address = tuple[socket.AddressFamily, tuple[str, int]]

FRAME = struct.Struct("<8sIII")
"""Magic and three numbers. hello: rank, AGAIN or 0, ranks. verdict: 0, verdict, 0. request: rank, bytes of its name,
of its blob; without a name, RECEIVED or LEAVES. answer: LATE or GONE, absent ranks, bytes that follow."""
MAGIC = b"syntony4"
AGAIN = 1  # the rank that says hello had a connection before
ADMITTED, UNKNOWN, OVER = 0, 1, 2  # verdicts. OVER: a rank that comes back finds another meeting than it has left
RECEIVED, LEAVES = 0, 1
LATE, GONE = 0, 1  # absent ranks did not come in time, or cannot come any more
LARGEST_BLOB = 1 << 24
LARGEST_REASON = 1 << 10
_LARGEST_NAME = 1 << 10
_LINGER = 10.0  # seconds that rank 0 gives slow readers before it closes
_PAUSE = 0.1  # seconds before rank 0 accepts again after the system has run out of resources for connections
_STRANGERS = 64  # most unauthenticated connections beside the ranks' at a time; beyond, the oldest is dropped
_RETURN = 20.0  # seconds in which a rank whose connection was closed comes back, if it still runs
_PROBES = {socket.TCP_KEEPIDLE: 3, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}


def rank_proofs(
    secret: bytes, of_rank: bytes, of_rank_0: bytes, rank: int, size: int, again: int, mark: bytes
) -> Proofs:
    return proofs(secret, of_rank, of_rank_0, b"rank" + struct.pack("<III", rank, size, again) + mark)


def notice_silence(connection: socket.socket) -> None:
    """Lets an idle connection fail with ETIMEDOUT about 9 s after the other host has fallen silent."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES.items():
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _listen(name: str, addresses: list[Address], backlog: int) -> list[socket.socket]:
    """Listens at those of the addresses that this machine has (::1 is missing if IPv6 is off). UserError."""
    listeners: list[socket.socket] = []
    why = ""
    for family, where in addresses:
        try:
            listeners.append(socket.create_server(where, family=family, backlog=backlog))
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                break
    else:
        if listeners:
            return listeners
    for listener in listeners:
        listener.close()
    raise UserError(f"rank 0 cannot listen on port {addresses[0][1][1]} of {name}: {why}")


@dataclass(eq=False)
class _Seat:
    """A rank that was admitted, by its last connection."""

    mark: bytes
    connection: socket.socket
    lost: str = ""  # why the connection ended


@dataclass
class _Gathering:
    """One all_gather in progress."""

    blobs: dict[int, bytes] = field(default_factory=dict)
    answer: bytes = b""  # sent to all, once all have arrived or some cannot
    confirmed: set[int] = field(default_factory=set)
    told: bool = False  # whether the long wait has been reported


class Meeting:
    """Admits each rank once, collects blobs by name, answers after the last arrival or a timeout."""

    def __init__(
        self, size: int, name: str, addresses: list[Address], timeout: float, secret: bytes, where: str
    ) -> None:
        self._where = where
        self._process = os.getpid()
        self._size = size
        self._timeout = timeout
        self._secret = secret
        self._at_the_door: list[socket.socket] = []  # unauthenticated connections, oldest first
        self._seats: dict[int, _Seat] = {}
        self._gone: dict[int, str] = {}  # ranks that cannot come any more, and why
        self._gatherings: defaultdict[str, _Gathering] = defaultdict(_Gathering)
        self._changed = threading.Condition()  # guards all fields above
        self._trouble = ""  # why ranks may be absent although they connected
        self._closed = False
        self._listeners = _listen(name, addresses, backlog=max(1024, size))
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), name="syntony-meeting", daemon=True).start()

    def close(self) -> None:
        """Waits until ranks have the answers that are due, then frees the port. Does nothing in a child of fork(),
        which has copies of the sockets and none of the threads."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._changed.wait_for(self._quiet, _LINGER)
            self._closed = True
            self._changed.notify_all()
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
            listener.close()

    def _quiet(self) -> bool:
        return not any(
            here.answer and here.blobs.keys() - here.confirmed - self._gone.keys() for here in self._gatherings.values()
        )

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if self._closed or not self._make_way(error):
                    return
                continue
            with self._changed:
                self._at_the_door.append(connection)
                if len(self._at_the_door) > self._size + _STRANGERS:
                    with suppress(OSError):
                        self._at_the_door.pop(0).shutdown(socket.SHUT_RDWR)  # its thread closes it
            threading.Thread(target=self._serve, args=(connection,), name="syntony-meeting", daemon=True).start()

    def _make_way(self, error: OSError) -> bool:
        """Whether to accept again after an error of accept(). False if this meeting is over."""
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
            return error.errno not in (errno.EBADF, errno.EINVAL)  # closed; otherwise a queued connection broke
        with self._changed:
            self._trouble = f"rank 0 cannot accept connections: {error.strerror}"
            first = self._at_the_door[:1]
            # Waits for file descriptors to be freed, which no event announces.
            if self._changed.wait_for(lambda: self._closed, _PAUSE):
                return False
            if first and first == self._at_the_door[:1]:  # a rank would have been admitted by now
                with suppress(OSError):
                    self._at_the_door.pop(0).shutdown(socket.SHUT_RDWR)
            return True

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            rank = None
            try:
                with suppress(OSError):  # a stranger
                    rank = self._seat(connection)
            finally:
                with self._changed, suppress(ValueError):  # already admitted or dropped
                    self._at_the_door.remove(connection)
            if rank is None:
                return
            try:
                while self._heard(connection, rank):
                    pass
            except OSError as error:
                self._lost(connection, rank, error)

    def _seat(self, connection: socket.socket) -> int | None:
        """The rank at the other end; None for strangers, and for a duplicate that is early for the next group."""
        deadline = time.monotonic() + min(PATIENCE, self._timeout)
        magic, rank, again, size = FRAME.unpack(read(connection, FRAME.size, deadline))
        if magic != MAGIC:
            return None
        mark, theirs, mine = read(connection, SIZE, deadline), read(connection, SIZE, deadline), nonce()
        connection.sendall(FRAME.pack(MAGIC, 0, 0, self._size) + mine)
        if rank >= size or size != self._size:
            return None
        proven = rank_proofs(self._secret, theirs, mine, rank, size, again, mark)
        if not hmac.compare_digest(read(connection, SIZE, deadline), proven.knocks):
            connection.sendall(FRAME.pack(MAGIC, 0, UNKNOWN, 0) + bytes(SIZE))
            return None
        with self._changed:
            seat = self._seats.get(rank)
            known = seat is not None and hmac.compare_digest(seat.mark, mark)
            if connection not in self._at_the_door or (seat is not None and not known and not again):
                return None  # the connection was dropped, or this rank is already here
            if known or not again:
                self._at_the_door.remove(connection)
                self._seats[rank] = _Seat(mark, connection)
                self._gone.pop(rank, None)
                self._changed.notify_all()
        if again and not known:
            connection.sendall(FRAME.pack(MAGIC, 0, OVER, 0) + proven.opens)
            return None
        if seat is not None:
            with suppress(OSError):
                seat.connection.shutdown(socket.SHUT_RDWR)  # its thread closes it
        try:
            connection.sendall(FRAME.pack(MAGIC, 0, ADMITTED, 0) + proven.opens)
            connection.settimeout(None)
            notice_silence(connection)
        except OSError as error:
            self._lost(connection, rank, error)
            return None
        return int(rank)

    def _heard(self, connection: socket.socket, rank: int) -> bool:
        """Takes a request and answers it, or takes a confirmation. False once the rank has left; OSError if the
        connection is lost."""
        magic, _, name_length, length = FRAME.unpack(read(connection, FRAME.size))
        if magic != MAGIC or name_length > _LARGEST_NAME or length > LARGEST_BLOB:
            raise ConnectionError("its request makes no sense")
        name = read(connection, name_length).decode(errors="replace")
        blob = read(connection, length) if name else b""
        with self._changed:
            seat = self._seats[rank]
            if seat.connection is not connection:
                return False
            self._confirm(rank, name)
            if not name:
                if length != LEAVES:
                    return True
                self._gone[rank] = f"rank {rank} has left"
                self._changed.notify_all()
                return False
            here = self._gatherings[name]
            here.blobs[rank] = blob
            if len(here.blobs) == self._size and not here.answer:
                framed = ((FRAME.pack(MAGIC, 0, 0, len(here.blobs[r])), here.blobs[r]) for r in range(self._size))
                here.answer = b"".join(chain.from_iterable(framed))  # built once: every rank gets the same bytes
                self._changed.notify_all()
            self._wait(here, name, lambda: bool(here.answer) or self._seats[rank] is not seat)
            if self._seats[rank] is not seat:
                return False
            if not here.answer:
                here.answer = self._absent(here)
                self._changed.notify_all()
        connection.sendall(here.answer)
        return True

    def _lost(self, connection: socket.socket, rank: int, error: OSError) -> None:
        """Gives the rank time to come back, unless its host is silent: then it may do so as long as others wait."""
        connection.close()
        with self._changed:
            seat = self._seats[rank]
            if seat.connection is not connection:
                return
            seat.lost = f"the connection of rank {rank} is lost: {error.strerror or error}"
            if isinstance(error, TimeoutError):
                return
            if not self._changed.wait_for(lambda: self._closed or self._seats[rank] is not seat, _RETURN):
                self._gone[rank] = f"{seat.lost}, and it has not come back in {_RETURN:g} s"
                self._changed.notify_all()

    def _confirm(self, rank: int, asks: str) -> None:
        """The rank has all answers but to what it `asks`. Call with the lock held."""
        for name, here in list(self._gatherings.items()):
            if name != asks and here.answer and rank in here.blobs:
                here.confirmed.add(rank)
                if len(here.confirmed) == self._size:
                    del self._gatherings[name]
                if len(here.confirmed) == len(here.blobs):
                    self._changed.notify_all()

    def _absent(self, here: _Gathering) -> bytes:
        """The answer that names those who did not come, and says why. Call with the lock held."""
        absent = [rank for rank in range(self._size) if rank not in here.blobs]
        gone = [rank for rank in absent if rank in self._gone]
        why = [self._gone[rank] for rank in gone] or [self._seats[rank].lost for rank in absent if rank in self._seats]
        reason = "; ".join(filter(None, [*why[:3], self._trouble])).encode()[:LARGEST_REASON]
        named = gone or absent
        content = struct.pack(f"<{len(named)}I", *named) + reason
        return FRAME.pack(MAGIC, GONE if gone else LATE, len(named), len(content)) + content

    def _wait(self, here: _Gathering, name: str, over: Callable[[], bool]) -> None:
        """Until it is over, some rank cannot come any more, or its time is. Call with the lock held."""

        def settled() -> bool:
            return over() or not self._gone.keys() <= here.blobs.keys()

        if self._timeout <= bootstraps.LONG:
            self._changed.wait_for(settled, self._timeout)
        elif not self._changed.wait_for(settled, bootstraps.LONG):
            if not here.told:
                here.told = True
                late = ", ".join(str(rank) for rank in range(self._size) if rank not in here.blobs)
                topic = name.rpartition("/")[0]
                bootstraps.say_who_waits(f"rank 0 at {self._where}", f"rank(s) {late} in {topic!r}")
            self._changed.wait_for(settled, self._timeout - bootstraps.LONG)
