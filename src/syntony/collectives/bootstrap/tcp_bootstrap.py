"""Ranks that meet over TCP: rank 0 listens on MASTER_ADDR:MASTER_PORT, the others connect.

    rank R                                                       rank 0
    hello {rank, ranks}, nonce                       ──────────►
                                                     ◄──────────  hello {ranks}, nonce
    proof (handshake.py)                             ──────────►
                                                     ◄──────────  verdict, proof
    blobs by name ..

Rank 0 listens only at the addresses that MASTER_ADDR names on its machine. If they are several, as of a host in two
networks, ranks try one after the other. The connections serve only to meet: a group that is formed does without. Both
sides prove that they know the job's secret without revealing it: SYNTONY_SECRET, the same at all ranks, or else the
user's own (user_secret.py), which ranks with a common home directory share automatically. Data sent afterwards is
neither encrypted nor signed: the secret keeps strangers out, but not those who can modify traffic. Without a secret,
anyone who reaches the port while ranks meet can take a rank's place, so it may be missing only if ranks meet on
loopback. The job's name (SYNTONY_JOB, else SLURM_JOB_ID) is part of the secret, so that two jobs on one port do not
mix. A rank that waits long for others reports it on stderr, with the address.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import os
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from weakref import finalize

from syntony.base.command import UserError
from syntony.collectives.bootstrap import bootstraps
from syntony.collectives.bootstrap.bootstraps import UniqueNames, missing
from syntony.collectives.bootstrap.handshake import PATIENCE, SIZE, Proofs, job_name, job_secret, nonce, proofs, read
from syntony.collectives.bootstrap.slurm import slurm_step
from syntony.collectives.bootstrap.user_secret import user_secret

_FRAME = struct.Struct("<8sIII")  # magic, rank, bytes of the name | absent ranks, bytes that follow (hello: ranks)
_MAGIC = b"syntony3"
_ADMITTED, _UNKNOWN = 0, 1  # verdicts
_LARGEST_NAME = 1 << 10
_LARGEST_BLOB = 1 << 24
_LARGEST_REASON = 1 << 10
_LINGER = 10.0  # seconds that rank 0 gives slow readers before it closes
_DIAL = 3.0  # seconds before a rank tries another of rank 0's addresses: the kernel has asked twice
_PAUSE = 0.1  # seconds before rank 0 accepts again after the system has run out of resources for connections
_STRANGERS = 64  # most unauthenticated connections beside the ranks' at a time; beyond, the oldest is dropped


class TcpBootstrap:
    """Ranks that know the address of rank 0, which serves the others from its own threads until it is closed.

    A stranger at the port is dropped without disturbing the ranks: after some seconds without the `secret`, at once if
    there are too many. The port is freed by close() or when the object is garbage-collected. Raises UserError for
    invalid numbers, if rank 0 cannot listen, if there is no secret although others than this machine's users can reach
    rank 0, and if secrets differ between ranks (None: the user's own); ConnectionError if rank 0 cannot be reached
    within `timeout` seconds.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        address: str,
        port: int,
        timeout: float = 300.0,
        secret: str | None = None,
        job: str = "",
    ) -> None:
        if not 0 <= rank < size:
            raise UserError(f"there is no rank {rank} among {size} ranks: they count from 0")
        if not 0 < port < 1 << 16:
            raise UserError(f"{port} is not a port of rank 0: ports go from 1 to 65535")
        self.rank = rank
        self.size = size
        self.timeout = timeout
        secret = user_secret() if secret is None else secret
        self._secret = job_secret(secret, job)
        self._names = UniqueNames()
        self._where = f"{address}:{port}"
        self._end: Callable[[], object] = lambda: None
        self._socket: socket.socket | None = None
        if size > 1:
            addresses = _addresses(address, port)
            if not secret and not all(_loopback(where[0]) for _, where in addresses):
                raise UserError(
                    f"ranks that meet at {address} need a secret, as others can reach that address, too: "
                    "set SYNTONY_SECRET to one random value at all ranks of the job (openssl rand -hex 16 makes one)"
                )
            if rank == 0:
                self._end = finalize(self, _Meeting(size, address, addresses, timeout, self._secret, self._where).close)
            self._socket = self._join(address, port)
            finalize(self, self._socket.close)

    @classmethod
    def from_environment(cls, timeout: float = 300.0) -> TcpBootstrap:
        """From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as most launchers set them, or else from srun's
        variables (slurm.py). Also reads SYNTONY_SECRET and SYNTONY_JOB.

        Under torchrun, whose own store listens on MASTER_PORT, use StoreBootstrap.
        """
        told = slurm_step() | os.environ
        values = {}
        for variable in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
            text = told.get(variable)
            if text is None or not text.isdecimal():
                found = "is not set" if text is None else f"is {text!r}"
                raise UserError(f"the environment variable {variable} should be a number, it {found}")
            values[variable] = int(text)
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            raise UserError(
                "torchrun's own store answers at MASTER_PORT: "
                "use StoreBootstrap(*next(torch.distributed.rendezvous('env://')))"
            )
        address = told.get("MASTER_ADDR", "127.0.0.1")
        return cls.of_this_job(values["RANK"], values["WORLD_SIZE"], address, values["MASTER_PORT"], timeout)

    @classmethod
    def of_this_job(cls, rank: int, size: int, address: str, port: int, timeout: float) -> TcpBootstrap:
        """With the secret and the job name from the environment."""
        return cls(rank, size, address, port, timeout, os.environ.get("SYNTONY_SECRET") or None, job_name())

    @property
    def secret(self) -> bytes:
        """The secret that the ranks share; the core mixes it into the group's token."""
        return hmac.digest(self._secret, b"syntony group", "sha256")

    def close(self) -> None:
        """Leaves. Rank 0 first answers all pending requests, then frees the port."""
        if self._socket is not None:
            self._socket.close()
        self._end()

    def __enter__(self) -> TcpBootstrap:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        if len(blob) > _LARGEST_BLOB:
            raise UserError(f"{len(blob)} bytes for {name!r} are too many: ranks meet with at most {_LARGEST_BLOB}")
        if self._socket is None:
            return [blob]
        unique = self._names.next(name).encode()
        self._socket.settimeout(self.timeout + 5)  # rank 0 enforces the deadline; this one detects its death
        try:
            self._socket.sendall(_FRAME.pack(_MAGIC, self.rank, len(unique), len(blob)) + unique + blob)
            absent, reason, blobs = self._answer(self._socket)
        except TimeoutError:
            raise TimeoutError(f"rank 0 at {self._where} stopped answering during {name!r}") from None
        except OSError as error:
            raise ConnectionError(f"lost rank 0 at {self._where} during {name!r}: {error}") from None
        if absent:
            raise missing(name, absent, self.timeout, reason)
        return blobs

    def _answer(self, connection: socket.socket) -> tuple[list[int], str, list[bytes]]:
        """The ranks that did not come and, if rank 0 knows it, why; or all blobs."""
        blobs: list[bytes] = []
        while len(blobs) < self.size:
            magic, _, absent, length = _FRAME.unpack(read(connection, _FRAME.size))
            largest = 4 * absent + _LARGEST_REASON if absent else _LARGEST_BLOB
            if magic != _MAGIC or absent > self.size or not 4 * absent <= length <= largest:
                raise ConnectionError("its answer makes no sense")
            content = read(connection, length)
            if absent:
                return (
                    list(struct.unpack_from(f"<{absent}I", content)),
                    content[4 * absent :].decode(errors="replace"),
                    [],
                )
            blobs.append(content)
        return [], "", blobs

    def _join(self, address: str, port: int) -> socket.socket:
        begin = time.monotonic()
        deadline, said = begin + self.timeout, False
        while True:
            try:
                return self._knock(address, port, max(0.1, deadline - time.monotonic()))
            except OSError as error:
                if not said and time.monotonic() > begin + bootstraps.LONG:
                    said = True
                    bootstraps.say_who_waits(f"rank {self.rank}", f"rank 0 at {self._where}: {error}")
                # Rank 0 may not listen yet, or still serve the last group. No event announces this, so it is polled.
                if time.monotonic() > deadline:
                    raise ConnectionError(
                        f"rank {self.rank} could not reach rank 0 at {self._where} within {self.timeout:g} s: {error}"
                    ) from None
                time.sleep(0.02)

    def _knock(self, address: str, port: int, seconds: float) -> socket.socket:
        deadline = time.monotonic() + seconds
        connection = socket.create_connection((address, port), timeout=min(seconds, _DIAL))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            mine = nonce()
            connection.sendall(_FRAME.pack(_MAGIC, self.rank, 0, self.size) + mine)
            magic, _, _, size = _FRAME.unpack(read(connection, _FRAME.size, deadline))
            if magic != _MAGIC:
                raise UserError(f"what answers at {self._where} is not the rank 0 that rank {self.rank} looks for")
            if size != self.size:
                raise UserError(
                    f"rank {self.rank} was started with {self.size} ranks, but rank 0 at {self._where} with {size}"
                )
            proven = _proofs(self._secret, mine, read(connection, SIZE, deadline), self.rank, self.size)
            connection.sendall(proven.knocks)
            try:
                magic, _, verdict, _ = _FRAME.unpack(read(connection, _FRAME.size, deadline))
            except ConnectionError:
                raise ConnectionError(f"another process is rank {self.rank} there already") from None
            proof = read(connection, SIZE, deadline)
            if magic != _MAGIC or verdict != _ADMITTED or not hmac.compare_digest(proof, proven.opens):
                raise UserError(
                    f"rank {self.rank} and rank 0 at {self._where} do not have the same secret, or are of two jobs: "
                    "SYNTONY_SECRET should be set to one value at all ranks of the job, as SYNTONY_JOB; without it, "
                    "the user's own is taken, which hosts share if they share a home"
                )
        except BaseException:
            connection.close()
            raise
        return connection


