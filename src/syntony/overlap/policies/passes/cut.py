"""Ops cut into parts. Parts of neighbours that are cut alike follow one another, part by part:

    dispatch ─▶ ffn ─▶ combine        dispatch/0 ─▶ ffn/0 ─▶ combine/0
                                      dispatch/1 ─▶ ffn/1 ─▶ combine/1

Whoever waits for an Op that was cut otherwise, waits for all its parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from math import gcd

from syntony.base.command import UserError
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind, Op, Piece
from syntony.overlap.step.op_key import OpKey

GRADIENTS = ("dp", "edp", "replicas", "data")  # lanes on which gradients and weights move
ALIGNMENT = 256  # bytes: what a rank's share of a part is a multiple of (64 elements)


def slice(graph: Graph, size: int, lanes: Collection[str] = GRADIENTS) -> Graph:
    """Moves gradients and weights in parts of about `size` bytes, at whose ends something more urgent may go first.
    Weights that are gathered for one use (zero=3) stay whole: nothing can begin with a part of them."""
    if size < 1:
        raise UserError(f"slice is {size}; it must be 1 byte or more")
    return cut(
        graph,
        {
            op.key: -(-int(op.amount) // size)
            for op in graph
            if op.pieces and op.microbatch < 0 and op.lane in lanes and op.amount > size
        },
    )


def chunk(graph: Graph, count: int, lanes: Collection[str]) -> Graph:
    """Cuts as `chunks` says."""
    return cut(graph, chunks(graph, count, lanes))


def chunks(graph: Graph, count: int, lanes: Collection[str]) -> dict[OpKey, int]:
    """In how many parts to cut, of more than one: what these lanes move within layers, and the segments beside it, so
    that one part is computed while another travels. Where rows travel, the batch is cut from the first layer to the
    last, but for a router, which balances a whole one, and for what lies between it and the experts' answers; where
    experts get rows, what is between their two all_to_alls is cut, in groups of experts and pieces of their rows. In
    fewer parts, where so many cannot be equal."""
    layers = graph.layers
    limits = [move.most for layer in layers for move in layer.transfers if move.lane in lanes and move.parts == "rows"]
    rows = gcd(count, *limits) if limits else 1
    routed = {i for i, layer in enumerate(layers) if any(move.parts != "rows" for move in layer.transfers)}
    routed |= {i - 1 for i, layer in enumerate(layers) if layer.joined}

    def parts(op: Op) -> int:
        if op.layer < 0 or op.microbatch < 0 or op.pieces or op.kind in (Kind.SEND, Kind.RECV):
            return 1
        if op.layer not in routed:
            return rows
        moves = layers[op.layer].transfers
        beside = moves[op.segment : op.segment + 1]
        if op.lane == COMPUTE:
            beside = moves[max(op.segment - 1, 0) : op.segment + 1]
        inside = "ep" in lanes and all(move.parts == "experts" for move in beside)
        return gcd(count, *(move.most for move in beside)) if inside and len(beside) == 1 + (op.lane == COMPUTE) else 1

    wanted = {op.key: parts(op) for op in graph}
    return {key: number for key, number in wanted.items() if number > 1}


def cut(graph: Graph, counts: Mapping[OpKey, int]) -> Graph:
    """Every Op in so many parts; no more than its bytes can be cut into where ranks share them."""
    parts = {op.key: _parts(graph, op, counts.get(op.key, 1)) for op in graph}

    def after(key: OpKey, number: int, of: int) -> tuple[OpKey, ...]:
        others = parts[key]
        return (others[number].key,) if len(others) == of > 1 else tuple(part.key for part in others)

    def edges(keys: tuple[OpKey, ...], number: int, of: int) -> tuple[OpKey, ...]:
        return tuple(part for key in keys for part in after(key, number, of))

    def rewired() -> Iterator[Op]:
        for op in graph:
            mine = parts[op.key]
            if len(mine) == 1 and not any(len(parts[key]) > 1 for key in (*op.deps, *op.lagged)):
                yield mine[0]
                continue
            for number, part in enumerate(mine):
                yield part._replace(deps=edges(op.deps, number, len(mine)), lagged=edges(op.lagged, number, len(mine)))

    return graph.with_ops(rewired()) if counts else graph


def _parts(graph: Graph, op: Op, count: int) -> list[Op]:
    if op.pieces:
        total = sum(piece.bytes for piece in op.pieces)
        shards = round(total / op.amount)  # copies of which are summed; else 1
        unit = ALIGNMENT * shards * graph.groups.get(op.lane, 1)
        if op.lane == "dp" and graph.layout is not None and graph.layout.spread:
            unit *= graph.layout.replicas
        count = max(1, min(count, total // unit))
    if count == 1:
        return [op]
    whole = op._replace(amount=op.amount / count, holds=op.holds / count, frees=op.frees / count, of=op.sources)
    if not op.pieces:
        return [whole._replace(key=op.key.cut(i)) for i in range(count)]
    ends = [total * i // count // unit * unit for i in range(count)] + [total]
    return [
        whole._replace(
            key=op.key.cut(i),
            amount=op.amount * (end - begin) / total,
            pieces=tuple(_between(op.pieces, begin, end)),
        )
        for i, (begin, end) in enumerate(pairwise(ends))
    ]


def _between(pieces: tuple[Piece, ...], begin: int, end: int) -> Iterator[Piece]:
    """The bytes [begin, end) of pieces that lie one behind the other."""
    at = 0
    for piece in pieces:
        low, high = max(begin - at, 0), min(end - at, piece.bytes)
        if low < high:
            yield Piece(piece.layer, piece.begin + low, piece.begin + high)
        at += piece.bytes
