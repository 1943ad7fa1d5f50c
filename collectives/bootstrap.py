"""How ranks meet before there is a group: four ways to do one thing, all_gather of a few bytes.

TcpBootstrap    rank 0 listens on MASTER_ADDR:MASTER_PORT, the others connect
StoreBootstrap  over torch's Store
MpiBootstrap    over an MPI communicator (mpi4py)
LocalBootstrap  threads of one process, for tests
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol
from weakref import finalize

from topologies.command import UserError

if TYPE_CHECKING:
    from mpi4py import MPI


_FRAME = struct.Struct("<8sIII")  # magic, rank, and: bytes of the name | absent ranks, bytes that follow (hello: ranks)
_MAGIC = b"syntony1"
_LARGEST_NAME = 1 << 10
_LARGEST_BLOB = 1 << 24
_LINGER = 10.0  # seconds that rank 0, about to go, gives slow readers


class Store(Protocol):
    """The part of torch.distributed.Store that is used."""

    def add(self, key: str, amount: int, /) -> int: ...
    def check(self, keys: list[str], /) -> bool: ...
    def set(self, key: str, value: Any, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def wait(self, keys: list[str], timeout: timedelta, /) -> None: ...


def _missing(name: str, ranks: list[int], seconds: float) -> TimeoutError:
    who = ", ".join(map(str, ranks))
    return TimeoutError(f"rank(s) {who} did not come to {name!r} within {seconds:g} s")


class _Turns:
    """Makes names unique that come again: one bootstrap serves several groups, one after another."""

    def __init__(self) -> None:
        self._turns: Counter[str] = Counter()

    def next(self, name: str) -> str:
        self._turns[name] += 1
        return f"{name}/{self._turns[name]}"


class LocalBootstrap:
    """Ranks that are threads of one process. Make them together: `LocalBootstrap.group(4)`."""

    def __init__(
        self, rank: int, size: int, meeting: dict[str, dict[int, bytes]], changed: threading.Condition, timeout: float
    ) -> None:
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self._turns = _Turns()
        self._meeting = meeting
        self._changed = changed

    @classmethod
    def group(cls, size: int, timeout: float = 60.0) -> list[LocalBootstrap]:
        meeting: dict[str, dict[int, bytes]] = {}
        changed = threading.Condition()
        return [cls(rank, size, meeting, changed, timeout) for rank in range(size)]

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        turn = self._turns.next(name)
        with self._changed:
            here = self._meeting.setdefault(turn, {})
            here[self.rank] = blob
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: len(here) == self.size, self.timeout):
                raise _missing(name, sorted(set(range(self.size)) - set(here)), self.timeout)
            return [here[rank] for rank in range(self.size)]


class StoreBootstrap:
    """Ranks that share a torch.distributed Store; the arguments are what torch's rendezvous() yields.

    Several may use one store at a time if their ranks make them in the same order. RuntimeError when the store fails.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: float = 300.0) -> None:
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self._turns = _Turns()
        self._store = store
        self._prefix = f"syntony/{store.add(f'syntony/made by {rank}', 1)}"

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        turn = self._turns.next(name)
        keys = [f"{self._prefix}/{turn}/{rank}" for rank in range(self.size)]
        self._store.set(keys[self.rank], blob)
        try:
            self._store.wait(keys, timedelta(seconds=self.timeout))
        except RuntimeError as error:  # torch's DistStoreError: time is up, or the store is gone
            absent = self._absent(keys)
            if absent:
                raise _missing(name, absent, self.timeout) from None
            raise RuntimeError(f"the store failed while ranks met at {name!r}: {error}") from error
        return [self._store.get(key) for key in keys]

    def _absent(self, keys: list[str]) -> list[int]:
        try:
            return [rank for rank, key in enumerate(keys) if not self._store.check([key])]
        except RuntimeError:
            return []  # the store is gone: nobody knows


