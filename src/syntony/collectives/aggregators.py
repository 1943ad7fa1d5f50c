"""Where a rank's aggregators are: SYNTONY_AGGREGATOR, `HOST:PORT` of its own, then of those above it, up to the root.

    SYNTONY_AGGREGATOR=10.0.1.1:4600                  one switch for the whole job
    SYNTONY_AGGREGATOR=10.0.1.1:4600,10.0.0.1:4600    rank's own, and the one that adds the sums of several

    SYNTONY_AGGREGATOR=10.0.1.1:4600,10.0.0.1:4600;10.0.1.1:4600,10.0.0.2:4600    two trees, each of which adds a part

Ranks may have different ones of their own; the last of a tree is the same for all.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from syntony.base.command import UserError

VARIABLE = "SYNTONY_AGGREGATOR"


def way(environment: Mapping[str, str]) -> str:
    """The variable's value with numbers for the names of hosts; "" where it is not set. Raises UserError."""
    trees = environment.get(VARIABLE, "").split(";")
    found = (",".join(numeric(word.strip()) for word in one.split(",") if word.strip()) for one in trees)
    return ";".join(filter(None, found))


def numeric(address: str) -> str:
    """HOST:PORT with the host's number for its name. Raises UserError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UserError(f"the aggregator's address is {address!r}; it must be HOST:PORT, such as 10.0.0.1:4600")
    try:
        family, _, _, _, found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        number = str(found[0])
    except OSError as error:
        raise UserError(f"the aggregator's address is {address!r}: {error}") from None
    return f"[{number}]:{port}" if family == socket.AF_INET6 else f"{number}:{port}"
