r"""Star: every rank has one cable to one switch, as in a box with a crossbar.

          0   1
           \ /
        3 ─ S ─ 2

A message between two ranks takes two links, so it pays `alpha` twice.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, flag, rate, seconds
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, ABSTRACT_BANDWIDTH, Wiring, circle, require
from syntony.topologies.topology import Topology


def star(
    ranks: int,
    bandwidth: Fraction = ABSTRACT_BANDWIDTH,
    alpha: float = ABSTRACT_ALPHA,
    multicast: bool = False,
    reduces: bool = False,
) -> Topology:
    """A star of `ranks` >= 1 around one switch. Symmetry: every permutation of the ranks."""
    require(ranks >= 1, f"star: ranks is {ranks}; a star needs at least 1")
    wiring = Wiring(f"star:{ranks}")
    spread = max(1.0, 2 / ranks)  # with few ranks the circle is too small for a switch in its middle
    for x, y in circle(ranks) if ranks > 1 else [(0.0, 1.0)]:
        wiring.rank((spread * x, spread * y))
    hub = wiring.switch("switch", (0.0, 0.0), multicast=multicast, reduces=reduces)
    for i in range(ranks):
        wiring.cable(i, hub, bandwidth, alpha)
    return wiring.topology(swap_and_turn(ranks + 1, [[i] for i in range(ranks)]))


STAR = Family(
    name="star",
    build=star,
    parameters=(
        Parameter("ranks", count, "ranks around the switch"),
        Parameter("bandwidth", rate, "bytes/s per link and direction"),
        Parameter("alpha", seconds, "seconds per link; two links lead from rank to rank"),
        Parameter("multicast", flag, "whether the switch can copy one message to many"),
        Parameter("reduces", flag, "whether the switch can add messages"),
    ),
    summary="every rank has one cable to one switch",
    source="abstract",
    example="star:8",
)
