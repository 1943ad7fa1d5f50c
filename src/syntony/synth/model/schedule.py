"""Schedule: what moves, over which links, in which order.

A transfer moves one *value* (model/values.py) from an agent to an agent over a *route*, the links it takes one after
another; between links of a route lie switches and NICs, never ranks.

    transfer 7:  value 3    rank 0 ──link 2──▶ switch 8 ──link 19──▶ rank 5    step 1    result 9

What the destination holds afterwards is `result`:

- `result == value`: a copy. The destination now holds the value.
- `result != value`: a reduction. The value is one operand of the sum `result`; the destination holds the sum once every
  operand has arrived by such a transfer or is held there already. The moved value itself is not kept.

A reduction with `src == dst` and an empty route is local: it spends a value that the rank holds.

Steps order, they are no barriers. Transfers of one source, destination and route form a *link queue*, by step, then
row; a transfer starts as soon as its source holds its value and its predecessor in the queue has left. A value must be
held at its source through transfers of smaller steps only, so executing step by step is always right too.

Agents are the ranks of the collective, 0..n-1, and the switches that copy or add: n+k is the topology's k-th node that
is `able`. Routes are links of the topology; `Schedule.node_of` says where an agent lives (rank r of the collective at
node `collective.members[r]`). A switch that is an end of a transfer does something with the value:

- it adds (if it `reduces`): every operand of the sum arrives by a transfer, in `number_format`;
- it copies (if it `multicasts`): a value that it holds leaves by several transfers.

        rank 0 ──0──▶ ┐              ┌──2──▶ rank 0
                      switch, 2 = 0 + 1
        rank 1 ──1──▶ ┘              └──2──▶ rank 1

A switch keeps a sum in one of its slots from the step in which the first operand comes until the step in which the sum
leaves for the last time, so many sums at once are too many for it (topologies/aggregator.py). A route does not pass
through a switch that is one of its ends: each of its other switches only forwards.

Symmetric schedules are stored as representatives: with `symmetry` set, `transfers` holds at least one member of each
orbit (and `values` what they name); `expand` (symmetry/groups.py) gives the whole schedule, and every reader of columns
starts with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from syntony.base.notebook import html_of
from syntony.synth.model.bound import Bounds
from syntony.synth.model.collective import Collective, int_column
from syntony.synth.model.values import Values
from syntony.topologies.topology import Topology


@dataclass(frozen=True)
class Transfer:
    """One row of `Transfers`, for reading and building."""

    value: int
    result: int
    src: int
    dst: int
    step: int
    route: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Transfers:
    """Columns, one row per transfer.

    value, result  int32 (T,)    what moves; what the destination holds afterwards
    src, dst       int32 (T,)    agents: ranks of the collective, then able switches
    step           int32 (T,)    0, 1, ..
    offset         int64 (T+1,)  transfer t takes link[offset[t]:offset[t+1]]
    link           int32         routes, flat
    """

    value: NDArray[np.signedinteger]
    result: NDArray[np.signedinteger]
    src: NDArray[np.signedinteger]
    dst: NDArray[np.signedinteger]
    step: NDArray[np.signedinteger]
    offset: NDArray[np.signedinteger]
    link: NDArray[np.signedinteger]

    def __post_init__(self) -> None:
        for name in TRANSFER_COLUMNS:
            dtype = np.int64 if name == "offset" else np.int32
            object.__setattr__(self, name, int_column(getattr(self, name), dtype))

    @staticmethod
    def of(rows: Iterable[Transfer]) -> Transfers:
        """Columns of the rows, in their order."""
        rows = list(rows)
        lengths = [len(row.route) for row in rows]
        return Transfers(
            np.asarray([row.value for row in rows], np.int32),
            np.asarray([row.result for row in rows], np.int32),
            np.asarray([row.src for row in rows], np.int32),
            np.asarray([row.dst for row in rows], np.int32),
            np.asarray([row.step for row in rows], np.int32),
            np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))),
            np.asarray([link for row in rows for link in row.route], np.int32),
        )

    def __len__(self) -> int:
        return len(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transfers):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in TRANSFER_COLUMNS)

    __hash__ = None  # type: ignore[assignment]

    def columns(self) -> dict[str, NDArray[np.signedinteger]]:
        """The columns by name, as files store them."""
        return {name: getattr(self, name) for name in TRANSFER_COLUMNS}

    @property
    def reduces(self) -> NDArray[np.bool_]:
        """Which transfers are reductions."""
        moved: NDArray[np.bool_] = self.value != self.result
        return moved

    def route(self, transfer: int) -> tuple[int, ...]:
        """The links that the transfer takes."""
        return tuple(self.link[self.offset[transfer] : self.offset[transfer + 1]].tolist())

    def rows(self) -> list[Transfer]:
        """All transfers as rows."""
        columns = (self.value.tolist(), self.result.tolist(), self.src.tolist(), self.dst.tolist(), self.step.tolist())
        return [
            Transfer(value, result, src, dst, step, self.route(position))
            for position, (value, result, src, dst, step) in enumerate(zip(*columns, strict=True))
        ]


TRANSFER_COLUMNS = ("value", "result", "src", "dst", "step", "offset", "link")


@dataclass(frozen=True)
class Generator:
    """One generator of a schedule's symmetry group: where nodes of the topology and chunks of the collective go."""

    nodes: tuple[int, ...]
    chunks: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """A schedule, the engine that made it, and what is known about how good it is.

    rounds    int32 (steps,) or empty. Rounds that step s lasts when steps are barriers; one round is the time that a
              link of `round_bandwidth(topology)` needs for a chunk of weight 1. Empty: the engine counts no rounds
    bounds    what no schedule can beat, or None when not computed
    proof     what was proven about optimality, in words; empty when nothing was
    symmetry  generators, when `values` and `transfers` are representatives only
    number_format  what switches add (topologies/aggregator.py); empty where no switch adds, or only such as have no
              limits
    """

    topology: Topology
    collective: Collective
    values: Values
    transfers: Transfers
    rounds: NDArray[np.signedinteger] = field(default_factory=lambda: np.zeros(0, np.int32))
    engine: str = ""
    bounds: Bounds | None = None
    proof: str = ""
    symmetry: tuple[Generator, ...] = ()
    number_format: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", int_column(self.rounds))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return (
            self.topology == other.topology
            and self.collective == other.collective
            and self.values == other.values
            and self.transfers == other.transfers
            and np.array_equal(self.rounds, other.rounds)
            and (self.engine, self.bounds, self.proof) == (other.engine, other.bounds, other.proof)
            and (self.symmetry, self.number_format) == (other.symmetry, other.number_format)
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def agents(self) -> tuple[int, ...]:
        """The node of every agent: the collective's members, then the topology's able switches."""
        return self.collective.members + tuple(node.id for node in self.topology.nodes if node.able)

    def node_of(self, agent: int) -> int:
        """The topology's node where the agent lives."""
        return self.agents[agent]

    def name_of(self, agent: int) -> str:
        """What messages call the agent: `rank 3`, or the switch's own name."""
        return f"rank {agent}" if agent < self.collective.ranks else self.topology.nodes[self.agents[agent]].name

    @property
    def in_network(self) -> bool:
        """Whether some switch is an agent of the schedule: adds, or copies."""
        most = max(self.transfers.src.max(initial=0), self.transfers.dst.max(initial=0))
        return bool(most >= self.collective.ranks)

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def steps(self) -> int:
        """The number of steps."""
        return int(self.transfers.step.max(initial=-1)) + 1
