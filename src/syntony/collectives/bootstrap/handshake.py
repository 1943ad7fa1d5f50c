"""Both ends of a connection prove that they know the job's secret without revealing it.

    connecting side                                          listening side
    nonce                                        ──────────►
                                                 ◄──────────  nonce
    HMAC(secret, both nonces, about, "knocks")   ──────────►
                                                 ◄──────────  HMAC(secret, both nonces, about, "opens")

`about` is the purpose of the connection, so that a proof cannot be reused for another purpose. Data sent afterwards is
neither encrypted nor signed.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from typing import NamedTuple

SIZE = 32
"""Bytes of a nonce and of a proof."""
PATIENCE = 10.0
"""Seconds that the connecting side has to prove its identity."""


class Proofs(NamedTuple):
    """The proofs of both ends for this connection; compare with `hmac.compare_digest`."""

    knocks: bytes
    opens: bytes


def proofs(secret: bytes, of_who_knocks: bytes, of_who_listens: bytes, about: bytes) -> Proofs:
    said = of_who_knocks + of_who_listens + about
    return Proofs(*(hmac.digest(secret, said + role, "sha256") for role in (b"knocks", b"opens")))


def nonce() -> bytes:
    """A random number that is used once."""
    return secrets.token_bytes(SIZE)


def job_name() -> str:
    """SYNTONY_JOB, else SLURM_JOB_ID: part of the secret, so that two jobs on one port do not mix."""
    return os.environ.get("SYNTONY_JOB") or os.environ.get("SLURM_JOB_ID", "")


def job_secret(secret: str, job: str) -> bytes:
    return hmac.digest(secret.encode(), job.encode(), "sha256")


def read(connection: socket.socket, length: int, deadline: float | None = None) -> bytes:
    """Reads `length` bytes. Raises ConnectionError at the end of the stream, and TimeoutError after the deadline even
    if bytes keep trickling in; without a deadline the socket's own timeout applies."""
    data = bytearray()
    while len(data) < length:
        if deadline is not None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(min(length - len(data), 1 << 20))
        if not piece:
            raise ConnectionError("the connection was closed")
        data += piece
    return bytes(data)