def _addresses(name: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """The addresses of a name on this machine. UserError if there are none."""
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UserError(f"rank 0's address {name!r} is unknown here: {error.strerror or error}") from None
    return list(dict.fromkeys((family, (str(where[0]), port)) for family, _, _, _, where in found))


def _listen(
    name: str, addresses: list[tuple[socket.AddressFamily, tuple[str, int]]], backlog: int
) -> list[socket.socket]:
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


def _loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _proofs(secret: bytes, of_rank: bytes, of_rank_0: bytes, rank: int, size: int) -> Proofs:
    return proofs(secret, of_rank, of_rank_0, b"rank" + struct.pack("<II", rank, size))


class _Gathering:
    """One all_gather in progress."""

    def __init__(self) -> None:
        self.blobs: dict[int, bytes] = {}
        self.answer = b""  # sent to all, once all have arrived
        self.absent: list[int] = []  # set when a rank times out: the gather has then failed for all
        self.answered = 0
        self.told = False  # whether the long wait has been reported


class _Meeting:
    """Rank 0's side: admits each rank once, collects blobs by name, answers after the last arrival or a timeout."""

    def __init__(
        self,
        size: int,
        name: str,
        addresses: list[tuple[socket.AddressFamily, tuple[str, int]]],
        timeout: float,
        secret: bytes,
        where: str,
    ) -> None:
        self._where = where
        self._process = os.getpid()
        self._size = size
        self._timeout = timeout
        self._secret = secret
        self._at_the_door: list[socket.socket] = []  # unauthenticated connections, oldest first
        self._seated: set[int] = set()
        self._gatherings: defaultdict[str, _Gathering] = defaultdict(_Gathering)
        self._changed = threading.Condition()  # guards all fields above
        self._trouble = ""  # why ranks may be absent although they connected
        self._closed = False
        self._listeners = _listen(name, addresses, backlog=max(128, size))
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), name="syntony-meeting", daemon=True).start()

    def close(self) -> None:
        """Sends the answers that are due, then frees the port. Does nothing in a child of fork(), which has copies of
        the sockets and none of the threads."""
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
        return all(here.absent or len(here.blobs) < self._size for here in self._gatherings.values())

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
        with connection, suppress(OSError):  # a stranger, or a rank that ended, which is reported to those waiting
            try:
                rank = self._seat(connection)
            finally:
                with self._changed, suppress(ValueError):  # already admitted or dropped
                    self._at_the_door.remove(connection)
            while rank is not None and self._answer(connection, rank):
                pass

    def _seat(self, connection: socket.socket) -> int | None:
        """The rank at the other end; None for strangers, and for a duplicate that is early for the next group."""
        deadline = time.monotonic() + min(PATIENCE, self._timeout)
        magic, rank, _, size = _FRAME.unpack(read(connection, _FRAME.size, deadline))
        if magic != _MAGIC:
            return None
        theirs, mine = read(connection, SIZE, deadline), nonce()
        connection.sendall(_FRAME.pack(_MAGIC, 0, 0, self._size) + mine)
        if rank >= size or size != self._size:
            return None
        proven = _proofs(self._secret, theirs, mine, rank, size)
        if not hmac.compare_digest(read(connection, SIZE, deadline), proven.knocks):
            connection.sendall(_FRAME.pack(_MAGIC, 0, _UNKNOWN, 0) + bytes(SIZE))
            return None
        with self._changed:
            if rank in self._seated or connection not in self._at_the_door:
                return None  # this rank is already here, or the connection was dropped
            self._seated.add(rank)
            self._at_the_door.remove(connection)
        connection.sendall(_FRAME.pack(_MAGIC, 0, _ADMITTED, 0) + proven.opens)
        connection.settimeout(None)
        return int(rank)

    def _answer(self, connection: socket.socket, rank: int) -> bool:
        magic, _, name_length, length = _FRAME.unpack(read(connection, _FRAME.size))
        if magic != _MAGIC or name_length > _LARGEST_NAME or length > _LARGEST_BLOB:
            return False
        name = read(connection, name_length).decode(errors="replace")
        blob = read(connection, length)
        with self._changed:
            here = self._gatherings[name]
            here.blobs[rank] = blob
            if len(here.blobs) == self._size:
                framed = ((_FRAME.pack(_MAGIC, r, 0, len(here.blobs[r])), here.blobs[r]) for r in range(self._size))
                here.answer = b"".join(chain.from_iterable(framed))  # built once: every rank gets the same bytes
            self._changed.notify_all()
            if not self._settled(here, name):
                here.absent = sorted(set(range(self._size)) - set(here.blobs))
                self._changed.notify_all()
            absent = here.absent
        if absent:
            content = struct.pack(f"<{len(absent)}I", *absent) + self._trouble.encode()[:_LARGEST_REASON]
            connection.sendall(_FRAME.pack(_MAGIC, 0, len(absent), len(content)) + content)
            return False
        try:
            connection.sendall(here.answer)
        finally:
            with self._changed:
                here.answered += 1
                if here.answered == self._size:
                    del self._gatherings[name]
                self._changed.notify_all()
        return True

    def _settled(self, here: _Gathering, name: str) -> bool:
        """Whether all have arrived in time, or it is known that some will not. Call with the lock held."""

        def settled() -> bool:
            return bool(here.absent) or len(here.blobs) == self._size

        if self._timeout <= bootstraps.LONG:
            return self._changed.wait_for(settled, self._timeout)
        if self._changed.wait_for(settled, bootstraps.LONG):
            return True
        if not here.told:
            here.told = True
            late = ", ".join(str(rank) for rank in range(self._size) if rank not in here.blobs)
            topic = name.rpartition("/")[0]
            bootstraps.say_who_waits(f"rank 0 at {self._where}", f"rank(s) {late} in {topic!r}")
        return self._changed.wait_for(settled, self._timeout - bootstraps.LONG)
