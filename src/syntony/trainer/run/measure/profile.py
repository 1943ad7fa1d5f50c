"""What ops cost on these ranks: steps of a plain plan, one op at a time on every lane; bursts (bursts.py); and, if
policies can cut layers into parts, steps of one that is cut, whose parts compute beside what moves.

Computing: the median over steps, the mean over ranks (all wait for the slowest in the end, and none is slowest always;
but where demand for experts is known to be uneven, the busiest rank).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, median

import numpy as np

from syntony.overlap.policies.orders import in_order
from syntony.overlap.policies.passes.cut import chunk
from syntony.overlap.step.cost import Cost, Linear, Wire, further
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan
from syntony.trainer.run.measure.bursts import links
from syntony.trainer.run.rank import Rank
from syntony.trainer.run.text import Microbatches

_PARTS = 4  # into which the step is cut
_LIGHTEST = 0.05  # of the ops: these compute next to nothing, and take what any op takes


def plain(graph: Graph) -> Plan:
    """Every lane in the graph's order, one op at a time."""
    lanes = {op.lane for op in graph if op.lane != COMPUTE}
    clip = graph.layout.clip if graph.layout else Clip.OFF
    return Plan("plain", graph, in_order(graph), windows=dict.fromkeys(lanes, 1), clip=clip)


def profiled(rank: Rank, steps: int, batch: Callable[[int], Microbatches], rate: float) -> Cost:
    """What so many steps took, whose weights are forgotten. Equal on all ranks. Collective."""
    step = rank.recorded()

    def computed(plan: Plan, of: Callable[[Sequence[float]], float]) -> dict[OpKey, list[float]]:
        measured = rank.measure(plan, steps, batch, rate)
        took: dict[OpKey, list[float]] = defaultdict(list)
        for span in measured.computed:
            took[span.key].append(span.end - span.begin)
        mine = {str(key): of(seconds) for key, seconds in took.items()}
        mine |= {str(OpKey(Kind.OPTIMIZE, layer)): spent / steps for layer, spent in measured.updating.items()}
        found: dict[OpKey, list[float]] = defaultdict(list)
        for blob in rank.world.gather(json.dumps(mine).encode()):
            for name, seconds in json.loads(blob).items():
                found[OpKey.parse(name)].append(seconds)
        return found

    whole, cut = computed(plain(step), median), chunk(step, _PARTS, ("tp", "ep"))
    cost = cost_of(step, whole, links(rank, step))
    if len(cut) == len(step):
        return cost
    launch, start = launches(cut, whole, computed(replace(plain(cut), windows={}), fmean))
    return replace(cost, launch=launch, start=start)


def launches(cut: Graph, whole: Mapping[OpKey, list[float]], parts: Mapping[OpKey, list[float]]) -> tuple[float, float]:
    """`Cost.launch` and `Cost.start`, of what ranks have seen of a step and of the same step cut: what a part takes
    beyond its share, and what an op that is not cut takes for each further part that it starts or takes.

    Both are means over ops, and of what each took in every step: on busy processors what moves wakes threads, and now
    and then an op waits long for its turn. A median would not count that, but steps do.
    """
    took: dict[OpKey, list[float]] = defaultdict(list)
    for op in cut:
        if op.lane == COMPUTE and len(op.sources) == 1 and op.key in parts and op.sources[0] in whole:
            took[op.sources[0]].append(float(np.mean(parts[op.key])))
    numbers = further(cut)
    launch, start = list[float](), list[float]()
    for key, seconds in took.items():
        beyond, number = sum(seconds) - float(np.mean(whole[key])), numbers[key]
        if len(seconds) > 1:
            launch.append(beyond / (len(seconds) - 1))
        elif number:
            start.append(beyond / number)
    return _mean(launch), _mean(start)


def _mean(seconds: list[float]) -> float:
    return max(0.0, float(np.mean(seconds))) if seconds else 0.0


def cost_of(step: Graph, found: Mapping[OpKey, list[float]], seen: Mapping[tuple[str, Kind], Linear]) -> Cost:
    """Of what ranks have seen: seconds by op, one for each that computes it. Round numbers for what none has."""
    uneven = {i for i, layer in enumerate(step.layers) if layer.demand is not None and layer.demand.skew}
    measured = {
        op.key: float((np.max if op.layer in uneven else np.mean)(found[op.key]))
        for op in step
        if not op.kind.moves and op.key in found
    }
    asked = {i for i, layer in enumerate(step.layers) if layer.demand is not None}
    amounts = {op.key: op.amount for op in step if op.lane == COMPUTE and op.layer in asked and op.microbatch >= 0}
    lanes: dict[str, dict[Kind, Linear]] = defaultdict(dict)
    for (lane, kind), line in seen.items():
        lanes[lane][kind] = line
    for lane in {op.lane for op in step if op.kind.moves}:  # a policy may move otherwise what was moved thus
        for kind in Kind:
            known = lanes[lane].get(kind) or next(iter(lanes[lane].values()), Linear(1e-4, 1e-9))
            half = kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER) and Kind.ALL_REDUCE in lanes[lane]
            lanes[lane].setdefault(kind, Linear(known.alpha, known.beta / 2, known.fixed / 2) if half else known)
    flops = sum(op.amount for op in step if op.kind is Kind.FORWARD)
    spent = sum(seconds for key, seconds in measured.items() if key.kind == Kind.FORWARD)
    updated = sum(op.amount for op in step if op.kind is Kind.OPTIMIZE)
    updating = sum(seconds for key, seconds in measured.items() if key.kind == Kind.OPTIMIZE)
    wires = {lane: Wire(kinds) for lane, kinds in lanes.items()}
    computing = [seconds for key, seconds in measured.items() if key.kind in (Kind.FORWARD, Kind.BACKWARD)]
    launch = float(np.quantile(computing, _LIGHTEST)) if computing else 0.0
    cost = Cost(
        flops / spent if spent else 1e10, wires, updating / updated if updated else 0.0, measured, amounts, launch
    )
    level = partial(_by_level, wires, step.layout.groups["dp"]) if step.layout and "dp" in wires else None
    kept = {key: seconds for key, seconds in measured.items() if key.kind != Kind.NORM}
    return replace(cost, measured=kept, level=level)


def _by_level(wires: Mapping[str, Wire], ranks: int, layout: Layout) -> Mapping[str, Wire]:
    """Of a layout with replicas, by what so many ranks took as one `dp` group: of n ranks, a rank sends n - 1 messages
    of a phase, and (n - 1) / n of the bytes."""
    found = {**wires, "data": wires["dp"]}
    for lane in ("dp", "replicas"):
        n = layout.groups.get(lane, 1)
        messages, share = (n - 1) / (ranks - 1), (1 - 1 / n) / (1 - 1 / ranks)
        kinds = {
            kind: Linear(line.alpha * messages, line.beta * share, line.fixed * messages)
            for kind, line in wires["dp"].kinds.items()
        }
        found[lane] = replace(wires["dp"], kinds=kinds)
    return found
