"""Moves: the transfers of a Schedule as a simulation sees them, and the flows made from them.

    transfer 3   needs (rank 0, value 7)        a flow; waits for what brings value 7 to rank 0,
                                                and for its predecessor on the lane to leave
    transfer 9   adds value 7 at rank 1    ┐
    transfer 12  adds value 8 at rank 1    ┴──▶ a sum: a flow without bytes that waits for both;
                                                what needs the sum at rank 1 waits for it

With slices, all of this is repeated for each slice: a relay forwards slice 0 while slice 1 arrives. Every transfer has
equally many, so that large and small chunks end together, and steps are the stages of a pipeline: a lane's turn i is
for slice i of step 0, slice i - 1 of step 1, and so on. No turn waits for a slice that is still steps away, and a long
message moves at the pace of the busiest lane (a modulo schedule whose interval is one slice of everything).

    lane   0.0 | 0.1 | 0.2  2.0 | 0.3  2.1 | 0.4  2.2 | ..      (step.slice; turns between bars)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import distinct, pieces, ragged
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.model.values import Values
from syntony.synth.simulation.flows import Flows, Paths, cut
from syntony.synth.symmetry.aggregation_limits import limits_of

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Moves:
    """Columns, one row per transfer; values by their number in `values`.

    src, need    the sending agent, and the value that it must hold
    dst, result  the receiving agent, and the value that it holds afterwards
    part         the value that arrives there: `result` itself, or an operand of it
    step         int (T,)
    lane         int (T,)    lanes are numbered consecutively
    path         int (T,)    its path: a set of `paths`
    paths        Paths       sets of one path; the last one has no links
    latency      float       of every path, seconds
    capacity     float       bytes/s of the topology's links, followed by the other limits that transfers share: those
                             of switches that add (symmetry/aggregation_limits.py)
    """

    values: Values
    src: Integers
    need: Integers
    dst: Integers
    result: Integers
    part: Integers
    step: Integers
    lane: Integers
    path: Integers
    paths: Paths
    latency: NDArray[np.float64]
    capacity: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.src)


def moves_of(schedule: Schedule) -> Moves:
    """The moves of a whole schedule (one without symmetry)."""
    moved, links = schedule.transfers, schedule.topology.links
    ends = np.stack([moved.src, moved.dst], axis=1)
    limits = limits_of(schedule)
    offset, link = _limited(moved.offset, moved.link, [limit.transfers for limit in limits], len(links))
    lane, first = lanes_of(ends, moved.offset, moved.link)
    path, first = lanes_of(ends, offset, link) if limits else (lane, first)
    hops = np.diff(offset)[first]
    link = pieces(link, offset[first], hops)
    paths = single_paths(hops, link, np.ones(len(link)))
    alphas = np.asarray([link.alpha for link in links] + [0.0] * len(limits))
    return Moves(
        schedule.values,
        moved.src,
        moved.value,
        moved.dst,
        moved.result,
        moved.value,
        moved.step,
        lane,
        path,
        paths,
        path_latency(paths, alphas),
        np.asarray([float(link.bandwidth) for link in links] + [float(limit.rate) for limit in limits]),
    )


def _limited(offset: Integers, link: Integers, limited: list[tuple[int, ...]], links: int) -> tuple[Integers, Integers]:
    """Routes extended by the limits of their transfers, which are numbered like links, after the last link."""
    if not limited:
        return offset, link
    rows = np.asarray([row for transfers in limited for row in transfers], np.int64)
    numbers = links + np.repeat(np.arange(len(limited)), [len(transfers) for transfers in limited])
    owner = np.r_[np.repeat(np.arange(len(offset) - 1), np.diff(offset)), rows]
    return cut(owner, np.r_[link, numbers], len(offset) - 1)


def lanes_of(ends: Integers, offset: Integers, link: Integers) -> tuple[Integers, Integers]:
    """The lane of every transfer, and the first transfer of every lane; equal `ends` rows and routes, equal lanes."""
    first, lane = distinct(np.c_[ends, ragged(offset, link)])
    return lane, first


def single_paths(hops: Integers, link: Integers, weight: NDArray[np.float64]) -> Paths:
    """One set per path, and one without links."""
    offset = np.r_[0, np.cumsum(hops), len(link)].astype(np.int64)
    return Paths(np.arange(len(offset)), offset, link, weight)


def path_latency(paths: Paths, alphas: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of alphas along every path."""
    hops = np.diff(paths.path_offset)
    latency: NDArray[np.float64] = np.bincount(
        np.repeat(np.arange(len(hops)), hops), alphas[paths.link], minlength=len(hops)
    ).astype(float)
    return latency


@dataclass(frozen=True, eq=False)
class MovedFlows:
    """Flows of moves, slice after slice; within a slice, the transfers in their order, then the sums."""

    flows: Flows
    slices: int