class MpiBootstrap:
    """Ranks of an MPI communicator, by default all of them. Needs mpi4py. UserError when MPI cannot be loaded.

    MPI knows no time limit: a rank that does not come is waited for.
    """

    def __init__(self, communicator: MPI.Intracomm | None = None) -> None:
        if communicator is None:
            try:
                from mpi4py import MPI
            except (ImportError, RuntimeError) as error:  # not installed; installed, but without an MPI library
                why = str(error).partition("\n")[0]
                raise UserError(
                    f"MpiBootstrap needs mpi4py and the MPI library that started the ranks: {why}"
                ) from None
            communicator = MPI.COMM_WORLD
        self._communicator = communicator
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        gathered: list[bytes] = self._communicator.allgather(blob)
        return gathered


class TcpBootstrap:
    """Ranks that know the address of rank 0, which serves the others from threads of its own until it is closed.

    A stranger at the port is dropped without disturbing anybody. A closed one frees the port; so does one that nobody
    holds any more. UserError for numbers that cannot be and when rank 0 cannot listen, ConnectionError when rank 0
    cannot be reached within `timeout` seconds.
    """

    def __init__(self, rank: int, size: int, address: str, port: int, timeout: float = 300.0) -> None:
        if not 0 <= rank < size:
            raise UserError(f"there is no rank {rank} among {size} ranks: they count from 0")
        if not 0 < port < 1 << 16:
            raise UserError(f"{port} is not a port of rank 0: ports go from 1 to 65535")
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self._turns = _Turns()
        self._where = f"{address}:{port}"
        self._end: Callable[[], object] = lambda: None
        self._socket: socket.socket | None = None
        if size > 1:
            if rank == 0:
                self._end = finalize(self, _Meeting(size, port, timeout).close)
            self._socket = self._join("localhost" if rank == 0 else address, port)
            finalize(self, self._socket.close)

    @classmethod
    def from_environment(cls, timeout: float = 300.0) -> TcpBootstrap:
        """By RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as most launchers set them.

        Under torchrun, whose own store answers at MASTER_PORT, StoreBootstrap is the one to take.
        """
        values = {}
        for variable in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
            text = os.environ.get(variable)
            if text is None or not text.isdecimal():
                found = "is not set" if text is None else f"is {text!r}"
                raise UserError(f"the environment variable {variable} should be a number, it {found}")
            values[variable] = int(text)
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            raise UserError(
                "torchrun's own store answers at MASTER_PORT: "
                "use StoreBootstrap(*next(torch.distributed.rendezvous('env://')))"
            )
        address = os.environ.get("MASTER_ADDR", "127.0.0.1")
        return cls(values["RANK"], values["WORLD_SIZE"], address, values["MASTER_PORT"], timeout)

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
        if self._socket is None:
            return [blob]
        turn = self._turns.next(name).encode()
        self._socket.settimeout(self.timeout + 5)  # rank 0 answers by its own deadline; this one is for its death
        try:
            self._socket.sendall(_FRAME.pack(_MAGIC, self.rank, len(turn), len(blob)) + turn + blob)
            absent, blobs = self._answer(self._socket)
        except TimeoutError:
            raise TimeoutError(f"rank 0 at {self._where} stopped answering during {name!r}") from None
        except OSError as error:
            raise ConnectionError(f"lost rank 0 at {self._where} during {name!r}: {error}") from None
        if absent:
            raise _missing(name, absent, self.timeout)
        return blobs

    def _answer(self, connection: socket.socket) -> tuple[list[int], list[bytes]]:
        """The ranks that did not come, or everybody's blob."""
        blobs: list[bytes] = []
        while len(blobs) < self.size:
            _, _, absent, length = _FRAME.unpack(_read(connection, _FRAME.size))
            content = _read(connection, length)
            if absent:
                return list(struct.unpack(f"<{absent}I", content)), []
            blobs.append(content)
        return [], blobs

    def _join(self, address: str, port: int) -> socket.socket:
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return self._hello(address, port, max(0.1, deadline - time.monotonic()))
            except OSError as error:
                # Rank 0 may not listen yet, or still to the last group: the only wait here that nothing could announce.
                if time.monotonic() > deadline:
                    raise ConnectionError(
                        f"rank {self.rank} could not reach rank 0 at {self._where} within {self.timeout:g} s: {error}"
                    ) from None
                time.sleep(0.02)

    def _hello(self, address: str, port: int, seconds: float) -> socket.socket:
        connection = socket.create_connection((address, port), timeout=seconds)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(_FRAME.pack(_MAGIC, self.rank, 0, self.size))
            magic, _, _, size = _FRAME.unpack(_read(connection, _FRAME.size))
            if magic != _MAGIC:
                raise UserError(f"what answers at {self._where} is not the rank 0 that rank {self.rank} looks for")
            if size != self.size:
                raise UserError(f"rank {self.rank} was told of {self.size} ranks, rank 0 at {self._where} of {size}")
        except BaseException:
            connection.close()
            raise
        return connection


