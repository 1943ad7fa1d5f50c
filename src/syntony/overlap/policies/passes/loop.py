"""all_gather -> product and product -> reduce_scatter, shard by shard (step/shards.py defines the rounds).

    enter ─▶ fwd                enter/1 ─▶ fwd/1              fwd/0
                                enter/2 ─▶ fwd/2              fwd/1 ─▶ leave/1
                                           fwd/0 at once      fwd/2 ─▶ leave/2

The backward is split in the same way, with gathers for scatters. Gradients of weights come behind those of inputs, for
all shards at once: the last shards travel meanwhile, and the bits are those of the undivided step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from syntony.base.command import UserError
from syntony.overlap.policies.passes.backward import split_backward
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.shards import LANE, is_product, loops, offsets

_CUT = (Kind.FORWARD, Kind.RECOMPUTE, Kind.BACKWARD_INPUT)


def can_loop(graph: Graph) -> bool:
    """Whether the step has anything to split."""
    return graph.groups.get(LANE, 1) > 1 and any(any(loops(layer)) for layer in graph.layers)


def loop(graph: Graph, ways: int = 1) -> Graph:
    """The step with its gathers and scatters as shifts beside matrix products.

    ways    1: towards the next ranks; 2: in both directions, in half as many rounds

    Raises UserError if there is nothing to split, or it has already been cut differently.
    """
    if not can_loop(graph):
        raise UserError("no sequence is gathered or scattered beside a product: that takes tp, with sequence=true")
    looped = [loops(layer) for layer in graph.layers]
    mine = [op for op in graph if op.layer >= 0 and op.microbatch >= 0 and any(looped[op.layer]) and not op.pieces]
    if any(op.key.part for op in mine):
        raise UserError("the batch has been cut already; shards are cut of whole microbatches")
    graph = split_backward(graph, {op.key for op in mine if op.kind is Kind.BACKWARD})
    return graph.with_ops(_rewired(graph, looped, ways))


def _rewired(graph: Graph, looped: Sequence[Sequence[bool]], ways: int) -> Iterator[Op]:
    ranks = graph.groups[LANE]
    rounds = offsets(ranks, ways)
    members: list[range] = []  # by round, the parts that are computed in it
    for one in rounds:
        first = members[-1].stop if members else 0
        members.append(range(first, first + len(one)))
    round_of = [number for number, parts in enumerate(members) for _ in parts]

    def cut(op: Op) -> bool:
        """Whether it is computed shard by shard."""
        inside = op.lane == COMPUTE and op.microbatch >= 0 and op.layer >= 0
        return inside and op.kind in _CUT and is_product(graph.layers[op.layer], max(op.segment, 0))

    def apart(op: Op) -> bool:
        """Whether it is a gather or a scatter that becomes shifts."""
        inside = op.lane == LANE and op.microbatch >= 0 and not op.pieces
        return inside and looped[op.layer][op.segment]

    def gathers(op: Op) -> bool:
        return op.kind is Kind.ALL_GATHER

    def after(key: OpKey, part: int | None) -> tuple[OpKey, ...]:
        """The dependencies of an op, or a part of it, that depended on `key`."""
        op = graph[key]
        if cut(op):
            return (key.cut(part),) if part is not None else tuple(key.cut(each) for each in range(ranks))
        if not apart(op):
            return (key,)
        if not gathers(op):  # its own partial product, and the arrived one
            own = chain.from_iterable(after(dep, 0) for dep in op.deps)
            return (*own, *(key.cut(number) for number in range(1, len(rounds))))
        if part is None:
            return tuple(key.cut(number) for number in range(1, len(rounds)))
        return (key.cut(round_of[part]),) if part else edges(op.deps, None)

    def edges(keys: Sequence[OpKey], *parts: int | None) -> tuple[OpKey, ...]:
        return tuple(dict.fromkeys(one for key in keys for part in parts for one in after(key, part)))

    for op in graph:
        if cut(op):
            share = op._replace(amount=op.amount / ranks, holds=op.holds / ranks, frees=op.frees / ranks, of=op.sources)
            for part in range(ranks):
                lagged = edges(op.lagged, None)
                yield share._replace(key=op.key.cut(part), deps=edges(op.deps, part), lagged=lagged)
        elif apart(op):
            for number in range(1, len(rounds)):
                parts = (None,) if gathers(op) else tuple(members[number])
                yield op._replace(
                    key=op.key.cut(number),
                    kind=Kind.SHIFT,
                    amount=op.amount / ranks * len(rounds[number]),
                    deps=edges(op.deps, *parts),
                    of=op.sources,
                )
        else:
            yield op._replace(deps=edges(op.deps, None), lagged=edges(op.lagged, None))
