"""Engine `blink`: spanning trees near the throughput bound where exact ones take too long, and few of them.

Engine `forest` cuts every block into as many equal trees as make all numbers whole, which can be too many if bandwidths
differ, and its relays must be balanced. Here trees have arbitrary weights:

    1. more and more trees, by multiplicative weights (csrc/solve/trees/fractional_packing.hpp),      packing.py
       and the best weights for the trees that are known, by a linear program;
       until that is within 1 % of what is proven to be the best, or time is up
    2. the fewest of them whose loss of rate is within the engine's argument (default 5 %)               few.py

Wang et al., Blink (MLSys'20), section 3: there for broadcasts within one box. As engine `forest` does, reduce and
reduce_scatter are run backwards, and all_reduce is reduce_scatter, then all_gather.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import numpy as np

from syntony.synth.bounds.distance import latency
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.blink.few import few
from syntony.synth.engines.blink.packing import Packing
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.forest.trees import Trees, common_weights, spread
from syntony.synth.model.collective import ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.topologies.topology import Topology

ENGINE = "blink"

LOSS = 0.05
"""The loss of rate that is allowed for fewer trees, if no argument is given."""
_SEARCHING = 0.5
"""Part of the time for finding trees; the rest is for choosing few of them."""


def run(topology: Topology, collective: Collective, size: int, budget: Budget, argument: str = "") -> Schedule:
    """The engine; see the top of the file. Raises EngineError for what has no trees.

    `size` does not matter: the schedule is for sizes at which bandwidth does. `argument`: the loss of rate that
    is allowed for fewer trees; with 0, all trees of the best packing are kept.
    """
    loss = _loss_allowed(argument)
    if budget.steps is not None or budget.rounds is not None:
        raise EngineError("engine blink takes no --steps or --rounds; use --engine sccl")
    if collective.kind in ("all_to_all", "gather", "scatter"):
        raise EngineError(f"engine blink packs trees, which {collective.kind} does not need; use --engine flow")
    latency(Network(topology, collective))  # raises if ranks are cut off
    reverse = topology.reversed()
    if collective.kind == "all_reduce":
        _, gather = in_owned_chunks(collective)
        half = budget.left() / 2
        up, sums = _pack(reverse, gather, half, loss)
        down, copies = _pack(topology, gather, budget.left(), loss)
        up, down = common_weights(up, down)
        whole = replace(collective, chunks=ChunkTable(np.zeros_like(down.weight), down.weight))
        schedule = summed_and_spread(spread(reverse, gather, up), spread(topology, gather, down), whole)
        proof = f"sums: {sums}; copies: {copies}"
    elif collective.combining:
        dual = collective.dual()
        trees, proof = _pack(reverse, dual, budget.left(), loss)
        schedule = summed(spread(reverse, dual, trees), topology)
    else:
        trees, proof = _pack(topology, collective, budget.left(), loss)
        schedule = spread(topology, collective, trees)
    bounds = bounds_of(schedule.topology, schedule.collective, budget.for_bounds())
    return replace(schedule, engine=ENGINE, bounds=bounds, proof=proof)


def _loss_allowed(argument: str) -> float:
    try:
        loss = float(argument or LOSS)
    except ValueError:
        loss = -1.0
    if not (isfinite(loss) and 0 <= loss < 1):
        raise EngineError(
            f"engine blink takes the part of the rate that fewer trees may cost, 0 or more and below 1, "
            f"as in blink:0.05, but not '{argument}'"
        )
    return loss


def _pack(topology: Topology, gather: Collective, seconds: float, loss: float) -> tuple[Trees, str]:
    """Trees of an all_gather or broadcast, and a description of what is proven about them."""
    if gather.ranks == 1:
        nothing, none = np.zeros((1, 0), np.int64), np.zeros(0, np.int64)
        one = np.ones(1, np.int64)
        return Trees(0 * one, one, nothing, nothing, nothing, np.zeros(1, np.int64), none), "nothing moves"
    packing = Packing(Network(topology, gather))
    spent = Budget(seconds)
    found = packing.search(_SEARCHING * seconds)
    chosen = few(packing, found, loss, spent.left())
    trees = packing.trees(chosen)
    above = _percent(found.excess / float(packing.proven) - 1)
    lost = _percent(1 - found.excess / chosen.excess)
    proof = f"{_counted(found.trees)} within {above} of what any trees need, by prices of links"
    return trees, f"{proof}; {_counted(chosen.trees)} kept, {lost} of the rate lost"


def _percent(part: float) -> str:
    return f"{100 * max(part, 0.0):.2f} %"


def _counted(trees: int) -> str:
    return "1 tree" if trees == 1 else f"{trees} trees"
