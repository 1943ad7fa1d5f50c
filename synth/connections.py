"""Connections: between which agents, lanes and over which links the messages of a Program go.

A FIFO is one connection, fed by one lane and drained by one. The one-sided instructions of one lane towards one peer on
one channel are a connection too: its feeder writes, or reads what the other end holds; nobody drains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from synth.checker.resolved import Resolved
from synth.network import Network
from synth.program import Opcode
from synth.routes import routes_of
from topologies.command import UserError


class Kind(Enum):
    """How a connection is used."""

    fifo = 0
    write = 1
    read = 2


_ONE_SIDED = {Opcode.peer_write: Kind.write, Opcode.peer_read: Kind.read}


@dataclass(frozen=True)
class Connections:
    """Connections by number, and per instruction (row) the numbers of those that it uses; -1 for none.

    kind, feeder, drainer  per connection: its use; the lanes that start its messages and take them (-1: nobody)
    out, into              per row: the connection that it starts a message on, and takes one from
    route                  per connection: its number in `routes`
    """

    kind: list[Kind]
    feeder: list[int]
    drainer: list[int]
    out: list[int]
    into: list[int]
    route: list[int]
    routes: list[tuple[int, ...]]

    @staticmethod
    def of(code: Resolved, network: Network) -> Connections:
        """The connections of a Program on a network. Raises UserError where no path joins two ranks that talk."""
        out, into = code.out.tolist(), code.into.tolist()
        ends, kind = list(code.connections), [Kind.fifo] * len(code.connections)
        feeder, drainer = [-1] * len(ends), [-1] * len(ends)
        speaker = [-1] * len(ends)  # an instruction that uses it, for people
        peers, channels = code.program.field("send_peer").tolist(), code.program.field("channel").tolist()
        one_sided: dict[tuple[int, int, int, Kind], int] = {}
        lanes, agents = code.lane.tolist(), code.agent.tolist()
        for row, opcode in enumerate(code.opcode.tolist()):
            if opcode in _ONE_SIDED:
                use = _ONE_SIDED[opcode]
                out[row] = one_sided.setdefault((lanes[row], peers[row], channels[row], use), len(ends))
                if out[row] == len(ends):
                    pair = (agents[row], peers[row]) if use is Kind.write else (peers[row], agents[row])
                    ends.append((*pair, channels[row]))
                    kind.append(use)
                    feeder.append(-1)
                    drainer.append(-1)
                    speaker.append(-1)
            if out[row] >= 0:
                feeder[out[row]] = lanes[row]
                speaker[out[row]] = row
            if into[row] >= 0:
                drainer[into[row]] = lanes[row]
        route, routes = _routes(code, network, ends, speaker)
        return Connections(kind, feeder, drainer, out, into, route, routes)


def _routes(
    code: Resolved, network: Network, ends: list[tuple[int, int, int]], speaker: list[int]
) -> tuple[list[int], list[tuple[int, ...]]]:
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
    return route, list(numbers)
