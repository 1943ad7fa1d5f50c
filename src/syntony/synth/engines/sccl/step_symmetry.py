"""A chain of symmetry groups of a collective on its network, from the whole group down to none.

A schedule that is invariant under a group needs one variable per orbit of sends, so it is found soonest under the
largest group; but the larger the group, the fewer such schedules there are. So engines ask down a chain:

    all generators  >  all but the last  >  ..  >  the first one alone  >  none

Generators that move every rank come first: they restrict least, because no send is mapped to another one of the same
chunk. The group of a rooted collective is the stabilizer of the root in the group of the topology.
"""

from __future__ import annotations

from collections.abc import Sequence

from syntony.synth.engines.sccl.step_problem import RouteAction
from syntony.synth.model.network import Network
from syntony.synth.model.routes import Route
from syntony.synth.symmetry.groups import chunk_permutation
from syntony.topologies.topology import Permutation

MAX_ELEMENTS = 256
"""Groups up to this order are listed, to find all elements that fit; of larger ones, only generators are tried."""
MAX_LENGTH = 4
"""So many groups of a chain at most, without the last one, none."""


def chain(network: Network, routes: Sequence[Route]) -> list[list[RouteAction]]:
    """Generators of one group after another, as they act on chunks and routes; the last group is none."""
    actions = [action for nodes in fitting(network, routes) if (action := _action(network, routes, nodes))]
    lengths = sorted({len(actions) * (MAX_LENGTH - i) // MAX_LENGTH for i in range(MAX_LENGTH)}, reverse=True)
    return [actions[:length] for length in lengths if length] + [[]]


def fitting(network: Network, routes: Sequence[Route]) -> list[Permutation]:
    """Generators of those automorphisms that are symmetries of the collective and of the routes, freest first."""
    topology, collective = network.topology, network.collective
    elements = listed(len(topology.nodes), topology.generators, MAX_ELEMENTS)
    candidates = [*topology.generators, *(elements or ())]
    fit = [nodes for nodes in candidates if _action(network, routes, nodes)]
    fit.sort(key=lambda nodes: sum(nodes[member] == member for member in collective.members))
    kept: list[Permutation] = []
    reached = {tuple(range(len(topology.nodes)))}
    for nodes in fit:
        if nodes not in reached and nodes not in kept:
            kept.append(nodes)
            if elements is not None:
                reached = set(listed(len(nodes), kept, MAX_ELEMENTS) or ())
    return kept


def listed(size: int, generators: Sequence[Permutation], limit: int) -> list[Permutation] | None:
    """All elements of the group that the generators generate, the identity first; None if it has more than `limit`."""
    found = {tuple(range(size)): None}
    frontier = list(found)
    while frontier:
        images = [tuple(generator[i] for i in element) for element in frontier for generator in generators]
        frontier = [image for image in dict.fromkeys(images) if image not in found]
        found |= dict.fromkeys(frontier)
        if len(found) > limit:
            return None
    return list(found)


def _action(network: Network, routes: Sequence[Route], nodes: Permutation) -> RouteAction | None:
    """The action of the automorphism on chunks and routes; None if it maps a listed route to one that is not."""
    chunks = chunk_permutation(network.collective, nodes)
    number = {route.links: position for position, route in enumerate(routes)}
    links = network.topology.link_permutation(nodes)
    moved = [number.get(tuple(links[link] for link in route.links), -1) for route in routes]
    return None if chunks is None or -1 in moved else RouteAction(chunks, tuple(moved))
