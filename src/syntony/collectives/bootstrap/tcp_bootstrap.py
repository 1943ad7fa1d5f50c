"""Ranks that meet over TCP: rank 0 listens on MASTER_ADDR:MASTER_PORT, the others connect.

    rank R                                                       rank 0
    hello {rank, ranks}, a number used once          ──────────►
                                                     ◄──────────  hello {ranks}, a number used once
    proof (handshake.py)                             ──────────►
                                                     ◄──────────  verdict, proof
    blobs by name ..

Rank 0 listens at the addresses that MASTER_ADDR names on its machine, at no others. Both sides prove that they know the
job's secret and neither tells it: SYNTONY_SECRET, the same at all ranks, else the user's own (user_secret.py), which
ranks of one home share without being asked. What is said afterwards is neither hidden nor signed: the secret keeps
strangers out, not those who can change what is on the wire. Where there is neither secret, whoever reaches the port
while ranks meet can take a rank's place, so only ranks that meet on loopback may have none. A job's name
(SYNTONY_JOB, else SLURM_JOB_ID) is a part of the secret, so that two jobs on one port do not mix. Who waits long for
others says so on stderr, with the address.
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
from syntony.collectives.bootstrap.bootstraps import Turns, missing
from syntony.collectives.bootstrap.handshake import PATIENCE, SIZE, Proofs, job_name, job_secret, nonce, proofs, read
from syntony.collectives.bootstrap.slurm import slurm_step
from syntony.collectives.bootstrap.user_secret import user_secret

_FRAME = struct.Struct("<8sIII")  # magic, rank, and: bytes of the name | absent ranks, bytes that follow (hello: ranks)
_MAGIC = b"syntony3"
_ADMITTED, _UNKNOWN = 0, 1  # verdicts
_LARGEST_NAME = 1 << 10
_LARGEST_BLOB = 1 << 24
_LARGEST_REASON = 1 << 10
_LINGER = 10.0  # seconds that rank 0, about to go, gives slow readers
_PAUSE = 0.1  # seconds before rank 0 accepts again when the system has nothing left for a connection
_STRANGERS = 64  # so many, beside the ranks, may be at the door at a time; then the one that came first has to go


class TcpBootstrap:
    """Ranks that know the address of rank 0, which serves the others from threads of its own until it is closed.

    A stranger at the port is dropped without disturbing anybody: without the `secret` within seconds, and at once when
    too many are there. A closed one frees the port; so does one that nobody holds any more. UserError for numbers that
    cannot be, when rank 0 cannot listen, without a secret where others than this machine's users reach rank 0, and for
    ranks with unlike secrets (None: the user's own); ConnectionError when rank 0 cannot be reached within `timeout`
    seconds.
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
        self._turns = Turns()
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
        """By RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as most launchers set them; what they do not say, srun's
        variables do (slurm.py). SYNTONY_SECRET, SYNTONY_JOB.

        Under torchrun, whose own store answers at MASTER_PORT, StoreBootstrap is the one to take.
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
        """With the secret and the name that the job's environment has."""
        return cls(rank, size, address, port, timeout, os.environ.get("SYNTONY_SECRET") or None, job_name())

    @property
    def secret(self) -> bytes:
        """What the ranks know beside what they tell each other: the core mixes it into the group's token."""
        return hmac.digest(self._secret, b"syntony group", "sha256")

    def close(self) -> None:
        """Leaves. At rank 0: answers what all have asked for, then frees the port."""
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
        turn = self._turns.next(name).encode()
        self._socket.settimeout(self.timeout + 5)  # rank 0 answers by its own deadline; this one is for its death
        try:
            self._socket.sendall(_FRAME.pack(_MAGIC, self.rank, len(turn), len(blob)) + turn + blob)
            absent, reason, blobs = self._answer(self._socket)
        except TimeoutError:
            raise TimeoutError(f"rank 0 at {self._where} stopped answering during {name!r}") from None
        except OSError as error:
            raise ConnectionError(f"lost rank 0 at {self._where} during {name!r}: {error}") from None
        if absent:
            raise missing(name, absent, self.timeout, reason)
        return blobs

    def _answer(self, connection: socket.socket) -> tuple[list[int], str, list[bytes]]:
        """The ranks that did not come, and why if rank 0 knows; or everybody's blob."""
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
                # Rank 0 may not listen yet, or still to the last group: the only wait here that nothing could announce.
                if time.monotonic() > deadline:
                    raise ConnectionError(
                        f"rank {self.rank} could not reach rank 0 at {self._where} within {self.timeout:g} s: {error}"
                    ) from None
                time.sleep(0.02)

    def _knock(self, address: str, port: int, seconds: float) -> socket.socket:
        deadline = time.monotonic() + seconds
        connection = socket.create_connection((address, port), timeout=seconds)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            mine = nonce()
            connection.sendall(_FRAME.pack(_MAGIC, self.rank, 0, self.size) + mine)
            magic, _, _, size = _FRAME.unpack(read(connection, _FRAME.size, deadline))
            if magic != _MAGIC:
                raise UserError(f"what answers at {self._where} is not the rank 0 that rank {self.rank} looks for")
            if size != self.size:
                raise UserError(f"rank {self.rank} was told of {self.size} ranks, rank 0 at {self._where} of {size}")
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
    """What a name stands for on this machine. UserError when that is nothing."""
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UserError(f"rank 0's address {name!r} is unknown here: {error.strerror or error}") from None
    return list(dict.fromkeys((family, (str(where[0]), port)) for family, _, _, _, where in found))


def _listen(
    name: str, addresses: list[tuple[socket.AddressFamily, tuple[str, int]]], backlog: int
) -> list[socket.socket]:
    """At those of the addresses that this machine has: ::1 is not one where IPv6 is off. UserError."""
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
    """One all_gather on its way."""

    def __init__(self) -> None:
        self.blobs: dict[int, bytes] = {}
        self.answer = b""  # what all are told, once all have come
        self.absent: list[int] = []  # known when somebody's time is up: it has failed for all then
        self.answered = 0
        self.told = False  # that it takes long


class _Meeting:
    """Rank 0's side: seats each rank once, collects blobs by name, answers when the last has come or time is up."""

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
        self._at_the_door: list[socket.socket] = []  # the one that came first first
        self._seated: set[int] = set()
        self._gatherings: defaultdict[str, _Gathering] = defaultdict(_Gathering)
        self._changed = threading.Condition()  # guards all these
        self._trouble = ""  # why ranks may be absent, although they came
        self._closed = False
        self._listeners = _listen(name, addresses, backlog=max(128, size))
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), name="syntony-meeting", daemon=True).start()

    def close(self) -> None:
        """Gives those their answers that have them coming, then frees the port. In a child of fork(), which has only
        copies of the sockets and none of the threads, nothing."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._changed.wait_for(self._quiet, _LINGER)
            self._closed = True
            self._changed.notify_all()
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
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
        """After a refusal of the system's: whether to accept again. False when this meeting is over."""
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
            return error.errno not in (errno.EBADF, errno.EINVAL)  # closed; else a connection that broke in the queue
        with self._changed:
            self._trouble = f"rank 0 cannot accept connections: {error.strerror}"
            first = self._at_the_door[:1]
            # Descriptors come back when somebody closes some, which nothing announces.
            if self._changed.wait_for(lambda: self._closed, _PAUSE):
                return False
            if first and first == self._at_the_door[:1]:  # a rank would have been seated by now
                with suppress(OSError):
                    self._at_the_door.pop(0).shutdown(socket.SHUT_RDWR)
            return True

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # a stranger, or a rank that ended: those that wait for it will be told
            try:
                rank = self._seat(connection)
            finally:
                with self._changed, suppress(ValueError):  # seated, or it had to go
                    self._at_the_door.remove(connection)
            while rank is not None and self._answer(connection, rank):
                pass

    def _seat(self, connection: socket.socket) -> int | None:
        """The rank at the other end; None for strangers, and for a second one that is early for the next group."""
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
                return None  # there is one already; or it had to go
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
                here.answer = b"".join(chain.from_iterable(framed))  # once for all: the same bytes go to every rank
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
        """Whether all have come, or it is known that some will not, in time. With the lock."""

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
