"""Schedule: what moves, over which links, in which order.

A transfer moves one *value* (model/values.py) between agents over a *route*, a sequence of links with switches and NICs
between them, never ranks.

    transfer 7:  value 3    rank 0 ──link 2──▶ switch 8 ──link 19──▶ rank 5    step 1    result 9

Afterwards the destination holds `result`:

- `result == value`: a copy. The destination now holds the value.
- `result != value`: a reduction. The value is one operand of the sum `result`. The destination holds the sum once every
  operand has arrived by such a transfer or is already held there. The moved value itself is not kept.

A reduction with `src == dst` and an empty route is local: it consumes a value that the rank holds.

Steps define an order; they are not barriers. Transfers with the same source, destination and route form a *link queue*,
ordered by step, then row. A transfer starts as soon as its source holds its value and its predecessor in the queue has
left. Its source must get the value through transfers of smaller steps only, so executing step by step is also correct.

Agents are the ranks of the collective, 0..n-1, and the switches that copy or add: n+k is the topology's k-th node that
is `able`. Routes are links of the topology; `Schedule.node_of` gives the node of an agent (rank r of the collective is
at node `collective.members[r]`). A switch at an end of a transfer processes the value:

- it adds (if it `reduces`): every operand of the sum arrives by a transfer, in `number_format`;
- it copies (if it `multicasts`): several transfers carry a value that it holds.

        rank 0 ──0──▶ ┐              ┌──2──▶ rank 0
                      switch, 2 = 0 + 1
        rank 1 ──1──▶ ┘              └──2──▶ rank 1

A switch keeps a sum in one of its slots from the step in which the first operand arrives until the step in which the
sum leaves for the last time. Its slots limit the number of sums at once (topologies/aggregator.py). A route does not
pass through a switch that is one of its ends; the other switches on it only forward.

Symmetric schedules are stored as representatives: if `symmetry` is set, `transfers` holds at least one member of each
orbit (and `values` those that they name). `expand` (symmetry/groups.py) gives the whole schedule; code that reads
columns calls it first.
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
    """One generator of a schedule's symmetry group: permutations of the topology's nodes and the chunks."""

    nodes: tuple[int, ...]
    chunks: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """A schedule, the engine that made it, and what is known about its quality.

    rounds    int32 (steps,) or empty. Number of rounds of step s if steps are barriers; one round is the time that a
              link of `round_bandwidth(topology)` needs for a chunk of weight 1. Empty: the engine does not use rounds
    bounds    limits that no schedule can beat, or None if not computed
    proof     what was proven about optimality, in words; empty if nothing was
    symmetry  generators, if `values` and `transfers` are only representatives
    number_format  the format in which switches add (topologies/aggregator.py); empty if no switch adds, or only
              switches without limits
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
        """The topology's node of the agent."""
        return self.agents[agent]

    def name_of(self, agent: int) -> str:
        """The agent's name in messages: `rank 3`, or the switch's own name."""
        return f"rank {agent}" if agent < self.collective.ranks else self.topology.nodes[self.agents[agent]].name

    @property
    def in_network(self) -> bool:
        """Whether some switch is an agent of the schedule, that is, adds or copies."""
        most = max(self.transfers.src.max(initial=0), self.transfers.dst.max(initial=0))
        return bool(most >= self.collective.ranks)

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def steps(self) -> int:
        """The number of steps."""
        return int(self.transfers.step.max(initial=-1)) + 1
