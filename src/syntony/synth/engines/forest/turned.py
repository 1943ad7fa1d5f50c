r"""Trees of a broadcast on a large symmetric network: a few, and their images under turns about the root.

    root's box ──▶ box 1 ──▶ boxes 2, 3 .. n        the first image: box 1 spreads what the root's box hands out
    root's box ──▶ box 2 ──▶ boxes 3, .. n, 1       the next, turned by one: box 2 does

The root's box hands out each part of the data once, to one box, and every other box passes its share on to all others:
scatter and all_gather in one, four or five hops deep, with all links equally loaded.

The turn (symmetry/stabilizer.py) leaves the root where it is, so its powers map trees of the root to trees of the root,
and links of an orbit have the same load over all images. The linear program of forest/orbits.py therefore chooses the
trees that are turned, with one limit per orbit of links. It needs orders of the ranks whose boxes begin with different
GPUs, as the first one of a box must be entered from outside: one order begins with each orbit of ranks.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from syntony.base.rows import ascending
from syntony.synth.bounds.demand import fitting_generators
from syntony.synth.engines.engine import EngineError
from syntony.synth.engines.forest.orbits import Division, Tree, Wires
from syntony.synth.engines.forest.trees import Trees
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.symmetry.link_orbits import orbits_under
from syntony.synth.symmetry.stabilizer import Turn, turns_about

MOST_EDGES = 1 << 20
"""Of all images."""
MOST_TURNS = 6
"""Turns that are tried."""
MOST_ORDERS = 32
"""Orders of the ranks among which the trees of a turn are divided."""

Integers = NDArray[np.signedinteger]


def turned_trees(network: Network) -> Trees | None:
    """Equal trees of a broadcast; None if no declared symmetry turns the other ranks about the root, or not enough of
    them.
    """
    collective, nodes = network.collective, len(network.topology.nodes)
    root = collective.members[collective.root]
    everybody = replace(network, collective=Collective.make("all_gather", members=collective.members))
    generators = fitting_generators(everybody)
    best: tuple[float, Turn, Division] | None = None
    for turn in islice(turns_about(root, collective.members, generators, nodes), MOST_TURNS):
        wires = Wires.of(network, [turn.generator], 1, (root,))
        ties = _ties(turn, wires.members)
        try:
            orders = [wires.order(0, tie, nearest_first=False) for tie in ties]
            division = Division.of(wires, orders, [1])
        except EngineError:
            continue  # too many ways, or ranks without one
        if best is None or division.excess < best[0]:
            best = division.excess, turn, division
        if best[0] <= 1 + 1e-9:
            break
    if best is None:
        return None
    _, turn, division = best
    chosen = division.trees(1)
    if len(chosen) * turn.order * len(collective.members) > MOST_EDGES:
        return None
    return _images(network, turn, division, chosen)


def _ties(turn: Turn, members: Integers) -> list[Integers]:
    """Numbers of nodes: fixed ones first, then image after image, beginning with another orbit of ranks in each; as
    many as the larger of both has orbits, but at most MOST_ORDERS."""
    nodes = turn.powers.shape[1]
    orbit = orbits_under(nodes, [turn.powers[1]])
    fixed = turn.powers[1][members] == members
    image = np.zeros(
        nodes, np.int64
    )  # 0 for fixed nodes, else one more than the power that takes an orbit's first here
    first = members[np.unique(orbit[members], return_index=True)[1]]
    for number, power in enumerate(turn.powers):
        image[power[first]] = np.where(turn.powers[1][first] == first, 0, number + 1)
    kinds = [ascending(orbit[some]) for some in (members[fixed], members[~fixed])]
    ties = []
    for begin in range(min(MOST_ORDERS, max(map(len, kinds)))):
        place = np.zeros(nodes, np.int64)  # by orbit
        for some in kinds:
            place[some] = (np.arange(len(some)) - begin) % len(some)
        ties.append(image * nodes + place[orbit])
    return ties


def _images(network: Network, turn: Turn, division: Division, chosen: list[Tree]) -> Trees:
    """The chosen trees and all their images."""
    collective, topology = network.collective, network.topology
    position = np.full(len(topology.nodes), -1)
    position[list(collective.members)] = np.arange(collective.ranks)
    links = _moved_links(network, turn)
    src, dst, routes = [], [], []
    for tree in chosen:
        parents, _, taken = division.edges(tree)
        src.append(position[turn.powers[:, parents]])
        dst.append(position[turn.powers[:, tree.order.ranks[1:]]])
        routes += [links[:, list(route)] for route in taken]
    lengths = np.repeat([route.shape[1] for route in routes], turn.order)
    trees, edges = len(chosen), collective.ranks - 1
    number = np.arange(trees * edges * turn.order).reshape(trees, edges, turn.order).transpose(0, 2, 1)
    return Trees(
        np.full(trees * turn.order, collective.root),
        np.ones(trees * turn.order, np.int64),
        np.concatenate(src),
        np.concatenate(dst),
        number.reshape(-1, edges),
        np.concatenate(([0], np.cumsum(lengths))),
        np.concatenate([route.reshape(-1) for route in routes]),
    )


def _moved_links(network: Network, turn: Turn) -> Integers:
    """(order, links of the topology): where each power moves every link."""
    step = np.asarray(network.topology.link_permutation(turn.generator), np.int64)
    moved = [np.arange(len(step))]
    for _ in range(turn.order - 1):
        moved.append(step[moved[-1]])
    return np.stack(moved)
