"""Splits collectives of tensor parallelism into shifts, beside matrix products split into shards.

    all_gather ─▶ product                     shard of rank r, r-1, r-2, ..: computed as it arrives

    shift 1    ▐ 1 ▌                          product ─▶ reduce_scatter
    shift 2         ▐ 2 ▌                     computed, and sent to the rank that owns it
    shift 3              ▐ 3 ▌                    shift 1      ▐ 1 ▌
    product    ▐ 0 ▌▐ 1 ▌▐ 2 ▌▐ 3 ▌               shift 2           ▐ 2 ▌
                                                  product  ▐ 0 ▌▐ 1 ▌▐ 2 ▌▐ 3 ▌   .. shift 3

A rank's own shard is there at once; in round j every rank sends to, and receives from, the rank that is j places away.
In two directions, there are half as many rounds, twice as large: j places up and j places down. Wang et al. (ASPLOS
2023) send to neighbours only, which suits tori, and add partial sums on the way; here shards go directly to their
destination, which suits switches. So sums are made at the end, in the order of the whole collective, with its bits.
"""

from __future__ import annotations

from syntony.overlap.step.graph import CommSpec, Graph, LayerSpec
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import BACKWARD

_WHOLE = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
LANE = "tp"


def offsets(ranks: int, ways: int) -> tuple[tuple[int, ...], ...]:
    """By round, 0 first, the shards that a rank computes in it: those of the ranks this many places before it.

    ways    1: one shard a round; 2: in both directions
    """
    if ways == 1:
        return tuple((by,) for by in range(ranks))
    return ((0,), *(tuple(dict.fromkeys((by, ranks - by))) for by in range(1, ranks // 2 + 1)))


def is_whole(move: CommSpec) -> bool:
    """Whether it gathers or scatters the whole sequence, so that shifts can do it."""
    return move.lane == LANE and move.parts == "rows" and move.forward in _WHOLE and move.backward in _WHOLE


def is_product(layer: LayerSpec, segment: int) -> bool:
    """Whether a segment can be computed shard by shard, token by token: its input is gathered, its output is scattered,
    or both; on its other side nothing is communicated."""
    if not 0 < segment < len(layer.transfers):
        return False
    before, after = layer.transfers[segment - 1 : segment + 1]
    enters = is_whole(before) and before.forward is Kind.ALL_GATHER
    leaves = is_whole(after) and after.forward is Kind.REDUCE_SCATTER
    return (enters or leaves) and (enters or _is_still(before)) and (leaves or _is_still(after))


def _is_still(move: CommSpec) -> bool:
    return move.lane == LANE and move.forward is move.backward is None


def loops(layer: LayerSpec) -> tuple[bool, ...]:
    """By transfer of a layer, whether it is split: a product beside it can be computed shard by shard."""
    return tuple(
        is_whole(move) and is_product(layer, place + (move.forward is Kind.ALL_GATHER))
        for place, move in enumerate(layer.transfers)
    )


def recorded_kind(graph: Graph, op: Op) -> Kind | None:
    """The kind of the recorded step's transfer for which `op` moves data within a layer."""
    spec = next((one for one in graph.layers[op.layer].transfers if one.name == op.key.kind), None)
    return None if spec is None else spec.backward if op.key.direction == BACKWARD else spec.forward


def is_round(graph: Graph, op: Op) -> bool:
    """Whether it is a round of a gather or scatter that was split."""
    return op.kind is Kind.SHIFT and recorded_kind(graph, op) in _WHOLE


def ways_of(graph: Graph, op: Op) -> int:
    """For a round: whether its shards go in one direction or two."""
    return 1 if op.key.whole.cut(graph.groups[op.lane] - 1) in graph.by_key else 2


def shifts(graph: Graph, op: Op) -> tuple[int, ...]:
    """For a SHIFT: by how many places along its group each of its equal shares moves."""
    kind = recorded_kind(graph, op)
    if kind not in _WHOLE:
        return (-1 if op.key.direction == BACKWARD else 1,)
    ranks, ways, (number,) = graph.groups[op.lane], ways_of(graph, op), op.key.part
    return tuple(by if kind is Kind.ALL_GATHER else -by for by in offsets(ranks, ways)[number])
