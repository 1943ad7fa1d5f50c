"""An aggregating switch as a process: `python -m syntony.lab.aggregator --listen 10.0.0.1:4600 --slots 64`.

Workers must know its secret: SYNTONY_SECRET, else the user's own (collectives/bootstrap/user_secret.py). It serves
until SIGTERM or Ctrl-C. Its first line of output is its address (port 0 picks a free port).
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
SLOT_BYTES = 1376
"""Bytes of payload with which a packet just fits into an Ethernet frame (csrc/core/in_network)."""
LAB_SLOT_BYTES = 8192
"""The same in the lab, whose wires take packets of 9000 bytes: fewer packets save time on its few cores."""


ON_ARRIVAL = ("iswitch",)
"""Profiles that add packets in the order of arrival."""


def needs_server(aggregator: Aggregator) -> bool:
    """Whether contributions that find no free slot must be added by a server."""
    return aggregator.sharing == "shared" and aggregator.slots is not None


def arguments_of(aggregator: Aggregator) -> list[str]:
    """The options with which a process emulates the aggregator.

    Number formats, tenants and the total bytes of all slots are the profile's. The bytes are divided into slots of one
    packet of the lab's wires, at least two per tenant. If the profile has no limit, each tenant has SLOTS.
    """
    slots = SLOTS * aggregator.tenants
    if aggregator.slots is not None:
        slots = max(2 * aggregator.tenants, min(slots, aggregator.slots * aggregator.slot_bytes // LAB_SLOT_BYTES))
    ways = {"--shared": needs_server(aggregator), "--on-arrival": aggregator.name in ON_ARRIVAL}
    return [*_arguments(aggregator, slots), *(word for word, meant in ways.items() if meant)]


def arguments_of_server(aggregator: Aggregator) -> list[str]:
    """The options of the server above an aggregator that needs one; its memory is unlimited."""
    return _arguments(aggregator, SLOTS * aggregator.tenants)


def _arguments(aggregator: Aggregator, slots: int) -> list[str]:
    formats = [word for name in aggregator.formats for word in ("--format", name)]
    return ["--slots", str(slots), "--slot-bytes", str(LAB_SLOT_BYTES), *formats, "--tenants", str(aggregator.tenants)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m syntony.lab.aggregator",
        description="An aggregator: ranks send packets to it and get their sums back.",
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
    parser.add_argument(
        "--shared",
        action="store_true",
        help="jobs share slots, first come first served; the server above (next in SYNTONY_AGGREGATOR) adds the rest",
    )
    parser.add_argument(
        "--on-arrival", action="store_true", help="add packets as they come: less memory, but bits depend on the order"
    )
    options = parser.parse_args(arguments)
    try:
        aggregator = _emulation.Aggregator(
            options.listen,
            options.slots,
            options.slot_bytes,
            options.format,
            options.tenants,
            given_secret(),
            options.shared,
            options.on_arrival,
        )
    except (ValueError, _core.CommunicationError) as error:
        print(f"aggregator: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: aggregator.stop())
    slots = f"{options.slots} {'shared ' if options.shared else ''}slots"
    print(f"aggregator at {aggregator.address}: {slots} of {options.slot_bytes} bytes", flush=True)
    with suppress(KeyboardInterrupt):
        aggregator.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
