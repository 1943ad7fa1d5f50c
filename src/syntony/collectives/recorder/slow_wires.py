"""Finds a wire between hosts that is slow but alive, so that no error names it and all ranks of its group are late.

The ranks of a ring move at the speed of its slowest wire. The time for which each wire was busy tells them apart:

              before                     now
    0 -> 1   |##  ##  ##  ##  |         |#   #   #   #   |   busy less, since all wait
    1 -> 2   |##  ##  ##  ##  |         |################|   busy all the time, with as many bytes: the slow one
    2 -> 3   |##  ##  ##  ##  |         |#   #   #   #   |

Bytes over busy seconds, both counted by the kernel (core/recorder/wires.hpp), is the rate of a wire while in use. It
depends on the collectives: wires that share a NIC with others at the time are always slower than those that do not. So
each wire is compared with itself at times when the job had the same pattern, each wire with the same share of the
bytes; and with its peers, those that touch neither of its hosts, since a slowdown of all is not a fault of one wire. A
wire is named if it has less than three quarters of its rate while its peers have kept theirs, and repeatedly: in most
parts of the time. Time in which the receiver had no room does not count. Wires with few bytes have no rate: credits
and short messages wait for round trips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from syntony.base.wording import rate, time
from syntony.collectives.recorder.records import Dump, Wire

WINDOW = 20.0  # length of the examined window in seconds, up to now
PARTS, MOST = 4, 3  # equal parts of the window, and in how many of them a wire must have been slow
APART = 1.5  # earlier reference periods end this many windows ago,
LONGER = 1.3  # and each begins this many times as long ago as it ends
ALIKE = 0.1  # of the bytes may differ between two times with the same pattern
SLOWER = 0.75  # of its rate: the threshold for slow
SHARE = 0.05  # of the time: the least loss that is reported
USED = 0.2  # of the bytes of the most used wire: the least traffic that gives a rate
LEAST = 64 * 1024  # bytes per second: likewise


@dataclass(frozen=True)
class SlowWire:
    """A slow wire from `source` to `destination`, ranks of the job."""

    group: str
    source: int
    destination: int
    hosts: tuple[str, str]
    rate: float  # bytes/s while it is busy
    usual: float  # the rate that it would have if it had kept its rate as its peers have
    lost: float  # seconds for which it was busy longer because of that
    seconds: float  # length of the examined window

    def __str__(self) -> str:
        return (
            f"the wire from rank {self.source} ({self.hosts[0]}) to rank {self.destination} ({self.hosts[1]}) is slow: "
            f"{rate(self.rate)} while it is busy, {rate(self.usual)} before; that costs up to {time(self.lost)}, "
            f"{100 * self.lost / self.seconds:.0f}% of the last {time(self.seconds)}"
        )


@dataclass(frozen=True)
class _Use:
    """The traffic from one rank to another between marks, which are seconds ago, the longest first."""

    bytes: np.ndarray
    busy: np.ndarray  # seconds


def slow_wires(dumps: Sequence[Dump]) -> list[SlowWire]:
    """The slow wires of every group, costliest first."""
    hosts = {dump.rank: dump.host for dump in dumps}
    found = []
    for name, members in dict.fromkeys((group.name, group.members) for dump in dumps for group in dump.groups):
        wires = {
            (dump.rank, members[peer]): (sockets, dump.monotonic)
            for dump in dumps
            for group in dump.groups
            if (group.name, group.members) == (name, members)
            for peer, sockets in _by_peer(group.wires, dump.monotonic).items()
            if members[peer] in hosts
        }
        found += sorted(_slow_in(name, wires, hosts), key=lambda one: -one.lost)
    return found


def _slow_in(
    name: str, wires: Mapping[tuple[int, int], tuple[list[Wire], float]], hosts: Mapping[int, str]
) -> list[SlowWire]:
    now = {ends: _use(*wire, np.linspace(WINDOW, 0.0, PARTS + 1)) for ends, wire in wires.items()}
    most = max((use.bytes.sum() for use in now.values()), default=0.0)
    used = [ends for ends, use in now.items() if use.bytes.sum() >= max(USED * most, LEAST * WINDOW)]
    if len(used) < 2:
        return []
    reach = min(now_at - wire.samples[0].at for ends in used for sockets, now_at in [wires[ends]] for wire in sockets)
    marks = [APART * WINDOW]
    while marks[-1] * LONGER <= reach:
        marks.append(marks[-1] * LONGER)
    if len(marks) < 2:
        return []
    moved = np.array([now[ends].bytes.sum() for ends in used])
    rates = moved / np.maximum([now[ends].busy.sum() for ends in used], 1e-9)
    earlier = [_use(*wires[ends], np.array(marks[::-1])) for ends in used]
    drops = []  # a row per earlier period with this pattern: the part of its rate each wire has kept, beside its peers
    for time_ in range(len(marks) - 1):
        before = np.array([use.bytes[time_] for use in earlier])
        if before.sum() <= 0 or np.abs(before / before.sum() - moved / moved.sum()).sum() / 2 > ALIKE:
            continue
        kept = rates / (np.maximum(before, 1.0) / np.maximum([use.busy[time_] for use in earlier], 1e-9))
        drops.append([kept[place] / _of_peers(kept, place, used, hosts) for place in range(len(used))])
    if not drops:
        return []
    slow = []
    for place, ends in enumerate(used):
        drop = float(np.quantile([row[place] for row in drops], 0.25))
        if drop >= SLOWER:
            continue
        use, usual = now[ends], float(rates[place]) / drop
        late = sum(use.bytes < SLOWER * usual * use.busy)
        lost = float(use.busy.sum() - moved[place] / usual)
        if late >= MOST and lost >= SHARE * WINDOW:
            pair = (hosts[ends[0]], hosts[ends[1]])
            slow.append(SlowWire(name, *ends, pair, float(rates[place]), usual, lost, WINDOW))
    return slow


def _of_peers(kept: np.ndarray, place: int, used: Sequence[tuple[int, int]], hosts: Mapping[int, str]) -> float:
    """The upper median over wires that touch neither of the wire's hosts or, if there are none, over all others.

    At most 1: a wire is no slower because others have recovered.
    """
    ends = {hosts[rank] for rank in used[place]}
    far = [other for other, pair in enumerate(used) if not ends & {hosts[rank] for rank in pair}]
    peers = sorted(kept[other] for other in far or (other for other in range(len(used)) if other != place))
    return min(1.0, float(peers[len(peers) // 2]))


def _by_peer(wires: Sequence[Wire], now: float) -> dict[int, list[Wire]]:
    """The sockets to each peer that existed throughout the window."""
    sockets: dict[int, list[Wire]] = {}
    for wire in wires:
        if wire.samples and wire.samples[0].at <= now - WINDOW and wire.samples[-1].at > now - WINDOW / PARTS:
            sockets.setdefault(wire.peer, []).append(wire)
    return sockets


def _use(sockets: Sequence[Wire], now: float, ago: np.ndarray) -> _Use:
    counted = []
    for wire in sockets:
        at = [one.at for one in wire.samples]
        sums = ([one.bytes for one in wire.samples], [one.busy - one.held for one in wire.samples])
        counted.append([np.diff(np.interp(now - ago, at, each)) for each in sums])
    # Sockets to one peer share its wire, so they count as one that is busy while the busiest is.
    moved, busy = zip(*counted, strict=True)
    return _Use(np.sum(moved, axis=0), np.max(busy, axis=0))
