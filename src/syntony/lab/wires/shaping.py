"""How a rate becomes a token bucket (`tbf`). Pure.

A full bucket lets `burst` bytes pass at once: 256 KiB of burst are 6 % of a message of 4 MiB. If it is too small, it
overflows whenever a timer is late by more than burst / rate, and those bytes are lost to the rate for good. Two
milliseconds' worth survives a busy machine of two cores (98 to 99 % of 200 and 500 Mbit/s arrive), and is 1.2 % of
4 MiB at 200 Mbit/s. tc's rule, burst >= rate / HZ, concerns the timer frequency: with high-resolution timers, as in
every usual kernel (tc reads it in /proc/net/psched), HZ is 10^9 and not 250.

Packets are jumbo frames, and the kernel passes several as one (GSO). Each of these passes whole, so a machine on the
way stores it whole before forwarding. 16 KiB keep that at 0.7 ms per hop at 200 Mbit/s.

A queue takes packets that arrive faster than they may leave. Networks of compute clusters are nearly lossless; so is a
lab whose queues hold more than its senders have in flight (Syntony: eight slots of up to 512 KiB per stream, which
several peers may send at once).
"""

from __future__ import annotations

import math
from fractions import Fraction

MTU = 9000
"""Bytes of an IP packet."""
SEGMENT = 16 * 1024
"""Bytes that the kernel handles as one packet."""
QUEUE = 16 << 20
"""Bytes that may queue at one end of a wire."""

_BURST_SECONDS = Fraction(2, 1000)
_LEAST_BURST = 2 * SEGMENT


def burst(rate: Fraction) -> int:
    """Bytes of the bucket for `rate` bytes/s."""
    return max(_LEAST_BURST, math.ceil(rate * _BURST_SECONDS))


def bucket(rate: Fraction) -> str:
    """The queueing discipline that lets `rate` bytes/s pass, in tc's syntax."""
    return f"tbf rate {max(1, round(rate * 8))}bit burst {burst(rate)} limit {QUEUE}"


CUT = "blackhole"
"""The queueing discipline of a cut wire: it accepts all packets and drops them."""
