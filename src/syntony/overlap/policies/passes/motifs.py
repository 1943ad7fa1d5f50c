"""The composition of gradient sums, chosen layer by layer: a form, a slice size, and a position among the others.

    whole    all_reduce
    split    reduce_scatter, update of shards, all_gather
    level    reduce_scatter in the box, all_reduce between boxes, update, all_gather in the box

SYNDICATE's motifs (Mahajan et al., NSDI 2023): pieces of collectives, which are packed on the networks of both levels.
Its search (walked) changes one motif at a time, for one layer or all, and keeps improvements and now and then a worse
choice (Metropolis et al., 1953). Centauri's operation tier (by_layer) chooses only forms, for smaller and smaller
groups of neighbours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from syntony.base.command import UserError
from syntony.overlap.policies import orders
from syntony.overlap.policies.passes.cut import GRADIENTS, cut
from syntony.overlap.policies.passes.relayout import layout_of
from syntony.overlap.policies.policy import Decided
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op_key import OpKey

FORMS = ("whole", "split", "level")
_PARTS = 800  # of all gradients together
_SMALL = 1000  # ops of a step for which all moves are made; larger steps get proportionally fewer


@dataclass(frozen=True)
class Motifs:
    """By layer: form, bytes of a slice (0: whole), and how many steps' worth earlier it moves than in its order."""

    forms: tuple[str, ...]
    slices: tuple[int, ...]
    lead: tuple[float, ...]

    @staticmethod
    def alike(graph: Graph, form: str, size: int) -> Motifs:
        count = len(graph.layers)
        return Motifs((form,) * count, (size,) * count, (0.0,) * count)

    def changed(self, which: Sequence[int], **to: object) -> Motifs:
        """Changes these layers."""
        made = {
            name: tuple(value if i in which else old for i, old in enumerate(getattr(self, name)))
            for name, value in to.items()
        }
        return replace(self, **made)  # type: ignore[arg-type]


def forms_of(graph: Graph, local: int) -> tuple[str, ...]:
    """The forms that this step's sums can take, with boxes of `local` ranks. Raises UserError without sums."""
    layout = layout_of(graph)
    ranks = layout.dp * layout.cp
    if ranks == 1:
        raise UserError("this step sums no gradients: it has dp=1")
    if ranks % local:
        raise UserError(f"local is {local}; it must divide the {ranks} ranks that sum gradients")
    if layout.copies > 1 or layout.replicas > 1:
        return ("",)
    found = ("whole", "split") if layout.zero == 0 else ("split",)
    return (*found, "level") if 1 < local < ranks else found


def fitting(graph: Graph, sizes: Sequence[int]) -> list[int]:
    """The slice sizes for which the plan stays reasonably small."""
    moved = sum(layer.weights for layer in graph.layers)
    return [size for size in dict.fromkeys(sizes) if moved <= size * _PARTS or not size]


def with_sums(graph: Graph, forms: Sequence[str], local: int) -> Graph:
    """The step with each layer's gradients summed in its form."""
    if not any(forms):
        return graph
    layout = layout_of(graph)
    layers = [
        replace(layer, sums="" if layer.expert else form) for layer, form in zip(graph.layers, forms, strict=True)
    ]
    if any(layer.sums == "level" for layer in layers):
        layout = replace(layout, zero=max(1, layout.zero), replicas=layout.dp * layout.cp // local)
    return generate(layers, layout)


def in_slices(graph: Graph, sizes: Sequence[int]) -> Graph:
    """Cuts the transfers of gradients and weights that happen once a step into slices, sized by layer; 0: whole."""
    return cut(
        graph,
        {
            op.key: math.ceil(op.amount / sizes[op.layer])
            for op in graph
            if op.pieces and op.microbatch < 0 and op.lane in GRADIENTS and 0 < sizes[op.layer] < op.amount
        },
    )


def led(rule: orders.Rule, lead: Sequence[float], step: float) -> orders.Rule:
    """The rule, with transfers of some layers earlier or later by this many times `step` seconds."""

    def shifted(graph: Graph, cost: Cost) -> Mapping[OpKey, float]:
        own = rule(graph, cost)
        return {key: at - step * lead[key.layer] if 0 <= key.layer < len(lead) else at for key, at in own.items()}

    return shifted


def walked(
    begin: Sequence[Motifs],
    forms: Sequence[str],
    sizes: Sequence[int],
    cost: Cost,
    decided: Callable[[Motifs], Decided],
    moves: int,
) -> Decided:
    """The fastest on a deterministic random walk of `moves` moves from the fastest of `begin`."""
    luck, layers = random.Random(0), range(len(begin[0].forms))
    now, here = min(((_seconds(decided(one), cost), one) for one in begin), key=lambda found: found[0])
    least, best = now, here
    moves = moves * _SMALL // max(_SMALL, len(decided(here).graph))
    for move in range(moves):
        which = layers if luck.random() < 0.25 else [luck.choice(layers)]
        what = luck.choice(("forms", "slices", "lead"))
        to = luck.choice({"forms": forms, "slices": sizes, "lead": (-0.5, 0.0, 0.5)}[what])
        other = here.changed(which, **{what: to})
        if other == here:
            continue
        took = _seconds(decided(other), cost)
        heat = 0.02 * least * (1 - move / moves)
        if took <= now or luck.random() < math.exp((now - took) / heat):
            here, now = other, took
        if took < least * (1 - 1e-9):
            best, least = other, took
    return decided(best)


def by_layer(
    graph: Graph,
    cost: Cost,
    forms: Sequence[str],
    counts: Sequence[int],
    decided: Callable[[Sequence[str], int], Decided],
) -> Decided:
    """The fastest number of pieces and form for all layers; then for halves of them, and for quarters."""
    layers = len(graph.layers)
    found = {(form, count): decided((form,) * layers, count) for form in forms for count in counts}
    took = {key: _seconds(one, cost) for key, one in found.items()}
    (form, count), least = min(took.items(), key=lambda one: one[1])
    best, chosen = found[form, count], (form,) * layers
    for run in sorted({-(-layers // 2), -(-layers // 4)}, reverse=True):
        for first in range(0, layers, run):
            for form in forms:
                other = (*chosen[:first], *(form,) * len(chosen[first : first + run]), *chosen[first + run :])
                one = decided(other, count) if other != chosen else best
                if _seconds(one, cost) < least * (1 - 1e-6):
                    best, chosen, least = one, other, _seconds(one, cost)
    return best


def _seconds(one: Decided, cost: Cost) -> float:
    return simulate(one.plan("", {}, cost), cost).seconds
