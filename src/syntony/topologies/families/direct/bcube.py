r"""BCube: servers with several ports, switches that join servers only, one dimension of a grid per level.

BCube of n = 3 ports and 2 levels (the paper's BCube_1); a server's number is two digits of base 3:

       level 1       s1.0      s1.1      s1.2         joins servers that differ in the first digit only
                    / │ \ ...
       servers    00 01 02   10 11 12   20 21 22
                   \  │  /    \  │  /    \  │  /
       level 0      s0.0       s0.1       s0.2        joins servers that differ in the last digit only

So there are n^levels servers with `levels` ports each, and every level has n^(levels-1) switches of n ports. The hops
between two servers are the digits in which their numbers differ. Guo et al.: BCube (SIGCOMM'09).
"""

from __future__ import annotations

import itertools
from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, Wiring, require
from syntony.topologies.topology import Permutation, Topology


def bcube(
    ports: int, levels: int, bandwidth: Fraction = Fraction(125 * 10**6), alpha: float = ABSTRACT_ALPHA
) -> Topology:
    """`ports` ** `levels` servers (the paper's BCube_k has k + 1 levels).

    Symmetry: permute the values of a digit; exchange two digits.
    """
    require(ports >= 2, f"bcube: ports is {ports}; a switch joins at least 2 servers")
    require(1 <= levels <= 16, f"bcube: levels is {levels}; it must be 1 to 16")
    servers = ports**levels
    require(servers <= 100_000, f"bcube: {ports}^{levels} servers are more than 100000 nodes, which is not supported")
    wiring = Wiring(f"bcube:{ports},{levels}")
    for server in range(servers):
        wiring.rank((server + 0.4 * (server // ports), 0.0))
    width = servers + 0.4 * (servers // ports - 1) - 1.0
    fewer = servers // ports
    height = max(1.5, 0.12 * width)
    below = [
        wiring.switch(f"s0.{w}", (w * (ports + 0.4) + (ports - 1) / 2, -1.2)) for w in range(fewer)
    ]  # level 0 stands below the servers, the others above them
    switches = [below]
    for level in range(1, levels):
        y = height * level
        switches.append([wiring.switch(f"s{level}.{w}", ((w + 0.5) * (width / fewer), y)) for w in range(fewer)])
    for level in range(levels):
        unit = ports**level
        for server in range(servers):
            without = server // (unit * ports) * unit + server % unit
            wiring.cable(server, switches[level][without], bandwidth, alpha)

    def permuted(digits: list[int], values: list[int] | None = None) -> Permutation:
        """Digit l of a number moves to position `digits[l]`; `values` maps the values of digit 0 before that."""
        return _permuted(ports, levels, digits, values, switches)

    same = list(range(levels))
    moves = [permuted(same, [1, 0, *range(2, ports)]), permuted(same, [*range(1, ports), 0])]
    if levels > 1:
        moves += [permuted([1, 0, *same[2:]]), permuted([*same[1:], 0])]
    return wiring.topology(moves)


def _permuted(
    ports: int, levels: int, digits: list[int], values: list[int] | None, switches: list[list[int]]
) -> Permutation:
    """The permutation of all nodes: a server moves by its digits, a switch by the digits that its servers share."""
    table = values or list(range(ports))

    def moved(number: tuple[tuple[int, int], ...]) -> int:
        """`number`: (position, value) pairs; the moved pairs' number among those with as many digits."""
        image = sorted((digits[position], table[value] if position == 0 else value) for position, value in number)
        return sum(value * ports**place for place, (_, value) in enumerate(image))

    result = []
    for number in itertools.product(range(ports), repeat=levels):
        result.append(moved(tuple(zip(range(levels), reversed(number), strict=True))))
    for level in range(levels):
        positions = [position for position in range(levels) if position != level]
        for number in itertools.product(range(ports), repeat=levels - 1):
            result.append(switches[digits[level]][moved(tuple(zip(positions, reversed(number), strict=True)))])
    return tuple(result)


BCUBE = Family(
    name="bcube",
    build=bcube,
    parameters=(
        Parameter("ports", count, "servers on a switch"),
        Parameter("levels", count, "ports of a server; ports ** levels servers"),
        Parameter("bandwidth", rate, "bytes/s per link and direction"),
        Parameter("alpha", seconds, "seconds per link"),
    ),
    summary="servers with several ports, one switch per port: a grid whose lines are switches",
    source="BCube (Guo et al., SIGCOMM'09): gigabit Ethernet; latency: none published, that of abstract families",
    example="bcube:4,2",
)
