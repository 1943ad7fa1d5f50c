"""Trees of one root: of those that several shapes give, those that stream best in a simulation.

A broadcast of a long message moves at the pace of its fullest link only if its trees are shallow and messages that
meet on a link keep the same pace. Which trees do so, no count of links tells; so a simulation does:

    every two ranks have a link         two hops each                                     forest/passed_on.py
    NICs add to the wires of a host     some trees lead from NIC to NIC                   forest/nic_to_nic.py
    equal hosts                         those of two hosts, along two binary trees        forest/two_trees.py
    otherwise                           exact ones, also on as little of fast links as    forest/packing.py
                                        they need                                         forest/narrowed.py

Trees that share lanes at different depths stream only if a lane's turns are no earlier than its slices (`in_time` in
forest/trees.py); that, too, is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

import numpy as np
from numpy.typing import NDArray

from syntony.synth.bounds.throughput import throughput
from syntony.synth.engines.engine import EngineError
from syntony.synth.engines.forest.nic_to_nic import nic_to_nic
from syntony.synth.engines.forest.packing import filled
from syntony.synth.engines.forest.passed_on import passed_on
from syntony.synth.engines.forest.streaming import LONG, streaming_seconds
from syntony.synth.engines.forest.trees import ROUNDING, Trees, spread
from syntony.synth.engines.forest.two_trees import along_two_trees
from syntony.synth.model.bound import Throughput
from syntony.synth.model.network import Network

LARGE = 192
"""From this many ranks on, exact trees are packed only if others leave a gap."""
GOOD = 0.01
"""Trees of a large network that are above the bound by this part need not be exact."""
SHALLOW = 0.03
"""Trees of few hops that are above the bound by this part are faster than those that meet it in many."""
STREAMING = 1.05
"""On a large network, trees whose broadcast takes at most this many times as long as the bound are not compared with
others."""

Integers = NDArray[np.signedinteger]


def of_one_root(network: Network, bound: Throughput, tell: Callable[[Trees], None] = lambda _: None) -> Trees:
    """The trees of a broadcast. Raises EngineError.

    tell    called with the best trees so far, where others are still to be found
    """
    large = network.collective.ranks >= LARGE
    good, least = GOOD if large else ROUNDING, float(bound.seconds_per_byte)
    along = partial(along_two_trees, least=least)
    shapes: list[tuple[Callable[[Network], Trees | None], float]] = [
        (passed_on, good),
        (nic_to_nic, SHALLOW),
        (partial(along, pack=lambda two: of_one_root(two, throughput(two))), good),
    ]
    if large:
        shapes.append((partial(along, pack=_narrow), good))
    ways: list[Trees] = []
    fastest = inf
    for shape, most in shapes:
        trees = shape(network)
        if trees is None:
            continue
        seconds = trees.seconds_per_byte(network.topology)
        if seconds <= (1 + most) * least:
            if shape in (passed_on, nic_to_nic):
                return trees
            ways.append(trees)
            if large:
                took, timed = _timed(network, trees)
                if took <= STREAMING * least * LONG:
                    return timed
        if seconds < fastest:
            fastest = seconds
            tell(trees)
    exact = () if large and ways else (False,) if large else (False, True)
    for narrow in exact:
        try:
            ways.append(filled(network, _owed(network), bound, narrow))
        except EngineError:
            if not ways:
                raise
    return _streaming(network, ways)


def _streaming(network: Network, ways: list[Trees]) -> Trees:
    """Of those whose broadcast is about the fastest, the shallowest, then the fewest."""
    timed = [_timed(network, trees) for trees in ways]
    near = (1 + GOOD) * min(took for took, _ in timed)
    return min(
        (trees for took, trees in timed if took <= near),
        key=lambda trees: (int(trees.depths().max(initial=0)), len(trees.root)),
    )


def _timed(network: Network, trees: Trees) -> tuple[float, Trees]:
    """Simulated seconds of a broadcast of LONG bytes; the trees in time, if that is clearly faster."""
    seconds, in_time = _seconds(network, trees), trees.in_time(network.topology)
    if np.array_equal(in_time.steps(), trees.steps()):
        return seconds, trees
    later = _seconds(network, in_time)
    return (later, in_time) if later <= (1 - GOOD) * seconds else (seconds, trees)


def _narrow(network: Network) -> Trees:
    """Trees of a broadcast on as little of the fast links as they need; twice as many, so that they need less."""
    return filled(network, _owed(network), throughput(network), narrow=True, times=2)


def _owed(network: Network) -> Integers:
    """The weight of each rank's block."""
    weight = int(network.collective.chunks.weight.sum())
    return np.where(np.arange(network.collective.ranks) == network.collective.root, weight, 0)


def _seconds(network: Network, trees: Trees) -> float:
    """Simulated, of a broadcast of LONG bytes."""
    return streaming_seconds(spread(network.topology, network.collective, trees))
