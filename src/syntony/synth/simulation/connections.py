"""Connections: the agents, lanes and links between which the messages of a Program go.

A FIFO is a connection, fed by one lane and drained by one. The one-sided instructions of one lane towards one peer on
one channel are also a connection: its feeder writes to, or reads from, the other end; no lane drains it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.base.rows import ascending, first_uses, pieces
from syntony.synth.model.instructions import ONE_SIDED, Opcode
from syntony.synth.model.network import Network
from syntony.synth.model.references import References
from syntony.synth.model.routes import routes_between
from syntony.synth.simulation.flows import PathPolicy, Paths
from syntony.synth.simulation.sockets import Sockets


class Kind(IntEnum):
    """How a connection is used; `enum class ConnectionKind` of csrc/solve/simulate/sim_program.hpp."""

    fifo = 0
    write = 1
    read = 2


_ONE_SIDED = {Opcode.peer_write: Kind.write, Opcode.peer_read: Kind.read}
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Ways:
    """Explicit paths between ranks, chosen as a network's switches choose them.

    places   sources and destinations of flows, and the index of each within its connection -> a set of paths for each
    policy   how a message chooses among the paths of its set
    flows    the number of flows over which a message is split into equal parts
    """

    places: Callable[[Integers, Integers, Integers], Paths]
    policy: PathPolicy
    flows: int = 1


@dataclass(frozen=True, eq=False)
class Connections:
    """Connections by number, and per instruction (row) the numbers of those that it uses; -1 for none.

    kind, feeder, drainer  per connection: its use; the lanes that start and take its messages (-1: none)
    out, into              per row: the connection that it starts a message on, and the one that it takes one from
    flow_offset, flow      per connection: its flows, which its messages use in turn or at once
    route                  per flow: its set of `paths`
    """

    kind: Integers
    feeder: Integers
    drainer: Integers
    out: Integers
    into: Integers
    flow_offset: Integers
    flow: Integers
    route: Integers
    paths: Paths

    @staticmethod
    def of(code: References, network: Network, ways: Sockets | Ways | None = None) -> Connections:
        """The connections of a Program on a network.

        By default, each is one flow on a route with the fewest links. Raises UserError if no path joins two ranks that
        communicate.
        """
        out, fifos = code.out.copy(), len(code.connections)
        one_sided: dict[tuple[int, int, int, Kind], int] = {}
        more: list[tuple[int, int, int]] = []
        columns = code.lane, code.agent, code.program.field("send_peer"), code.program.field("channel"), code.opcode
        for row in np.flatnonzero(ONE_SIDED[code.opcode]).tolist():
            lane, agent, peer, channel, opcode = (int(column[row]) for column in columns)
            use = _ONE_SIDED[Opcode(opcode)]
            out[row] = one_sided.setdefault((lane, peer, channel, use), fifos + len(more))
            if out[row] == fifos + len(more):
                more.append((*((agent, peer) if use is Kind.write else (peer, agent)), channel))
        ends = np.concatenate([code.connections, np.asarray(more, np.int64).reshape(-1, 3)])
        kinds = np.r_[np.full(fifos, Kind.fifo), np.asarray([use for *_, use in one_sided], np.int64)]
        feeder, drainer, speaker = (np.full(len(ends), -1, np.int64) for _ in range(3))
        starts, takes = np.flatnonzero(out >= 0), np.flatnonzero(code.into >= 0)
        feeder[out[starts]] = code.lane[starts]
        drainer[code.into[takes]] = code.lane[takes]
        speaker[out[starts]] = starts
        if isinstance(ways, Sockets):
            found = _socket_flows(code, network, ways, ends, speaker)
        elif ways is not None:
            found = _chosen_flows(ways, ends)
        else:
            found = _routes(code, network, ends, speaker)
        return Connections(kinds, feeder, drainer, out, code.into, *found)

    def carried(self, size: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bytes over every path if each row starts `size` bytes: equal parts over the flows of a connection, and over
        the paths of a set."""
        sends = np.flatnonzero(self.out >= 0)
        per_connection = np.bincount(self.out[sends], size[sends], minlength=len(self.kind))
        flows = np.diff(self.flow_offset)
        paths = np.diff(self.paths.set_offset)
        per_set = np.bincount(
            self.route[self.flow], np.repeat(per_connection / flows, flows), minlength=len(paths)
        ).astype(float)
        found: NDArray[np.float64] = np.repeat(per_set / paths, paths)
        return found


_Flows = tuple[Integers, Integers, Integers, Paths]
"""The last four columns of Connections."""


def _chosen_flows(ways: Ways, ends: Integers) -> _Flows:
    src, dst, _ = ends.repeat(ways.flows, axis=0).T
    number = np.tile(np.arange(ways.flows), len(ends))
    flow = np.arange(len(number))
    return np.arange(len(ends) + 1) * ways.flows, flow, flow, ways.places(src, dst, number)


def _socket_flows(code: References, network: Network, sockets: Sockets, ends: Integers, speaker: Integers) -> _Flows:
    routes: list[tuple[int, ...]] = []
    flows = []
    for (src, dst, channel), row in zip(ends.tolist(), speaker.tolist(), strict=True):
        ways = sockets.ways.get((src, dst), ())
        if not ways:
            raise _unjoined(code, network, row, src, dst, "no socket joins them")
        flows.append([len(routes) + (turn + channel) % len(ways) for turn in range(len(ways))])
        routes += ways
    offset = np.cumsum([0, *map(len, flows)])
    flow = np.asarray([number for found in flows for number in found], np.int64)
    return offset, flow, np.arange(len(routes)), Paths.of([[route] for route in routes])


def _unjoined(code: References, network: Network, row: int, src: int, dst: int, why: str) -> UserError:
    return UserError(
        f"{code.program.where(row)}: moves data from rank {src} to rank {dst}, but in {network.topology.name} {why}"
    )


def _routes(code: References, network: Network, ends: Integers, speaker: Integers) -> _Flows:
    """Each connection takes one of its pair's routes, channels in turn; routes are numbered by first use."""
    ranks, (src, dst, channel) = network.collective.ranks, ends.T
    keys = ascending(src * ranks + dst)
    pair = np.searchsorted(keys, src * ranks + dst)
    found = routes_between(network, keys // ranks, keys % ranks)
    choices = np.diff(found.first)[pair]
    if not choices.all():
        lost = int(np.argmin(choices))
        why = "every path between them passes through other ranks"
        raise _unjoined(code, network, int(speaker[lost]), int(src[lost]), int(dst[lost]), why)
    route = found.first[pair] + channel % choices
    first = first_uses(route, len(found.offset) - 1)
    used = np.flatnonzero(first >= 0)
    used = used[np.argsort(first[used])]
    number = np.full(len(first), -1, np.int64)
    number[used] = np.arange(len(used))
    lengths = np.diff(found.offset)[used]
    links = pieces(found.link, found.offset[used], lengths)
    offset = np.arange(len(ends) + 1)
    return offset, offset[:-1], number[route], Paths.single(np.r_[0, np.cumsum(lengths)], links)
