r"""StagePlan: an all_to_all_v among boxes as stages in which every box sends to one box, planned online.

    bytes that the boxes have        stage 0        stage 1
    for one another                  A ══▶ B        A ══▶ C          each NIC of a box carries the same
         B   C                       C ══▶ A        B ══▶ A
    A  [ 9   4 ]        ──▶
    B  [ 4   . ]                     before its stage, a byte moves to the rank that sends it, inside its box;
    C  [ 9   . ]                     after it, from the rank that received it, inside the other box

The stages are Birkhoff's decomposition of the boxes' matrix, so the busiest box never idles: the time of all stages is
the bound, its bytes over the bandwidth of its NICs (Lei et al., FAST, arXiv 2505.09764). Planner:
csrc/solve/graph/exchange_plan.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from syntony import _solve
from syntony.base.command import UserError
from syntony.synth.symmetry.levels import Levels
from syntony.synth.traffic.messages import Messages
from syntony.topologies.hosts import Host
from syntony.topologies.topology import Topology

Integers = NDArray[np.signedinteger]
Key = tuple[Integers, ...]


class WrongPlanError(AssertionError):
    """A plan that does not deliver every byte once, or whose stages are not permutations."""


@dataclass(frozen=True, eq=False)
class StagePlan:
    """Columns, one row per piece: bytes offset .. offset + bytes of the block of `source` for `target`.

    box     (ranks,)   the box of each rank
    length  (stages,)  most bytes that a box sends in each stage; rounding to whole bytes may add one per rank
    stage   (P,)       when it crosses from box to box; -1 for a piece that stays in its box
    source, out, into, target  the ranks on its way; often some of them are the same
    """

    box: Integers
    length: Integers
    stage: Integers
    source: Integers
    out: Integers
    into: Integers
    target: Integers
    offset: Integers
    bytes: Integers


def stage_plan(levels: Levels, matrix: Integers) -> StagePlan:
    """The plan for `matrix[s, d]` bytes from rank s to rank d; what a rank has for itself does not move.

    `levels` are two: boxes, and the ranks in them. Raises UserError for a matrix of another shape, and for
    negative numbers.
    """
    boxes, per_box = levels.shape
    ranks = boxes * per_box
    if matrix.shape != (ranks, ranks):
        raise UserError(f"the matrix of bytes has shape {matrix.shape}; there are {ranks} ranks")
    order = levels.grid.reshape(-1)
    in_order = bool((order == np.arange(ranks)).all())
    sent = np.array(matrix if in_order else matrix[np.ix_(order, order)], np.int64, order="C")
    np.fill_diagonal(sent, 0)
    try:
        found = _solve.plan_exchange(boxes, per_box, sent.reshape(-1))
    except ValueError as error:
        raise UserError(f"the matrix of bytes cannot be planned: {error}") from None
    hops: list[Integers] = [found.source, found.out, found.into, found.target]
    source, out, into, target = hops if in_order else [order[hop] for hop in hops]
    box = levels.coordinates[:, 0]
    return StagePlan(box, found.length, found.stage, source, out, into, target, found.offset, found.bytes)


def check(plan: StagePlan, matrix: Integers) -> None:
    """Raises WrongPlanError unless every byte is delivered once, over ranks of the right boxes, every stage is a
    permutation of boxes, and all stages together are as long as the busiest box needs."""
    moved = np.array(matrix, np.int64)
    np.fill_diagonal(moved, 0)
    order = np.lexsort((plan.offset, plan.target, plan.source))
    src, dst, begin, size = (column[order] for column in (plan.source, plan.target, plan.offset, plan.bytes))
    same = (src[1:] == src[:-1]) & (dst[1:] == dst[:-1])
    expected = np.zeros(len(order), np.int64)
    expected[1:] = np.where(same, (begin + size)[:-1], 0)
    if (size < 1).any() or (begin != expected).any():
        raise WrongPlanError("some bytes of a block are in two pieces, or in none")
    total = np.zeros_like(moved)
    np.add.at(total, (src, dst), size)
    if (total != moved).any():
        raise WrongPlanError("a block has more or fewer bytes in its pieces than in the matrix")
    box, staged = plan.box, plan.stage >= 0
    if (box[plan.source] != box[plan.out]).any() or (box[plan.into] != box[plan.target]).any():
        raise WrongPlanError("a piece leaves its box before its stage, or after it")
    inside = ~staged
    if ((box[plan.source] != box[plan.target]) != staged).any() or (
        (plan.out != plan.source) | (plan.into != plan.target)
    )[inside].any():
        raise WrongPlanError("a piece within a box crosses from box to box, or the other way round")
    boxes, stages = int(box.max()) + 1, len(plan.length)
    crossing = np.zeros((stages, boxes, boxes), np.int64)
    np.add.at(crossing, (plan.stage[staged], box[plan.out[staged]], box[plan.into[staged]]), plan.bytes[staged])
    if ((crossing > 0).sum(axis=1) > 1).any() or ((crossing > 0).sum(axis=2) > 1).any():
        raise WrongPlanError("a box sends to two boxes in one stage, or hears from two")
    odd = len(box) // boxes  # the bytes of a stage are divided among as many NICs
    if (crossing.max(axis=(1, 2), initial=0) > plan.length + odd).any():
        raise WrongPlanError("a box sends more in a stage than the stage is long")
    between = crossing.sum(axis=0)
    if int(plan.length.sum()) != max(between.sum(axis=0).max(initial=0), between.sum(axis=1).max(initial=0)):
        raise WrongPlanError("the stages are longer than the busiest box needs")


def bound_seconds(topology: Topology, hosts: tuple[Host, ...], matrix: Integers) -> Fraction:
    """A lower bound for every plan: the most that a box or rank sends or receives, over the bandwidth of its links."""
    best = Fraction(0)
    for nodes, ranks in [(host.nodes, host.ranks) for host in hosts] + [((r,), (r,)) for r in range(len(matrix))]:
        within, mine = set(nodes), np.isin(np.arange(len(matrix)), ranks)
        out = sum((link.bandwidth for node in nodes for link in topology.links_from(node) if link.dst not in within),
                  Fraction(0))  # fmt: skip
        into = sum((link.bandwidth for node in nodes for link in topology.links_to(node) if link.src not in within),
                   Fraction(0))  # fmt: skip
        for amount, rate in ((matrix[np.ix_(mine, ~mine)], out), (matrix[np.ix_(~mine, mine)], into)):
            if amount.sum():
                best = max(best, int(amount.sum()) / rate)
    return best


def messages_of(plan: StagePlan) -> Messages:
    """The plan as messages to simulate: pieces of one stage between two ranks are one message.

    A message between boxes waits for the bytes that its sender gets for that stage; messages after it inside the box
    wait for it. A rank sends and receives one message between boxes at a time, so that ranks that are ahead do not take
    bandwidth from others. Messages inside a box that prepare stages go stage by stage; those that stay in the box last.
    """
    staged = plan.stage >= 0
    moved, handed = staged & (plan.source != plan.out), staged & (plan.into != plan.target)
    parts = [
        _merged(plan, ~staged, plan.source, plan.target),
        _merged(plan, moved, plan.source, plan.out),
        _merged(plan, staged, plan.out, plan.into),
        _merged(plan, handed, plan.into, plan.target),
    ]
    base = np.cumsum([0, *(len(stage) for stage, *_ in parts)])
    stage, src, dst, size = (np.concatenate(column) for column in zip(*parts, strict=True))
    ranks = len(plan.box)
    bring, cross, hand = (slice(first, end) for first, end in pairwise(base[1:]))
    waits = [
        _pairs(stage[cross] * ranks + src[cross], base[2], stage[bring] * ranks + dst[bring], base[1]),
        _pairs(stage[hand] * ranks + src[hand], base[3], stage[cross] * ranks + dst[cross], base[2]),
    ]
    order = base[2] + np.lexsort((stage[cross], dst[cross]))
    same = dst[order][1:] == dst[order][:-1]
    waits.append((order[1:][same], order[:-1][same]))
    later, earlier = (np.concatenate(column) for column in zip(*waits, strict=True))
    follows = np.full(len(stage), -1, np.int64)
    turn = np.where(stage < 0, len(plan.length), stage)  # what stays in its box has time
    for rows in (np.arange(base[2]), np.arange(base[2], base[3])):
        order = rows[np.lexsort((turn[rows], src[rows]))]
        same = src[order][1:] == src[order][:-1]
        follows[order[1:][same]] = order[:-1][same]
    return Messages.make(ranks, src, dst, size.astype(float), (later, earlier), follows=follows)


def _merged(plan: StagePlan, chosen: NDArray[np.bool_], src: Integers, dst: Integers) -> Key:
    """Stage, source, destination and bytes of the chosen pieces' hop from src to dst, each once."""
    ranks = len(plan.box)
    key = ((plan.stage.astype(np.int64) + 1) * ranks + src) * ranks + dst
    keys, place = np.unique(key[chosen], return_inverse=True)
    size = np.bincount(place, plan.bytes[chosen], len(keys)).astype(np.int64)
    return keys // ranks // ranks - 1, keys // ranks % ranks, keys % ranks, size


def _pairs(later: Integers, first: int, earlier: Integers, before: int) -> tuple[Integers, Integers]:
    """All pairs of equal keys, as rows that begin at `first` and `before`."""
    order = np.argsort(earlier, kind="stable")
    begin, end = (np.searchsorted(earlier[order], later, side=side) for side in ("left", "right"))
    count = end - begin
    at = np.repeat(begin - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
    return first + np.repeat(np.arange(len(later)), count), before + order[at]
