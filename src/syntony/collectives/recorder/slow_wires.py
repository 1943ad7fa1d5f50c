"""Which wire between hosts is slow, not dead, so that no error names it: all ranks of its group are late alike.

The ranks of a ring move at the speed of its slowest wire. What tells wires apart is how long each was busy:

    0 -> 1   |##  ##  ##  ##  |   busy half of the time
    1 -> 2   |################|   busy all the time, with as many bytes: the slow one
    2 -> 3   |##  ##  ##  ##  |

Bytes over busy seconds, both counted by the kernel (core/recorder/wires.hpp), is the rate of a wire while it is used.
A wire is named if that is well below the rate of its peers, the wires that touch neither of its hosts, and not only
once: in most parts of the time. Time in which the receiver had no room is the receiver's, not the wire's. Wires with
few bytes have no rate: credits and short messages wait for round trips.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from syntony.base.wording import rate, time
from syntony.collectives.recorder.records import Dump, Wire

WINDOW = 20.0  # seconds looked at, up to now
PARTS, MOST = 4, 3  # equal parts of the window, and in how many of them a wire must have been slow
SLOWER = 0.75  # of its peers' rate: what is called slow
SHARE = 0.05  # of the time: what it must cost to be named
USED = 0.2  # of the bytes of the most used wire: what has a rate
LEAST = 64 * 1024  # bytes per second of the same


@dataclass(frozen=True)
class SlowWire:
    """From `source` to `destination`, ranks of the job."""

    group: str
    source: int
    destination: int
    hosts: tuple[str, str]
    rate: float  # bytes/s while it was busy
    usual: float  # of its peers
    lost: float  # seconds in which it was busy longer than a usual wire had been
    seconds: float  # looked at

    def __str__(self) -> str:
        return (
            f"the wire from rank {self.source} ({self.hosts[0]}) to rank {self.destination} ({self.hosts[1]}) is slow: "
            f"{rate(self.rate)} while it is busy, its peers {rate(self.usual)}; that costs up to {time(self.lost)}, "
            f"{100 * self.lost / self.seconds:.0f}% of the last {time(self.seconds)}"
        )


@dataclass(frozen=True)
class _Use:
    """What went over the sockets from one rank to another, in parts of the window, oldest first."""

    bytes: np.ndarray
    busy: np.ndarray  # seconds

    @property
    def rate(self) -> float:
        return float(self.bytes.sum() / max(self.busy.sum(), 1e-9))


def slow_wires(dumps: Sequence[Dump]) -> list[SlowWire]:
    """Of every group, the costliest first."""
    hosts = {dump.rank: dump.host for dump in dumps}
    found = []
    for name, members in dict.fromkeys((group.name, group.members) for dump in dumps for group in dump.groups):
        uses = {
            (dump.rank, members[peer]): use
            for dump in dumps
            for group in dump.groups
            if (group.name, group.members) == (name, members)
            for peer, use in _uses(group.wires, dump.monotonic).items()
            if members[peer] in hosts
        }
        found += sorted(_slow_in(name, uses, hosts), key=lambda one: -one.lost)
    return found


def _slow_in(name: str, uses: Mapping[tuple[int, int], _Use], hosts: Mapping[int, str]) -> list[SlowWire]:
    most = max((use.bytes.sum() for use in uses.values()), default=0)
    used = {ends: use for ends, use in uses.items() if use.bytes.sum() >= max(USED * most, LEAST * WINDOW)}
    slow = []
    for (source, destination), use in used.items():
        ends = {hosts[source], hosts[destination]}
        peers = [other for pair, other in used.items() if not ends & {hosts[rank] for rank in pair}]
        peers = peers or [other for pair, other in used.items() if pair != (source, destination)]
        if len(used) < 3 or not peers:
            continue  # of two, nobody can say which is slow
        usual = sorted(peer.rate for peer in peers)[len(peers) // 2]
        late = sum(use.bytes < SLOWER * usual * use.busy)
        lost = float(use.busy.sum() - use.bytes.sum() / usual)
        if use.rate < SLOWER * usual and late >= MOST and lost >= SHARE * WINDOW:
            pair = (hosts[source], hosts[destination])
            slow.append(SlowWire(name, source, destination, pair, use.rate, usual, lost, WINDOW))
    return slow


def _uses(wires: Sequence[Wire], now: float) -> dict[int, _Use]:
    """By peer, what its sockets carried together in the window; none where it is not known for all of the window."""
    marks = now - np.linspace(WINDOW, 0.0, PARTS + 1)
    uses: dict[int, _Use] = {}
    sockets: dict[int, list[Wire]] = {}
    for wire in wires:
        if wire.samples and wire.samples[0].at <= marks[0] + 1.5 and wire.samples[-1].at > marks[-2]:
            sockets.setdefault(wire.peer, []).append(wire)
    for peer, several in sockets.items():
        counted = []
        for wire in several:
            at = [one.at for one in wire.samples]
            sums = ([one.bytes for one in wire.samples], [one.busy - one.held for one in wire.samples])
            counted.append([np.diff(np.interp(marks, at, each)) for each in sums])
        # Sockets to one peer share its wire at the same time: they are as one that is busy while the busiest is.
        moved, busy = zip(*counted, strict=True)
        uses[peer] = _Use(np.sum(moved, axis=0), np.max(busy, axis=0))
    return uses
