"""The aggregators of a rank: SYNTONY_AGGREGATOR lists its own as `HOST:PORT`, then those above it up to the root.

    SYNTONY_AGGREGATOR=10.0.1.1:4600                  one switch for the whole job
    SYNTONY_AGGREGATOR=10.0.1.1:4600,10.0.0.1:4600    the rank's own, and the one that adds the sums of several

    SYNTONY_AGGREGATOR=10.0.1.1:4600,10.0.0.1:4600;10.0.1.1:4600,10.0.0.2:4600    two trees, each sums a part

The first aggregator may differ between ranks; the last of each tree is the same for all.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from syntony.base.command import UserError

VARIABLE = "SYNTONY_AGGREGATOR"


def way(environment: Mapping[str, str]) -> str:
    """The variable's value with host names resolved to addresses; "" if it is not set. Raises UserError."""
    trees = environment.get(VARIABLE, "").split(";")
    found = (",".join(numeric(word.strip()) for word in one.split(",") if word.strip()) for one in trees)
    return ";".join(filter(None, found))


def numeric(address: str) -> str:
    """HOST:PORT with the host name resolved to an address. Raises UserError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UserError(f"the aggregator's address is {address!r}; it must be HOST:PORT, such as 10.0.0.1:4600")
    try:
        family, _, _, _, found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        number = str(found[0])
    except OSError as error:
        raise UserError(f"the aggregator's address is {address!r}: {error}") from None
    return f"[{number}]:{port}" if family == socket.AF_INET6 else f"{number}:{port}"
