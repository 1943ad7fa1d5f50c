"""Ranks that meet over TCP: rank 0 listens on MASTER_ADDR:MASTER_PORT, the others connect.

    rank R                                                       rank 0
    hello {rank, ranks}, mark, nonce                 ──────────►
                                                     ◄──────────  hello {ranks}, nonce
    proof (handshake.py)                             ──────────►
                                                     ◄──────────  verdict, proof
    name, blob                                       ──────────►
                                                     ◄──────────  the blobs of all ranks
    received                                         ──────────►
    ..
    leaves                                           ──────────►

Rank 0 listens only at the addresses that MASTER_ADDR names on its machine: a name or an address, or several between
commas. If they are several, as of a host in two networks, ranks try one after the other. A rank whose connection is
lost makes another one, over the next address, and asks again; rank 0 knows it by its mark, and gives the same answer
(tcp_meeting.py). The connections serve only to meet: a group that is formed does without.

Both sides prove that they know the job's secret without revealing it: SYNTONY_SECRET, the same at all ranks, or else
the user's own (user_secret.py), which ranks with a common home directory share automatically. Data sent afterwards is
neither encrypted nor signed: the secret keeps strangers out, but not those who can modify traffic. Without a secret,
anyone who reaches the port while ranks meet can take a rank's place, so it may be missing only if ranks meet on
loopback. The job's name (SYNTONY_JOB, else SLURM_JOB_ID) is part of the secret, so that two jobs on one port do not
mix. A rank that waits long for others reports it on stderr, with the address.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from weakref import finalize

from syntony.base.command import UserError
from syntony.collectives.bootstrap import bootstraps
from syntony.collectives.bootstrap.bootstraps import UniqueNames, missing
from syntony.collectives.bootstrap.handshake import PATIENCE, SIZE, job_name, job_secret, nonce, read
from syntony.collectives.bootstrap.slurm import slurm_step
from syntony.collectives.bootstrap.tcp_meeting import (
    ADMITTED,
    AGAIN,
    FRAME,
    GONE,
    LARGEST_BLOB,
    LARGEST_REASON,
    LEAVES,
    MAGIC,
    OVER,
    RECEIVED,
    Address,
    Meeting,
    notice_silence,
    rank_proofs,
)
from syntony.collectives.bootstrap.user_secret import user_secret

_DIAL = 3.0  # seconds before a rank tries another of rank 0's addresses: the kernel has asked twice
_UNANSWERED = 9_000  # milliseconds after which a connection is lost over which rank 0's host confirms nothing


class TcpBootstrap:
    """Ranks that know the address of rank 0, which serves the others from its own threads until it is closed.

    A stranger at the port is dropped without disturbing the ranks: after some seconds without the `secret`, at once if
    there are too many. The port is freed by close() or when the object is garbage-collected. Raises UserError for
    invalid numbers, if rank 0 cannot listen, if there is no secret although others than this machine's users can reach
    rank 0, and if secrets differ between ranks (None: the user's own); ConnectionError if rank 0 cannot be reached
    within `timeout` seconds.

    all_gather raises TimeoutError with the ranks that did not come within `timeout` seconds, and ConnectionError with
    those that cannot come any more, or if rank 0 is lost and cannot be reached again.
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
        self._line: _Line | None = None
        if size > 1:
            addresses = _addresses(address, port)
            if not secret and not all(_loopback(where[0]) for _, where in addresses):
                raise UserError(
                    f"ranks that meet at {address} need a secret, as others can reach that address, too: "
                    "set SYNTONY_SECRET to one random value at all ranks of the job (openssl rand -hex 16 makes one)"
                )
            if rank == 0:
                self._end = finalize(self, Meeting(size, address, addresses, timeout, self._secret, self._where).close)
            self._line = _Line(rank, size, address, port, self._secret)
            finalize(self, self._line.leave)
            self._join(self._line)

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
        if self._line is not None:
            self._line.leave()
        self._end()

    def __enter__(self) -> TcpBootstrap:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        if len(blob) > LARGEST_BLOB:
            raise UserError(f"{len(blob)} bytes for {name!r} are too many: ranks meet with at most {LARGEST_BLOB}")
        if self._line is None:
            return [blob]
        unique = self._names.next(name).encode()
        request = FRAME.pack(MAGIC, self.rank, len(unique), len(blob)) + unique + blob
        deadline = time.monotonic() + self.timeout + 5  # rank 0 enforces the timeout; this one detects its death
        while True:
            try:
                connection = self._line.connection
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                connection.sendall(request)
                blobs = self._answer(connection, name)
                break
            except OSError as error:
                if isinstance(error, TimeoutError) and error.errno is None:  # not the kernel's ETIMEDOUT
                    raise TimeoutError(f"rank 0 at {self._where} stopped answering during {name!r}") from None
                self._come_back(self._line, deadline, f"during {name!r}: {error.strerror or error}")
        with suppress(OSError):  # the next request says so, too
            connection.sendall(FRAME.pack(MAGIC, self.rank, 0, RECEIVED))
        if isinstance(blobs, Exception):
            raise blobs
        return blobs

    def _answer(self, connection: socket.socket, name: str) -> list[bytes] | OSError:
        """All blobs, or the error that names the ranks that did not come and, if rank 0 knows it, why."""
        blobs: list[bytes] = []
        while len(blobs) < self.size:
            magic, why, absent, length = FRAME.unpack(read(connection, FRAME.size))
            largest = 4 * absent + LARGEST_REASON if absent else LARGEST_BLOB
            if magic != MAGIC or absent > self.size or not 4 * absent <= length <= largest:
                raise UserError(f"what rank 0 at {self._where} answers during {name!r} makes no sense")
            content = read(connection, length)
            if absent:
                ranks = list(struct.unpack_from(f"<{absent}I", content))
                reason = content[4 * absent :].decode(errors="replace")
                if why != GONE:
                    return missing(name, ranks, self.timeout, reason)
                who = ", ".join(map(str, ranks))
                return ConnectionError(f"rank(s) {who} will not come to {name!r}: {reason}")
            blobs.append(content)
        return blobs

    def _join(self, line: _Line) -> None:
        begin = time.monotonic()
        deadline, said = begin + self.timeout, False
        while True:
            try:
                return line.dial(max(0.1, deadline - time.monotonic()))
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

    def _come_back(self, line: _Line, deadline: float, trouble: str) -> None:
        """Makes another connection. ConnectionError if nobody listens any more, or at the deadline."""
        while True:
            try:
                return line.dial(max(0.1, deadline - time.monotonic()))
            except OSError as error:
                if isinstance(error, ConnectionRefusedError) or time.monotonic() > deadline:
                    raise ConnectionError(
                        f"rank {self.rank} lost rank 0 at {self._where} {trouble}, and cannot connect again: "
                        f"{error.strerror or error}; see whether rank 0 has ended, and why, or what lies between the "
                        "hosts (firewalls, network cards)"
                    ) from None
                time.sleep(0.02)


class _Line:
    """A rank's connection to rank 0, made again when it is lost."""

    def __init__(self, rank: int, size: int, address: str, port: int, secret: bytes) -> None:
        self._rank = rank
        self._size = size
        self._address = address
        self._port = port
        self._where = f"{address}:{port}"
        self._secret = secret
        self._mark = nonce()
        self._process = os.getpid()
        self._tried = 0  # addresses so far
        self._admitted = False
        self.connection = socket.socket()  # not connected yet

    def leave(self) -> None:
        """Says so and closes. A child of fork() only closes its copy."""
        if os.getpid() == self._process and self._admitted:
            with suppress(OSError):
                self.connection.settimeout(0)
                self.connection.sendall(FRAME.pack(MAGIC, self._rank, 0, LEAVES))
        self.connection.close()

    def dial(self, seconds: float) -> None:
        """Connects over one of rank 0's addresses after the other, and is admitted. OSError if none answers in time,
        ConnectionRefusedError only if no address does; UserError if what answers is not this job's rank 0."""
        self.connection.close()
        deadline = time.monotonic() + seconds
        addresses = _addresses(self._address, self._port)
        errors: list[OSError] = []
        for _ in addresses:
            _, where = addresses[self._tried % len(addresses)]
            left = deadline - time.monotonic()
            if errors and left <= 0:
                break
            try:
                connection = socket.create_connection(where, timeout=min(max(0.1, left), _DIAL))
                self._enter(connection, min(deadline, time.monotonic() + PATIENCE) if len(addresses) > 1 else deadline)
            except OSError as error:
                errors.append(error)
                self._tried += 1
            else:
                self.connection = connection
                self._admitted = True
                return
        raise next((error for error in errors if not isinstance(error, ConnectionRefusedError)), errors[-1])

    def _enter(self, connection: socket.socket, deadline: float) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED)
            notice_silence(connection)
            mine, again = nonce(), AGAIN if self._admitted else 0
            connection.sendall(FRAME.pack(MAGIC, self._rank, again, self._size) + self._mark + mine)
            magic, _, _, size = FRAME.unpack(read(connection, FRAME.size, deadline))
            if magic != MAGIC:
                raise UserError(f"what answers at {self._where} is not the rank 0 that rank {self._rank} looks for")
            if size != self._size:
                raise UserError(
                    f"rank {self._rank} was started with {self._size} ranks, but rank 0 at {self._where} with {size}"
                )
            theirs = read(connection, SIZE, deadline)
            proven = rank_proofs(self._secret, mine, theirs, self._rank, self._size, again, self._mark)
            connection.sendall(proven.knocks)
            try:
                magic, _, verdict, _ = FRAME.unpack(read(connection, FRAME.size, deadline))
            except ConnectionError:
                raise ConnectionError(f"another process is rank {self._rank} there already") from None
            proof = read(connection, SIZE, deadline)
            if magic != MAGIC or verdict not in (ADMITTED, OVER) or not hmac.compare_digest(proof, proven.opens):
                raise UserError(
                    f"rank {self._rank} and rank 0 at {self._where} do not have the same secret, or are of two jobs: "
                    "SYNTONY_SECRET should be set to one value at all ranks of the job, as SYNTONY_JOB; without it, "
                    "the user's own is taken, which hosts share if they share a home"
                )
            if verdict == OVER:
                raise ConnectionRefusedError("rank 0 there meets with others now")
        except BaseException:
            connection.close()
            raise


def _addresses(names: str, port: int) -> list[Address]:
    """The addresses of the names between commas, as this machine knows them now. UserError for a name without any."""
    found: list[Address] = []
    for name in names.split(","):
        try:
            rows = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise UserError(f"rank 0's address {name!r} is unknown here: {error.strerror or error}") from None
        found += ((family, (str(where[0]), port)) for family, _, _, _, where in rows)
    return list(dict.fromkeys(found))


def _loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