def flows_of(moves: Moves, collective: Collective, size: int, slice_bytes: int | None = None) -> MovedFlows:
    """The flows of the moves for `size` bytes; a flow carries at most `slice_bytes` (default: no limit).

    A transfer whose source never holds its value waits for itself: it never starts.
    """
    carried = collective.bytes_of_chunks(size)[moves.values.chunk[moves.need]]
    slices = 1 if slice_bytes is None else max(1, ceil(carried.max(initial=0.0) / slice_bytes))
    waiter, awaited, sums = waits_of(moves, collective)
    each = len(moves) + sums
    bytes_ = np.zeros((slices, each))
    bytes_[:, : len(moves)] = carried / slices
    latency = np.zeros((slices, each))
    latency[:, : len(moves)] = moves.latency[moves.lane]
    chosen = np.full((slices, each), len(moves.latency) - 1)
    chosen[:, : len(moves)] = moves.path
    offset, awaited = cut(waiter, awaited, each)
    base = np.arange(slices)[:, None] * each
    return MovedFlows(
        Flows.make(
            moves.paths,
            moves.capacity,
            bytes_.reshape(-1),
            latency=latency.reshape(-1),
            set=chosen.reshape(-1),
            after=(
                np.r_[0, (np.arange(slices)[:, None] * offset[-1] + offset[1:]).reshape(-1)],
                (base + awaited).reshape(-1),
            ),
            after_left=_turns(moves, slices, each),
        ),
        slices,
    )


def _turns(moves: Moves, slices: int, each: int) -> tuple[Integers, Integers]:
    """Which flow must have left before each begins, as an offset column and a flat one; a slice has `each` of them."""
    by_step = np.lexsort((moves.step, moves.lane))
    lane, step = moves.lane[by_step].astype(np.int64), moves.step[by_step].astype(np.int64)
    turns = slices + int(step.max(initial=0))
    # Of one turn, the last slice comes first: it is at the earliest step.
    piece = np.arange(slices)[::-1, None]
    turn = (lane * turns + step + piece).reshape(-1)
    order = np.argsort(turn, kind="stable")
    flow, lane = (piece * each + by_step).reshape(-1)[order], turn[order] // turns
    follows = lane[1:] == lane[:-1]
    before = np.full(slices * each, -1)
    before[flow[1:][follows]] = flow[:-1][follows]
    waits = before >= 0
    return np.r_[0, np.cumsum(waits)], before[waits]


def waits_of(moves: Moves, collective: Collective) -> tuple[Integers, Integers, int]:
    """Pairs: who waits for whose arrival; and the number of sums. Sum i has the number len(moves) + i."""
    values, count = moves.values, len(moves)
    reduces = moves.result != moves.part
    adding = np.flatnonzero(reduces)
    keys = _Keys(len(values))
    sums, sum_of = np.unique(keys.of(moves.dst[adding], moves.result[adding]), return_inverse=True)

    copies = np.flatnonzero(~reduces)
    copies = copies[np.lexsort((copies, moves.step[copies]))]
    providers = _Providers(
        keys,
        np.r_[keys.of(moves.dst[copies], moves.result[copies]), sums],
        np.r_[copies, count + np.arange(len(sums))],
        _begins(values, collective),
        values.rank,
    )

    # Operands of every sum: those added on arrival, and those already there.
    agent, total = keys.parts(sums)
    operands = np.diff(values.offset)[total]
    owner = np.repeat(np.arange(len(sums)), operands)
    operand = pieces(values.operand, values.offset[total], operands)
    lies_there = ~np.isin(keys.of(owner, operand), keys.of(sum_of, moves.part[adding]))
    owner, operand = owner[lies_there], operand[lies_there]

    for_needs = providers.waits(np.arange(count), moves.src, moves.need)
    for_operands = providers.waits(count + owner, agent[owner], operand)
    waiter = np.r_[for_needs[0], count + sum_of, for_operands[0]]
    return waiter, np.r_[for_needs[1], adding, for_operands[1]], len(sums)


@dataclass(frozen=True)
class _Keys:
    """Pairs of a number and a value as one number."""

    values: int

    def of(self, number: Integers, value: Integers) -> NDArray[np.int64]:
        return number.astype(np.int64) * max(1, self.values) + value

    def parts(self, key: Integers) -> tuple[Integers, Integers]:
        return np.divmod(key, max(1, self.values))


class _Providers:
    """The first move or sum that brings a value to an agent.

    keys     (agent, value) of what `bringer` brings, in order of precedence
    begins   per value: whether its rank has it from the start
    """

    def __init__(
        self, keys: _Keys, brought: Integers, bringer: Integers, begins: NDArray[np.bool_], rank: Integers
    ) -> None:
        self._keys, self._begins, self._rank = keys, begins, rank
        self._brought, first = np.unique(brought, return_index=True)
        self._bringer = bringer[first]

    def waits(self, waiter: Integers, agent: Integers, value: Integers) -> tuple[Integers, Integers]:
        """Pairs: who waits for whom, if `waiter` needs the value at the agent.

        Values present from the start need no wait. For a value that never arrives, the waiter waits for itself.
        """
        needed = ~(self._begins[value] & (self._rank[value] == agent))
        waiter, agent, value = waiter[needed], agent[needed], value[needed]
        return waiter, self._first(agent, value, waiter)

    def _first(self, agent: Integers, value: Integers, otherwise: Integers) -> Integers:
        if not len(self._brought):
            return otherwise
        key = self._keys.of(agent, value)
        at = np.minimum(np.searchsorted(self._brought, key), len(self._brought) - 1)
        return np.where(self._brought[at] == key, self._bringer[at], otherwise)


def _begins(values: Values, collective: Collective) -> NDArray[np.bool_]:
    """Marks the contributions that their rank holds from the start."""
    own = values.rank >= 0
    if collective.combining:
        return own
    starter = np.asarray([min(collective.pre(chunk)) for chunk in range(len(collective.chunks))])
    begins: NDArray[np.bool_] = own & (starter[values.chunk] == values.rank)
    return begins
