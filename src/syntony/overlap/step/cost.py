"""Costs of Ops: seconds of computation, and seconds on the wires by lane and kind. Predictions are as good as these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey

Doubles = NDArray[np.float64]


class Linear(NamedTuple):
    """An op of b bytes waits `alpha` seconds, during which its link is free for others, then occupies it for `fixed`
    seconds and `beta` x b."""

    alpha: float
    beta: float
    fixed: float = 0.0


@dataclass(frozen=True)
class Wire:
    """The costs of a lane's Ops, and the link of their device: lanes of one link take turns, op by op."""

    kinds: Mapping[Kind, Linear]
    link: str = "network"


@dataclass(frozen=True)
class Cost:
    """The seconds of every Op.

    flops        floating-point operations per second of a device with speed 1 (Layout.speeds)
    wires        by lane
    memory       seconds per byte of weights that an optimizer updates, or a norm reads
    measured     seconds of computation by key of the recorded Op; its parts share them by their amounts. For a
                 communication Op: seconds on its link, by its own key
    amounts      of measured Ops whose amount a policy may change: seconds grow with it
    launch       seconds of measured Ops that do not depend on amounts: each part takes all of them
    start        seconds that an Op takes beyond its measurement for each further part of a transfer that it starts or
                 takes: it cuts rows or joins them, while other parts move
    contention   computation gets slower by this fraction while its device communicates
    level        wires of a layout that a policy has cut into more replicas (lanes `dp` and `replicas`, which are then
                 other groups); None: all of them are like `dp`
    """

    flops: float = 1.0
    wires: Mapping[str, Wire] = field(default_factory=dict)
    memory: float = 0.0
    measured: Mapping[OpKey, float] = field(default_factory=dict)
    amounts: Mapping[OpKey, float] = field(default_factory=dict)
    launch: float = 0.0
    start: float = 0.0
    contention: float = 0.0
    level: Callable[[Layout], Mapping[str, Wire]] | None = None

    def seconds(self, graph: Graph) -> tuple[Doubles, Doubles]:
        """By row of the graph: seconds on the processor or the link, and seconds before it takes the link.

        Raises UserError for a lane or a kind without a known wire.
        """
        taken, waited, wires = np.zeros(len(graph)), np.zeros(len(graph)), self.wires_of(graph)
        speeds = graph.layout.speeds if graph.layout is not None else ()
        whole: dict[tuple[OpKey, ...], tuple[float, int]] = {}  # amount of all parts of a measured Op, and their number
        if self.measured:
            for op in graph:
                if op.of and not op.kind.moves:
                    amount, parts = whole.get(op.of, (0.0, 0))
                    whole[op.of] = amount + op.amount, parts + 1
        for row, op in enumerate(graph):
            known = self._known(graph, op.key)
            if op.kind.moves:
                line = line_of(wires, op.lane, op.kind)
                if graph.triggered and any(op.key.part[-1:]):
                    line = Linear(0.0, line.beta)
                waited[row] = line.alpha
                taken[row] = line.fixed + op.amount * line.beta if known is None else known
                continue
            if known is None and op.of in whole:
                sources = [self._known(graph, key) for key in op.of]
                if None not in sources:
                    launch = 0.0 if graph.triggered else self.launch
                    known = self._part(sum(filter(None, sources)), op.amount, *whole[op.of], launch)
            if known is not None:
                before = sum(self._amount(graph, key) for key in op.sources)
                taken[row] = known * (whole.get(op.of, (op.amount, 1))[0] / before if before else 1.0)
            elif op.kind in (Kind.OPTIMIZE, Kind.NORM):
                taken[row] = op.amount * self.memory
            else:
                taken[row] = op.amount / (self.flops * (speeds[op.device] if speeds else 1.0))
        if self.start and not graph.triggered:
            row_of = {op.key: row for row, op in enumerate(graph)}
            for key, number in further(graph).items():
                taken[row_of[key]] += self.start * number
        return taken, waited

    def _part(self, seconds: float, amount: float, whole: float, parts: int, launch: float) -> float:
        """The seconds of a part if the whole takes `seconds`."""
        launch = min(launch, seconds)
        return launch + (seconds - launch) * (amount / whole if whole else 1 / parts)

    def wires_of(self, graph: Graph) -> Mapping[str, Wire]:
        """By lane of the graph."""
        if graph.layout is None or graph.layout.replicas == 1 or "dp" not in self.wires:
            return self.wires
        flat = {"data": self.wires["dp"], "replicas": self.wires["dp"]}
        if self.level is not None and "replicas" not in self.wires:
            return {**flat, **self.level(graph.layout)}
        return {**flat, **self.wires}

    def _known(self, graph: Graph, key: OpKey) -> float | None:
        """Measured seconds; for half of a backward its share of the whole, for a whole one the sum of its halves. A
        whole one is without what its layer leaves to the REBUILD of its gradients."""
        known = self.measured.get(key)
        halves = (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
        if known is not None and key.kind == Kind.BACKWARD and graph.layers:
            layer = graph.layers[key.layer]
            return self._part(known, sum(layer.halves), sum(layer.backward), 2, self.launch)
        if known is not None or not self.measured:
            return known
        if key.kind == Kind.BACKWARD:
            both = [self.measured.get(key._replace(kind=half)) for half in halves]
            return None if None in both else sum(filter(None, both))
        whole = self.measured.get(key._replace(kind=Kind.BACKWARD)) if key.kind in halves else None
        if whole is None or not graph.layers:
            return None
        shares = graph.layers[key.layer].backward
        return self._part(whole, shares[key.kind == Kind.BACKWARD_WEIGHT], sum(shares), 2, self.launch)

    def _amount(self, graph: Graph, key: OpKey) -> float:
        """The measured amount; 0 if policies do not change it."""
        if key.kind in (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT) and self.amounts:
            shares = graph.layers[key.layer].backward
            whole = self.amounts.get(key._replace(kind=Kind.BACKWARD), 0.0)
            return self.amounts.get(key, whole * shares[key.kind == Kind.BACKWARD_WEIGHT] / sum(shares))
        return self.amounts.get(key, 0.0)


def further(graph: Graph) -> Counter[OpKey]:
    """By Op that computes whole beside transfers in parts: how many of these it starts or takes, but for one of each
    transfer."""
    met = set[tuple[OpKey, OpKey]]()  # of an Op and a transfer
    found = Counter[OpKey]()

    def meets(key: OpKey, transfer: Op) -> None:
        if graph[key].lane == COMPUTE and not key.part:
            found[key] += (key, transfer.key.whole) in met
            met.add((key, transfer.key.whole))

    for op in graph:
        for one in map(graph.__getitem__, op.deps):
            if _is_part(one):
                meets(op.key, one)
            if _is_part(op):
                meets(one.key, op)
    return +found


def _is_part(op: Op) -> bool:
    return op.kind.moves and op.microbatch >= 0 and bool(op.key.part) and not op.pieces


def line_of(wires: Mapping[str, Wire], lane: str, kind: Kind) -> Linear:
    """The cost of this kind of communication on a lane. UserError if it is unknown."""
    if lane not in wires:
        raise UserError(f"the cost has no wire for lane {lane!r}; it has {', '.join(wires) or 'none'}")
    try:
        return wires[lane].kinds[kind]
    except KeyError:
        raise UserError(f"the cost of lane {lane!r} says nothing about {kind}") from None


def ring_wire(ranks: int, bandwidth: float, alpha: float = 0.0, link: str = "network") -> Wire:
    """The cost of bandwidth-optimal collectives among `ranks` ranks at `bandwidth` bytes per second.

    alpha    seconds per message; a collective's phase has ranks - 1 of them, an all_reduce has two phases
    """
    phase = Linear(alpha * (ranks - 1), (ranks - 1) / ranks / bandwidth)
    single = Linear(alpha, 1 / bandwidth)
    return Wire(
        {
            Kind.ALL_REDUCE: Linear(2 * phase.alpha, 2 * phase.beta),
            Kind.REDUCE_SCATTER: phase,
            Kind.ALL_GATHER: phase,
            Kind.ALL_TO_ALL: phase,
            Kind.BROADCAST: single,
            Kind.SHIFT: single,
            Kind.SEND: single,
            Kind.RECV: single,
        },
        link,
    )
