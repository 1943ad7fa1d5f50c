"""Steps of a swarm, simulated: microbatches dealt in turn, by speed, and by speed to stages that were rebalanced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syntony.overlap.policies import orders
from syntony.overlap.policies.passes.relayout import first_come
from syntony.overlap.policies.policy import LAST
from syntony.overlap.predict.machine import Machine
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost, Wire, ring_wire
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.op import Kind
from syntony.overlap.step.plan import Plan
from syntony.overlap.step.swarm import Dealt, Swarm, generate_swarm, work_of


@dataclass(frozen=True)
class Predicted:
    """A step.

    seconds      from one step to the next
    bound        what no order of these stages can beat: all microbatches, by the speeds of a stage's devices together
    computing    seconds of a microbatch on the fastest device of a stage, for the stage where that takes most
    moving       seconds of the longest message of a microbatch from stage to stage
    """

    name: str
    swarm: Swarm
    seconds: float
    bound: float
    computing: float
    moving: float


def predicted(layers: Sequence[LayerSpec], swarm: Swarm, microbatches: int, machine: Machine) -> tuple[Predicted, ...]:
    """Microbatches dealt in turn; by the speeds of devices; and so after devices have moved to where there is work."""
    work = work_of(layers, swarm.chunks(layers))
    moved = swarm.rebalanced(work)
    plans = (("in turn", swarm, True), ("by speed", swarm, False), ("by speed, rebalanced", moved, False))
    return tuple(_predicted(name, layers, one, one.dealt(microbatches, evenly), machine) for name, one, evenly in plans)


def cost_of(machine: Machine) -> Cost:
    """All devices reach each other at the machine's network rate. Sums of gradients have as many bytes as they send."""
    single = ring_wire(2, machine.network, machine.alpha)
    kinds = dict.fromkeys((Kind.SEND, Kind.RECV, Kind.ALL_REDUCE), single.kinds[Kind.SEND])
    return Cost(machine.flops, {"pp": Wire(kinds), "dp": Wire(kinds)}, machine.update)


def _predicted(name: str, layers: Sequence[LayerSpec], swarm: Swarm, dealt: Dealt, machine: Machine) -> Predicted:
    graph, cost = generate_swarm(layers, swarm, dealt), cost_of(machine)
    chunks = swarm.chunks(layers)
    work = [each / machine.flops for each in work_of(layers, chunks)]
    bound = max(len(dealt[0]) * each / sum(stage) for each, stage in zip(work, swarm.stages, strict=True))
    seconds = []
    for share in orders.STAGGERS:
        ordered = first_come(graph, cost, orders.staggered(share))
        found = orders.listed(ordered, cost, orders.critical(ordered, cost), LAST)
        seconds.append(simulate(Plan(name, ordered, found, priorities=LAST), cost).seconds)
    return Predicted(
        name,
        swarm,
        min(seconds),
        bound,
        max(each / max(stage) for each, stage in zip(work, swarm.stages, strict=True)),
        max((machine.alpha + layers[chunk[-1]].output / machine.network for chunk in chunks[:-1]), default=0.0),
    )