class _Gathering:
    """One all_gather on its way."""

    def __init__(self) -> None:
        self.blobs: dict[int, bytes] = {}
        self.absent: list[int] = []  # known when somebody's time is up: it has failed for all then
        self.answered = 0


class _Meeting:
    """Rank 0's side: seats each rank once, collects blobs by name, answers when the last has come or time is up."""

    def __init__(self, size: int, port: int, timeout: float) -> None:
        self._size = size
        self._timeout = timeout
        self._seated: set[int] = set()
        self._gatherings: defaultdict[str, _Gathering] = defaultdict(_Gathering)
        self._changed = threading.Condition()
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        backlog = max(128, size)
        try:
            self._listener = socket.create_server(("", port), family=family, backlog=backlog, dualstack_ipv6=both)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise UserError(f"rank 0 cannot listen on port {port}: {why}") from None
        threading.Thread(target=self._accept, name="syntony-meeting", daemon=True).start()

    def close(self) -> None:
        """Gives those their answers that have them coming, then frees the port."""
        with self._changed:
            self._changed.wait_for(self._quiet, _LINGER)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _quiet(self) -> bool:
        gatherings = self._gatherings.values()
        return all(here.absent or len(here.blobs) < self._size or here.answered == self._size for here in gatherings)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), name="syntony-meeting", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # a stranger, or a rank that ended: those that wait for it will be told
            rank = self._seat(connection)
            while rank is not None and self._answer(connection, rank):
                pass

    def _seat(self, connection: socket.socket) -> int | None:
        """The rank at the other end; None for strangers, and for a second one that is early for the next group."""
        connection.settimeout(self._timeout)
        magic, rank, _, size = _FRAME.unpack(_read(connection, _FRAME.size))
        if magic != _MAGIC:
            return None
        if size == self._size:
            with self._changed:
                if rank in self._seated or rank >= size:
                    return None
                self._seated.add(rank)
        connection.sendall(_FRAME.pack(_MAGIC, 0, 0, self._size))
        connection.settimeout(None)
        return int(rank) if size == self._size else None

    def _answer(self, connection: socket.socket, rank: int) -> bool:
        magic, _, name_length, length = _FRAME.unpack(_read(connection, _FRAME.size))
        if magic != _MAGIC or name_length > _LARGEST_NAME or length > _LARGEST_BLOB:
            return False
        name = _read(connection, name_length).decode(errors="replace")
        blob = _read(connection, length)
        with self._changed:
            here = self._gatherings[name]
            here.blobs[rank] = blob
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: here.absent or len(here.blobs) == self._size, self._timeout):
                here.absent = sorted(set(range(self._size)) - set(here.blobs))
                self._changed.notify_all()
            absent = here.absent
        if absent:
            frame = _FRAME.pack(_MAGIC, 0, len(absent), 4 * len(absent))
            connection.sendall(frame + struct.pack(f"<{len(absent)}I", *absent))
            return False
        try:
            for r in range(self._size):
                connection.sendall(_FRAME.pack(_MAGIC, r, 0, len(here.blobs[r])) + here.blobs[r])
        finally:
            with self._changed:
                here.answered += 1
                self._changed.notify_all()
        return True


def _read(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            raise ConnectionError("the connection was closed")
        data += piece
    return bytes(data)
