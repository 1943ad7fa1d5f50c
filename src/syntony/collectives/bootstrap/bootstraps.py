"""How ranks meet before there is a group: four implementations of an all_gather of a few bytes.

TcpBootstrap    rank 0 listens on MASTER_ADDR:MASTER_PORT, the others connect (tcp_bootstrap.py)
StoreBootstrap  over torch's Store
MpiBootstrap    over an MPI communicator (mpi4py)
LocalBootstrap  threads of one process, for tests
"""

from __future__ import annotations

import struct
import sys
import threading
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol

from syntony.base.command import UserError

if TYPE_CHECKING:
    from mpi4py import MPI


class Store(Protocol):
    """The part of torch.distributed.Store that is used."""

    def add(self, key: str, amount: int, /) -> int: ...
    def check(self, keys: list[str], /) -> bool: ...
    def set(self, key: str, value: Any, /) -> None: ...
    def get(self, key: str, /) -> bytes: ...
    def wait(self, keys: list[str], timeout: timedelta, /) -> None: ...


def missing(name: str, ranks: list[int], seconds: float, reason: str = "") -> TimeoutError:
    """The error that names the ranks that did not come to the all_gather `name`."""
    who = ", ".join(map(str, ranks))
    return TimeoutError(f"rank(s) {who} did not come to {name!r} within {seconds:g} s" + (reason and f" ({reason})"))


LONG = 10.0  # seconds after which a waiting rank reports whom it waits for


def say_who_waits(rank: str, whom: str) -> None:
    """Prints, after LONG seconds, on stderr and unbuffered: a launcher may end this process while it waits."""
    # One write, newline included: other threads of this process may print at the same time.
    sys.stderr.write(f"syntony: {rank} has waited {LONG:g} s for {whom}\n")
    sys.stderr.flush()


class UniqueNames:
    """Makes repeated names unique: one bootstrap serves several groups, one after another."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()

    def next(self, name: str) -> str:
        self._names[name] += 1
        return f"{name}/{self._names[name]}"


def join(blobs: list[bytes]) -> bytes:
    """All blobs as one: their lengths, then their contents."""
    return struct.pack(f"<{len(blobs)}I", *map(len, blobs)) + b"".join(blobs)


def part(joined: bytes, size: int) -> list[bytes]:
    """Splits what `join` has made into the blobs of `size` ranks."""
    lengths = struct.unpack_from(f"<{size}I", joined)
    ends = list(accumulate(lengths, initial=4 * size))
    return [joined[begin:end] for begin, end in pairwise(ends)]


class LocalBootstrap:
    """Ranks that are threads of one process. Make them together with `LocalBootstrap.group(4)`."""

    def __init__(
        self, rank: int, size: int, meeting: dict[str, dict[int, bytes]], changed: threading.Condition, timeout: float
    ) -> None:
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self._names = UniqueNames()
        self._meeting = meeting
        self._changed = changed

    @classmethod
    def group(cls, size: int, timeout: float = 60.0) -> list[LocalBootstrap]:
        meeting: dict[str, dict[int, bytes]] = {}
        changed = threading.Condition()
        return [cls(rank, size, meeting, changed, timeout) for rank in range(size)]

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        unique = self._names.next(name)
        with self._changed:
            here = self._meeting.setdefault(unique, {})
            here[self.rank] = blob
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: len(here) == self.size, self.timeout):
                raise missing(name, sorted(set(range(self.size)) - set(here)), self.timeout)
            return [here[rank] for rank in range(self.size)]


class StoreBootstrap:
    """Ranks that share a torch.distributed Store; the arguments are what torch's rendezvous() yields.

    Several may use one store at a time if their ranks make them in the same order. RuntimeError if the store fails.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: float = 300.0) -> None:
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self._names = UniqueNames()
        self._store = store
        self._prefix = f"syntony/{store.add(f'syntony/made by {rank}', 1)}"

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        # The last rank to arrive reads all blobs and writes them as one value, which the others read. That is O(size)
        # requests in total instead of O(size^2) if every rank read every blob.
        unique = f"{self._prefix}/{self._names.next(name)}"
        keys = [f"{unique}/{rank}" for rank in range(self.size)]
        everything = f"{unique}/all"
        self._store.set(keys[self.rank], blob)
        if self._store.add(f"{unique}/came", 1) == self.size:
            blobs = [self._store.get(key) for key in keys]
            self._store.set(everything, join(blobs))
            return blobs
        first = min(LONG, self.timeout)
        absent = self._wait(everything, keys, first)
        if absent and first < self.timeout:
            who = ", ".join(map(str, absent))
            say_who_waits(f"rank {self.rank} of {self.size}", f"rank(s) {who} of its group in {name!r}")
            absent = self._wait(everything, keys, self.timeout - first)
        if absent:
            raise missing(name, absent, self.timeout)
        try:
            if self._store.check([everything]):
                return part(self._store.get(everything), self.size)
            return [self._store.get(key) for key in keys]  # all arrived, and the last one died before it wrote
        except RuntimeError as error:  # torch's DistStoreError
            raise RuntimeError(f"the store failed while ranks met at {name!r}: {error}") from error

    def _wait(self, everything: str, keys: list[str], seconds: float) -> list[int]:
        """The ranks whose keys do not appear in time; empty if all do, or if the store is gone."""
        try:
            self._store.wait([everything], timedelta(seconds=seconds))
        except RuntimeError:  # torch's DistStoreError: timeout, or the store is gone
            with suppress(RuntimeError):
                return [rank for rank, key in enumerate(keys) if not self._store.check([key])]
        return []


class MpiBootstrap:
    """Ranks of an MPI communicator, by default all of them. Needs mpi4py. UserError if MPI cannot be loaded.

    MPI has no timeouts: this waits for a missing rank forever, and reports it after LONG seconds.
    """

    def __init__(self, communicator: MPI.Intracomm | None = None) -> None:
        if communicator is None:
            try:
                from mpi4py import MPI
            except (ImportError, RuntimeError) as error:  # mpi4py is missing, or it finds no MPI library
                why = str(error).partition("\n")[0]
                raise UserError(
                    f"MpiBootstrap needs mpi4py and the MPI library that started the ranks: {why}"
                ) from None
            communicator = MPI.COMM_WORLD
        self._communicator = communicator
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        rank, size = self.rank, self.size
        late = threading.Timer(LONG, say_who_waits, (f"rank {rank} of {size}", f"other ranks in {name!r}, over MPI"))
        late.daemon = True
        late.start()
        try:
            gathered: list[bytes] = self._communicator.allgather(blob)
        finally:
            late.cancel()
        return gathered
