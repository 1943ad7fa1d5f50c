"""Connections: between which agents, lanes and over which links the messages of a Program go.

A FIFO is one connection, fed by one lane and drained by one. The one-sided instructions of one lane towards one peer on
one channel are a connection too: its feeder writes, or reads what the other end holds; nobody drains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from synth.checker.resolved import Resolved
from synth.network import Network
from synth.program import ONE_SIDED, Opcode
from synth.routes import routes_of
from topologies.command import UserError


class Kind(IntEnum):
    """How a connection is used; `enum class ConnectionKind` of csrc/core/simulator/lanes.hpp."""

    fifo = 0
    write = 1
    read = 2


_ONE_SIDED = {Opcode.peer_write: Kind.write, Opcode.peer_read: Kind.read}
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Connections:
    """Connections by number, and per instruction (row) the numbers of those that it uses; -1 for none.

    kind, feeder, drainer  per connection: its use; the lanes that start its messages and take them (-1: nobody)
    out, into              per row: the connection that it starts a message on, and takes one from
    route                  per connection: its number in `routes`
    """

    kind: Integers
    feeder: Integers
    drainer: Integers
    out: Integers
    into: Integers
    route: Integers
    routes: list[tuple[int, ...]]

    @staticmethod
    def of(code: Resolved, network: Network) -> Connections:
        """The connections of a Program on a network. Raises UserError where no path joins two ranks that talk."""
        out = code.out.copy()
        ends, kinds = list(code.connections), [Kind.fifo] * len(code.connections)
        one_sided: dict[tuple[int, int, int, Kind], int] = {}
        columns = code.lane, code.agent, code.program.field("send_peer"), code.program.field("channel"), code.opcode
        for row in np.flatnonzero(ONE_SIDED[code.opcode]).tolist():
            lane, agent, peer, channel, opcode = (int(column[row]) for column in columns)
            use = _ONE_SIDED[Opcode(opcode)]
            out[row] = one_sided.setdefault((lane, peer, channel, use), len(ends))
            if out[row] == len(ends):
                ends.append((*((agent, peer) if use is Kind.write else (peer, agent)), channel))
                kinds.append(use)
        feeder, drainer, speaker = (np.full(len(ends), -1, np.int64) for _ in range(3))
        starts, takes = np.flatnonzero(out >= 0), np.flatnonzero(code.into >= 0)
        feeder[out[starts]] = code.lane[starts]
        drainer[code.into[takes]] = code.lane[takes]
        speaker[out[starts]] = starts
        route, routes = _routes(code, network, ends, speaker.tolist())
        return Connections(np.asarray(kinds, np.int64), feeder, drainer, out, code.into, route, routes)


def _routes(
    code: Resolved, network: Network, ends: list[tuple[int, int, int]], speaker: list[int]
) -> tuple[Integers, list[tuple[int, ...]]]:
    between: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for found in routes_of(network).routes:
        between.setdefault((found.src, found.dst), []).append(found.links)
    numbers: dict[tuple[int, ...], int] = {}
    route = []
    for (src, dst, channel), row in zip(ends, speaker, strict=True):
        choices = between.get((src, dst))
        if choices is None:
            raise UserError(
                f"{code.program.where(row)}: moves data from rank {src} to rank {dst}, but in {network.topology.name} "
                "every path between them passes through other ranks"
            )
        route.append(numbers.setdefault(choices[channel % len(choices)], len(numbers)))
    return np.asarray(route, np.int64), list(numbers)
