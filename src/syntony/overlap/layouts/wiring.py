"""Layout and wiring found together, for ranks on optical circuit switches: each is searched for the other in turn.

    circuits for one all_reduce of all ranks
      --layouts are searched on them--> a step --its bytes--> circuits for this step --layouts are searched--> ..
    until a step is not faster than the one before

After Wang et al., TopoOpt (NSDI 2023), whose alternating optimization has Monte Carlo moves as its inner search; here
it is the search of `search.py`. Circuits are those of topologies/families/optical: rings that the fabric chooses for
all_reduces, and matchings for the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from syntony.overlap.layouts.search import Found
from syntony.overlap.step.op import Kind
from syntony.overlap.step.plan import Plan
from syntony.overlap.step.ranks import groups_at, members
from syntony.overlap.step.shards import shifts
from syntony.topologies.demand import AllReduce, Demand, demand_of
from syntony.topologies.topology import Topology

_MOST = 6  # rounds
_ENOUGH = 1e-3  # a smaller gain than this share of a step ends the search


@dataclass(frozen=True)
class Round:
    """The layouts found on a wiring."""

    topology: Topology
    found: Found

    @property
    def seconds(self) -> float:
        return self.found.choices[0].seconds


def demand_of_plan(plan: Plan) -> Demand:
    """What the ranks of a step send to each other. Raises ValueError for a plan that does not say how its ranks lie.

    reduce_scatter, all_gather and broadcast count as half of an all_reduce: a ring carries them, too.
    """
    layout = plan.graph.layout
    if layout is None:
        raise ValueError("the plan has no layout")
    sums = defaultdict[tuple[int, ...], float](float)
    sends = defaultdict[tuple[int, int], float](float)
    for op in plan.graph:
        if not op.kind.moves or op.kind is Kind.RECV:
            continue
        if op.kind is Kind.SEND:
            for line in members(layout, "pp")[0].tolist():
                sends[line[op.device], line[op.peer]] += op.amount
            continue
        for group in groups_at(layout, op.lane, op.device).tolist():
            if op.kind is Kind.ALL_TO_ALL:
                for one in group:
                    for other in group:
                        sends[one, other] += op.amount / len(group)
            elif op.kind is Kind.SHIFT:
                places = shifts(plan.graph, op)
                for number, one in enumerate(group):
                    for by in places:
                        sends[one, group[(number + by) % len(group)]] += op.amount / len(places)
            else:
                sums[tuple(group)] += op.amount if op.kind is Kind.ALL_REDUCE else op.amount / 2
    groups = [AllReduce(ranks, size) for ranks, size in sums.items()]
    return demand_of(layout.ranks, groups, [(one, other, size) for (one, other), size in sends.items()])


def alternate(
    ranks: int, wire: Callable[[Demand], Topology], search_on: Callable[[Topology], Found]
) -> tuple[Round, ...]:
    """The rounds, of which the last is the fastest.

    wire        a topology of the ranks for a demand
    search_on   the layouts for a topology, the fastest first; raises UserError if none fits
    """
    demand, rounds = demand_of(ranks, [AllReduce(tuple(range(ranks)), 1.0)], []), list[Round]()
    while len(rounds) < _MOST:
        topology = wire(demand)
        one = Round(topology, search_on(topology))
        if rounds and one.seconds > (1 - _ENOUGH) * rounds[-1].seconds:
            break
        rounds.append(one)
        demand = demand_of_plan(one.found.choices[0].timeline.plan)
    return tuple(rounds)
