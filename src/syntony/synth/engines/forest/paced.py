"""Of several packings of all ranks' trees, the one that streams best.

Lanes that meet on a link get equal parts of it, whatever they have to carry. Of two packings that load all links alike,
one may therefore take 1.3 times as long as the other, and no count of links tells which; so they are simulated, as for
one root (forest/one_root.py). Which trees a packing finds depends on the order of nodes and links, which says nothing
about the network: it is drawn anew a few times.

    all_reduce of 1 GiB between 10 ranks at two switches, over the bound, by order:  1.26  1.21  1.17  1.04  1.13  1.10
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from syntony.base.deadline import Deadline
from syntony.synth.engines.forest.streaming import ROUGH, streaming_seconds
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.throughput import seconds_per_byte

MOST_ORDERS = 32
"""Orders of nodes and links that are tried."""
MOST_TRANSFERS = 1 << 12
"""Transfers of all schedules that are tried, about: a second."""
SHARE = 0.25
"""Of the time that is left after the first order, for others: other engines wait for this one."""
GOOD = 1.01
"""A schedule that takes at most this many times as long as its fullest link is busy is not compared with others."""


def paced(
    along: Callable[[int], Schedule], size: int, tell: Callable[[Schedule], None], deadline: Deadline
) -> Schedule:
    """The fastest at `size` bytes of `along(order)`, for order 0 and those after it, as many as the limits above allow.

    tell    called with every new best one, if others are still to be found
    """
    best = along(0)
    orders = min(MOST_ORDERS, MOST_TRANSFERS // max(1, len(best.transfers)))
    if orders < 2:
        return best
    deadline = Deadline(SHARE * deadline.left())
    roughly, finely = inf, streaming_seconds(best, size)
    for order in range(1, orders):
        if finely <= GOOD * size * float(seconds_per_byte(best)) or deadline.passed():
            break
        if order == 1:
            tell(best)
            roughly = streaming_seconds(best, size, ROUGH)
        other = along(order)
        rough = streaming_seconds(other, size, ROUGH)
        if rough < roughly and (fine := streaming_seconds(other, size)) < finely:
            best, roughly, finely = other, rough, fine
            tell(best)
    return best
