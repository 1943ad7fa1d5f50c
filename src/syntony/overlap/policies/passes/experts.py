"""Experts that come to the tokens: all of them, or those in demand, whose tokens then stay where they are.

    tokens travel       dispatch ─▶ ffn ─▶ combine        of every microbatch
    experts travel      gather ─▶ ffn .. ffn ─▶ reduce    once a step (zero=3: as often as all weights come and go)

They are a layer's shadow (step/graph.py); the layer keeps the others, and its ops their names and work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from syntony.base.command import UserError
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph, LayerSpec


def move_experts(graph: Graph, hot: int = 0, layers: Collection[int] | None = None) -> Graph:
    """The first `hot` experts of every block come (0: all), are gathered by the ranks of `ep` before a step uses them,
    and their gradients go back in shards, as weights do with zero=3; their copies are summed over `edp`, as replicas
    are. Raises UserError for a number that the layers do not come in.

    layers    in which they come, by number; None: in all
    """
    if graph.layout is None or not any(layer.moved for layer in graph.layers):
        raise UserError("this step has no experts that could come to the tokens")

    def chosen(layer: LayerSpec) -> LayerSpec:
        found = [other for other in layer.moved if not hot or other.hot == hot][-1:]
        if layer.moved and not found:
            known = ", ".join(str(other.hot) for other in layer.moved)
            raise UserError(
                f"{hot} experts cannot come to the tokens: of layer {layer.name} it can be {known}: of each rank of "
                f"ep={graph.groups['ep']} one, two, four and so on, or all"
            )
        return found[0] if found else layer

    here = range(len(graph.layers)) if layers is None else layers
    return generate([chosen(layer) if i in here else layer for i, layer in enumerate(graph.layers)], graph.layout)


def with_shadows(graph: Graph) -> Iterator[Graph]:
    """The step with some of its experts moved: every number that there can be, but not all of them."""
    limits = [layer.moved[-1].hot for layer in graph.layers if layer.moved]
    numbers = {other.hot for layer in graph.layers for other in layer.moved if other.hot < min(limits)}
    for hot in sorted(numbers):
        yield move_experts(graph, hot)
