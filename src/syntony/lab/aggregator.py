"""A switch that adds, as a process: `python -m syntony.lab.aggregator --listen 10.0.0.1:4600 --slots 64`.

Workers must know its secret: SYNTONY_SECRET, else the user's own (collectives/bootstrap/user_secret.py). It serves
until SIGTERM or Ctrl-C. Its first line of output says where it listens (with port 0, a free one is taken).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from syntony import _core, _emulation
from syntony.collectives.bootstrap.user_secret import given_secret
from syntony.topologies.aggregator import NUMBER_FORMATS, Aggregator

SLOTS = 256
SLOT_BYTES = 1408
"""Bytes of a packet's numbers, with which it just fits into an Ethernet frame (csrc/core/in_network)."""
LAB_SLOTS, LAB_SLOT_BYTES = 16, 8192
"""The same in the lab, whose wires take packets of 9000 bytes: fewer of them cost its few cores less."""


def arguments_of(aggregator: Aggregator) -> list[str]:
    """The options with which a process stands for the aggregator.

    Number formats and tenants are the profile's, and so are the bytes of all slots together; they are cut into slots of
    a packet of the lab's wires, two per tenant at least, and no more than keep the wires busy. Every tenant has its own
    part of them, also where the profile shares them.
    """
    slots = LAB_SLOTS * aggregator.tenants
    if aggregator.slots is not None:
        fitting = aggregator.slots * aggregator.slot_bytes // LAB_SLOT_BYTES
        slots = max(2 * aggregator.tenants, min(slots, fitting))
    formats = [word for name in aggregator.formats for word in ("--format", name)]
    return ["--slots", str(slots), "--slot-bytes", str(LAB_SLOT_BYTES), *formats, "--tenants", str(aggregator.tenants)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m syntony.lab.aggregator",
        description="A switch that adds: workers stream packets to it and get their sums back.",
        epilog="example: python -m syntony.lab.aggregator --listen 127.0.0.1:4600 --slots 64 --format int32_block",
    )
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="ADDRESS:PORT", help="address that ranks connect to")
    parser.add_argument("--slots", type=int, default=SLOTS, metavar="N", help=f"packets kept (default {SLOTS})")
    parser.add_argument(
        "--slot-bytes", type=int, default=SLOT_BYTES, metavar="B", help=f"bytes of a packet (default {SLOT_BYTES})"
    )
    parser.add_argument(
        "--format",
        action="append",
        default=[],
        choices=NUMBER_FORMATS,
        help="a number format to accept; may be repeated (default: all)",
    )
    parser.add_argument(
        "--tenants", type=int, default=1, metavar="T", help="jobs that may use it at the same time (default 1)"
    )
    options = parser.parse_args(arguments)
    try:
        aggregator = _emulation.Aggregator(
            options.listen, options.slots, options.slot_bytes, options.format, options.tenants, given_secret()
        )
    except (ValueError, _core.CommunicationError) as error:
        print(f"aggregator: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: aggregator.stop())
    print(f"aggregator at {aggregator.address}: {options.slots} slots of {options.slot_bytes} bytes", flush=True)
    with suppress(KeyboardInterrupt):
        aggregator.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
