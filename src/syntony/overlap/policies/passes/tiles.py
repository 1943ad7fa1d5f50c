"""Pipelines sum, update and gather of a layer: each slice is updated when its sum has arrived, and then gathered.

    reduce/0 ─▶╮             ╭─▶ gather/0        reduce/0 ─▶ opt/0 ─▶ gather/0
    reduce/1 ─▶├─▶ opt ─▶────┼─▶ gather/1        reduce/1 ─▶ opt/1 ─▶ gather/1
    reduce/2 ─▶╯             ╰─▶ gather/2        reduce/2 ─▶ opt/2 ─▶ gather/2

The effect of CoCoNet's fused kernels (Jangda et al., ASPLOS 2022, section 3.3), on slices instead of tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import OpKey


def update_by_slice(graph: Graph) -> Graph:
    """Cuts every update into as many parts as its layer's sum (passes/cut.py)."""
    sums = {op.key: _sums(graph, op) for op in graph if op.kind is Kind.OPTIMIZE}
    return graph.with_ops(_rewired(graph, {key: parts for key, parts in sums.items() if len(parts) > 1}))


def _sums(graph: Graph, op: Op) -> list[OpKey]:
    return [
        key
        for key in (*op.deps, *op.lagged)
        if key.part and not key.others and graph[key].pieces and graph[key].lane != "islands"
    ]


def _rewired(graph: Graph, sums: Mapping[OpKey, list[OpKey]]) -> Iterator[Op]:
    slices = Counter(op.key.whole for op in graph if op.pieces and len(op.key.part) == 1 and not op.key.others)

    def after(keys: tuple[OpKey, ...], op: Op) -> tuple[OpKey, ...]:
        """Ops that depend on an update depend on all its parts; the gather of a slice only on that slice's."""
        found: list[OpKey] = []
        for key in keys:
            count = len(sums.get(key, ()))
            own = op.kind is Kind.ALL_GATHER and slices[op.key.whole] == count
            parts = op.key.part if own else range(count)
            found += [key.cut(part) for part in parts] if count else [key]
        return tuple(found)

    for op in graph:
        mine = sums.get(op.key)
        if mine is None:
            yield op._replace(deps=after(op.deps, op), lagged=after(op.lagged, op))
            continue
        whole = sum(graph[key].amount for key in mine)
        for part, key in enumerate(mine):
            share, others = graph[key].amount / whole, set(mine) - {key}
            yield op._replace(
                key=op.key.cut(part),
                amount=op.amount * share,
                frees=op.frees * share,
                deps=tuple(dep for dep in op.deps if dep not in others),
                lagged=tuple(dep for dep in op.lagged if dep not in others),
                of=op.sources,
            )
