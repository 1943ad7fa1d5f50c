"""Ways: the routes of a network as columns, up to symmetry.

Under a free group of automorphisms (symmetry/free_group.py), all other ranks start the same transfers as the
representative ranks (`homes`), at the same time, over the images of the same links. A link's orbit of k links then
carries |G| / k times what the representatives send over any of them:

    two boxes that may be exchanged     home 0 sends a byte over link 3     its orbit {3, 17} carries two: one each
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony.synth.bounds.demand import fitting_generators
from syntony.synth.engines.engine import EngineError
from syntony.synth.model.network import Network
from syntony.synth.model.routes import Route, routes_of
from syntony.synth.symmetry.free_group import FreeGroup
from syntony.synth.symmetry.link_orbits import link_orbits

MOST_ROUTES = 20_000
"""Most routes for which trees are grown; more would take minutes."""

Integers = NDArray[np.signedinteger]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ways:
    """R routes between ranks, each of at most W links.

    homes          ranks of the collective that represent all
    src, dst       (R,)    ranks of the collective
    alpha, pace    (R,)    seconds; seconds per byte of the slowest link
    orbits         number of orbits of links
    orbit          (R, W)  orbits of the route's links; `orbits`, which stands for no link, fills the rows
    occupied       (R, W)  seconds per byte of a home's that such an orbit is busy; 0 where there is no link
    lane           distinguishes lanes of homes: equal for routes that some symmetry maps onto each other
    """

    network: Network
    group: FreeGroup
    homes: tuple[int, ...]
    routes: tuple[Route, ...]
    src: Integers
    dst: Integers
    alpha: Floats
    pace: Floats
    orbits: int
    orbit: Integers
    occupied: Floats
    lane: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(network: Network) -> Ways:
        """The routes, and the symmetry that the collective leaves. Raises EngineError if there are too many."""
        topology, collective = network.topology, network.collective
        if collective.ranks**2 > MOST_ROUTES:
            raise EngineError(
                f"engine teccl weighs every pair of ranks, and {collective.ranks} ranks are too many for that; "
                "use --engine forest, flow or greedy"
            )
        members = collective.members
        nodes = len(topology.nodes)
        group = FreeGroup.within(nodes, members, [] if collective.rooted else fitting_generators(network))
        position = {member: rank for rank, member in enumerate(members)}
        routes = routes_of(network).routes
        of_link = link_orbits(topology, group.generators)
        orbits = int(of_link.max(initial=-1)) + 1
        sizes = np.bincount(of_link, minlength=orbits)
        seconds_per_byte = np.asarray([float(1 / link.bandwidth) for link in topology.links])
        width = max((len(route.links) for route in routes), default=1)
        orbit = np.full((len(routes), width), orbits)
        occupied = np.zeros((len(routes), width))
        for number, route in enumerate(routes):
            links = list(route.links)
            orbit[number, : len(links)] = of_link[links]
            occupied[number, : len(links)] = seconds_per_byte[links] * group.order / sizes[of_link[links]]
        home, element = group.home, group.element
        undone = np.argsort(group.elements, axis=1)
        lane = []
        for number, route in enumerate(routes):
            src, dst = members[route.src], members[route.dst]
            lane.append((int(home[src]), int(undone[element[src], dst]), *orbit[number].tolist()))
        return Ways(
            network,
            group,
            tuple(position[node] for node in group.homes),
            routes,
            np.asarray([route.src for route in routes], np.int64),
            np.asarray([route.dst for route in routes], np.int64),
            np.asarray([route.alpha for route in routes], np.float64),
            np.asarray([float(Fraction(1) / route.bandwidth) for route in routes], np.float64),
            orbits,
            orbit,
            occupied,
            tuple(lane),
        )
