"""Both ends of a connection prove that they know the job's secret, and neither tells it.

    who knocks                                               who listens
    a number used once                           ──────────►
                                                 ◄──────────  a number used once
    HMAC(secret, both numbers, about, "knocks")  ──────────►
                                                 ◄──────────  HMAC(secret, both numbers, about, "opens")

`about` is what the connection is for, so that no proof serves another purpose. What is said afterwards is neither
hidden nor signed.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from typing import NamedTuple

SIZE = 32
"""Bytes of a number used once, and of a proof."""
PATIENCE = 10.0
"""Seconds that somebody who knocks has to prove who it is."""


class Proofs(NamedTuple):
    """What the two ends say, this time; compare with `hmac.compare_digest`."""

    knocks: bytes
    opens: bytes


def proofs(secret: bytes, of_who_knocks: bytes, of_who_listens: bytes, about: bytes) -> Proofs:
    said = of_who_knocks + of_who_listens + about
    return Proofs(*(hmac.digest(secret, said + role, "sha256") for role in (b"knocks", b"opens")))


def nonce() -> bytes:
    """One that is used once."""
    return secrets.token_bytes(SIZE)


def job_name() -> str:
    """SYNTONY_JOB, else SLURM_JOB_ID: a part of the secret, so that two jobs on one port do not mix."""
    return os.environ.get("SYNTONY_JOB") or os.environ.get("SLURM_JOB_ID", "")


def job_secret(secret: str, job: str) -> bytes:
    return hmac.digest(secret.encode(), job.encode(), "sha256")


def read(connection: socket.socket, length: int, deadline: float | None = None) -> bytes:
    """`length` bytes. Raises ConnectionError at the end of the stream, TimeoutError past the deadline, however many
    bytes trickled in until then; without a deadline the socket's own limit holds."""
    data = bytearray()
    while len(data) < length:
        if deadline is not None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(min(length - len(data), 1 << 20))
        if not piece:
            raise ConnectionError("the connection was closed")
        data += piece
    return bytes(data)
