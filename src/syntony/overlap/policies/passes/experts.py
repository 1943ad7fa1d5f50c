"""Moves experts to the tokens instead: all of them, or those in demand, whose tokens then stay where they are.

    tokens travel       dispatch ─▶ ffn ─▶ combine        of every microbatch
    experts travel      gather ─▶ ffn .. ffn ─▶ reduce    once a step (zero=3: as often as all weights are gathered)
    one by one          gather/0 ─▶ ffn/0                 (pulled) an expert is computed while the next one arrives
                            gather/1 ─▶ ffn/1
    on demand           dispatch ─▶ ffn ─▶ combine        with the weights of guests, chosen for every microbatch

Experts that always move are a layer's shadow (step/graph.py); the layer keeps the others, and its ops keep their names
and work. Guests keep their home, and their weights travel with the rows (step/demand.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from syntony.base.command import UserError
from syntony.overlap.policies.passes.cut import chunks, cut
from syntony.overlap.policies.policy import Decided, best_of
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.demand import Demand, Visits, wanted
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import CommSpec, Graph, LayerSpec
from syntony.overlap.step.op import COMPUTE, Kind

_SMALL = 3000  # largest step, in ops, for which choices are made layer by layer


def move_experts(graph: Graph, hot: int = 0, layers: Collection[int] | None = None) -> Graph:
    """The first `hot` experts of every block move (0: all): the ranks of `ep` gather them before a step uses them, and
    their gradients go back in shards, as for weights with zero=3; their copies are summed over `edp`, like replicas.
    Raises UserError if the layers do not support that number.

    layers    the layers in which they move, by number; None: all
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


def pulled(graph: Graph, count: int) -> Graph:
    """All moved experts arrive in `count` groups, each while the previous ones are computed; their gradients go back in
    as many groups. Groups are equal; there may be fewer."""
    found = {op.key: count for op in graph if op.pieces and op.pieces[0].layer >= len(graph.layers)}
    for key, parts in chunks(graph, count, ("ep",)).items():
        layer = graph.layers[key.layer]
        found |= {key: parts} if layer.shadow is not None and not layer.weights else {}
    return cut(graph, found) if count > 1 else graph


def chosen_by_layer(graph: Graph, decided: Callable[[Collection[int]], Decided], cost: Cost) -> Decided:
    """The fastest found: experts move in no layer or in all, then single layers are changed in turn."""
    movable = [i for i, layer in enumerate(graph.layers) if layer.moved]
    none, every = decided(()), decided(movable)
    best = best_of(cost, [none, every])
    chosen = set(movable if best is every else ())
    for i in movable if len(graph) <= _SMALL else ():
        other = chosen ^ {i}
        found = decided(other)
        if best_of(cost, [best, found]) is found:
            best, chosen = found, other
    return best


def with_guests(graph: Graph, cost: Cost, together: bool = False) -> Graph:
    """Makes experts guests for a microbatch if its counts justify it; the step assumes the expected number of guests.
    Raises UserError if no layer has distributed experts.

    Their weights travel before the rows, and their gradients behind the rows' own. So that all ranks choose alike, each
    gets the counts of all experts, not only of its own.

    together    either all of a layer's experts are guests, or none
    """
    layout, seconds = graph.layout, cost.seconds(graph)[0]
    spread = [i for i, layer in enumerate(graph.layers) if layer.demand is not None]
    if layout is None or not spread:
        raise UserError("this step has no experts that could be guests")
    if layout.dedup:
        raise UserError("experts travel beside whole rows; with dedup, a rank sends a part of each")
    computing = dict.fromkeys(spread, 0.0)
    for op, took in zip(graph, seconds, strict=True):
        if op.lane == COMPUTE and op.layer in computing and op.microbatch == 0 and op.kind is not Kind.RECOMPUTE:
            computing[op.layer] += took
    line = cost.wires_of(graph)["ep"].kinds[Kind.ALL_TO_ALL]
    share = 1 - 1 / layout.ep

    def hosted(i: int, layer: LayerSpec) -> LayerSpec:
        if layer.demand is None:
            return layer
        return _hosted(layer, layer.demand, computing[i], line.beta / share, together)

    return generate([hosted(i, layer) for i, layer in enumerate(graph.layers)], layout)


def _hosted(layer: LayerSpec, demand: Demand, seconds: float, byte: float, together: bool) -> LayerSpec:
    """seconds: of computing a microbatch's rows, forward and backward; byte: seconds per byte on a rank's wire."""
    place = next(at for at, move in enumerate(layer.transfers) if move.name == "dispatch")
    counts, order = demand.counts, wanted(demand.counts)
    away = demand.rows * (1 - 1 / demand.ranks)
    plain = Visits(0.0, byte, 1, 0).loads(counts, order)
    row_bytes = round(layer.transfers[place].bytes * (1 - 1 / demand.ranks) / plain.combined[0]) if away else 0
    weight_bytes = layer.weights * demand.ranks // demand.experts
    visits = Visits(seconds / plain.computed[0], byte, row_bytes, weight_bytes, together)
    loads, guests = visits.loads(counts, order), len(visits.guests(counts))
    whole = demand.ranks / (demand.ranks - 1)
    moved = {"dispatch": loads.dispatched[guests] * whole, "combine": loads.combined[guests] * whole}

    def transfer(move: CommSpec) -> CommSpec:
        if move.name == "sizes":
            return replace(move, forward=Kind.ALL_GATHER, bytes=8 * demand.experts * demand.ranks)
        return replace(move, bytes=round(moved[move.name]), most=demand.ranks) if move.name in moved else move

    segments = list(layer.segments)
    segments[place + 1] *= float(loads.computed[guests] / loads.computed[0])
    return replace(
        layer, segments=tuple(segments), transfers=tuple(map(transfer, layer.transfers)), moved=(), visits=visits
    )
