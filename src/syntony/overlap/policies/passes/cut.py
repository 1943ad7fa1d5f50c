"""Cuts Ops into parts. Parts of neighbours that are cut alike follow one another, part by part:

    dispatch ─▶ ffn ─▶ combine        dispatch/0 ─▶ ffn/0 ─▶ combine/0
                                      dispatch/1 ─▶ ffn/1 ─▶ combine/1

An Op that depends on an Op with a different cut depends on all its parts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from math import gcd

from syntony.base.command import UserError
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind, Op, Piece
from syntony.overlap.step.op_key import OpKey

GRADIENTS = ("dp", "edp", "replicas", "data", "islands")  # lanes of gradients and weights
ALIGNMENT = 256  # bytes: a rank's share of a part is a multiple of this (64 elements)


def slice(graph: Graph, size: int, lanes: Collection[str] = GRADIENTS) -> Graph:
    """Moves gradients and weights in parts of about `size` bytes, between which something more urgent may go.
    Weights gathered for one use (zero=3) stay whole: nothing can begin with a part of them."""
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
    """Cuts the graph as `chunks` says."""
    return cut(graph, chunks(graph, count, lanes))


def chunks(graph: Graph, count: int, lanes: Collection[str]) -> dict[OpKey, int]:
    """The numbers (above one) of parts for transfers of these lanes within layers and for the segments beside them, so
    that one part is computed while another travels. If rows travel, the batch is cut from the first layer to the last,
    except for a router, which balances a whole batch, and for everything between it and the experts' answers. If
    experts get rows, everything between their two all_to_alls is cut, in groups of experts and pieces of their rows.
    Fewer parts are used if that many cannot be equal."""
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


def divisors(graph: Graph, most: int, lanes: Collection[str]) -> list[int]:
    """The numbers up to `most` into which `chunk` cuts what moves on these lanes evenly; the first is 1."""
    return [count for count in range(1, most + 1) if count == max(chunks(graph, count, lanes).values(), default=1)]


def cut(graph: Graph, counts: Mapping[OpKey, int]) -> Graph:
    """Cuts every Op into this many parts, at most as many as its bytes allow if ranks share them."""
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
        shards = round(total / op.amount)  # number of summed copies; else 1
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
    """The bytes [begin, end) of consecutive pieces."""
    at = 0
    for piece in pieces:
        low, high = max(begin - at, 0), min(end - at, piece.bytes)
        if low < high:
            yield Piece(piece.layer, piece.begin + low, piece.begin + high)
        at += piece.bytes
