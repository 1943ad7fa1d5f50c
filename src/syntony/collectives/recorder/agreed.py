"""What the ranks of a group find out together about their wires, while the job runs.

    each rank   the history of its own wires ──gather──► rank 0: slow_wires ──broadcast──► all: the same sentence

`syntony trace --now` asks from outside; here the job asks, at a moment that its ranks agree on, and can act.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from syntony.collectives.recorder.records import Dump, GroupRecord, Wire, WireSample, parse_own
from syntony.collectives.recorder.slow_wires import SlowWire, slow_wires
from syntony.collectives.verbs import Verbs


def agreed_slow_wires(group: Verbs) -> list[SlowWire]:
    """The wires between hosts that have become slow, the same on all ranks. Collective."""
    everybody = _gathered(group, _to_bytes(parse_own(group._core.record())))
    found = slow_wires([_from_bytes(blob) for blob in everybody]) if group.rank == 0 else []
    told = json.dumps([asdict(wire) for wire in found]).encode()
    size = np.array([len(told)])
    group.broadcast(size)
    text = np.frombuffer(told, np.uint8).copy() if group.rank == 0 else np.empty(size[0], np.uint8)
    group.broadcast(text)
    return [SlowWire(**{**row, "hosts": tuple(row["hosts"])}) for row in json.loads(text.tobytes())]


def agreed_rails(group: Verbs) -> list[float]:
    """By rank: the share of its sockets that it has left, towards the rank to which that is the largest. Collective.

    A host whose network card has failed has lost as much towards all; the others only towards it.
    """
    wires = parse_own(group._core.record()).groups[0].wires
    peers = {wire.peer for wire in wires}
    left = [[not wire.lost for wire in wires if wire.peer == peer] for peer in peers]
    share = max((sum(open_) / len(open_) for open_ in left), default=1.0)
    shares = np.empty(group.size)
    group.all_gather(np.array([share]), shares)
    return [float(one) for one in shares]


def _gathered(group: Verbs, mine: bytes) -> list[bytes]:
    """On rank 0 all ranks' bytes, elsewhere none."""
    sizes = np.empty(group.size, np.int64)
    group.all_gather(np.array([len(mine)]), sizes)
    counts = sizes.tolist()
    target = np.empty(sum(counts), np.uint8) if group.rank == 0 else None
    group.gather(np.frombuffer(mine, np.uint8), target, counts=counts)
    return [part.tobytes() for part in np.split(target, np.cumsum(counts)[:-1])] if target is not None else []


def _to_bytes(dump: Dump) -> bytes:
    """A dump without its operations."""
    one = dump.groups[0]
    wires = [[wire.peer, wire.flow, [list(asdict(sample).values()) for sample in wire.samples]] for wire in one.wires]
    return json.dumps([dump.rank, dump.host, dump.monotonic, one.name, one.members, wires]).encode()


def _from_bytes(blob: bytes) -> Dump:
    rank, host, monotonic, name, members, wires = json.loads(blob)
    record = GroupRecord(name, members.index(rank), tuple(members), 0, 0, "", 0.0, tuple(map(_wire, wires)))
    return Dump(rank, host, 0, monotonic, 0.0, (record,), ())


def _wire(row: Sequence[Any]) -> Wire:
    peer, flow, samples = row
    return Wire(peer, flow, tuple(WireSample(*sample) for sample in samples))
