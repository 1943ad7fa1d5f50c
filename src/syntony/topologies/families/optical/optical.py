"""Fabrics of optical circuit switches, configured for a given traffic: SiP-OCS and TopoOpt.

         rank 0   rank 1   rank 2   rank 3         port i of every rank leads to switch i; a switch joins each sender
          │ │      │ │      │ │      │ │           to one receiver: a permutation of the ranks
         ┌┴─│──────┴─│──────┴─│──────┴─│─┐
         │  │  optical switch 0        │ │         The switch is a mirror: a circuit is one link from rank to rank, of
         └──│────────│────────│────────│─┘         the port's bandwidth, and the switch is no node. Circuits between the
           ┌┴────────┴────────┴────────┴─┐         same two ranks are one link with their total bandwidth. Ranks
           │      optical switch 1       │         without a circuit between them relay through others.
           └─────────────────────────────┘

The two differ in how they pick the circuits (`circuits.py`). SiP-OCS (Khani et al., SIGCOMM'21) takes
each all_reduce as a ring in rank order and assigns circuits to pairs. TopoOpt (Wang et al., NSDI'23) divides
the ports between rings for all_reduces, which it chooses itself, and matchings for the rest. If some rank cannot
reach every other one, one port of each rank goes to a ring through all.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.demand import Demand, read_demand
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.families.optical.circuits import Circuits, apportioned, connected, layers, matchings, rings
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, Wiring, circle, require
from syntony.topologies.topology import Topology


def sip_ocs(
    ranks: int,
    traffic: str,
    ports: int = 4,
    bandwidth: Fraction = Fraction(200 * 10**9),
    alpha: float = ABSTRACT_ALPHA,
) -> Topology:
    """`ranks` on `ports` optical switches, configured for `traffic`. Symmetry: that of traffic and circuits."""
    demand = _demand("sip-ocs", ranks, traffic, ports).as_pairs()
    circuits = connected(ranks, ports, lambda free: matchings(demand, free))
    return wired(f"sip-ocs:{ranks},{traffic},{ports}", demand, circuits, bandwidth, alpha)


def topoopt(
    ranks: int,
    traffic: str,
    ports: int = 4,
    bandwidth: Fraction = Fraction(125 * 10**8),
    alpha: float = ABSTRACT_ALPHA,
) -> Topology:
    """`ranks` on `ports` optical switches, configured for `traffic`. Symmetry: that of both together."""
    demand = _demand("topoopt", ranks, traffic, ports)
    return wired_for(demand, f"topoopt:{ranks},{traffic},{ports}", ports, bandwidth, alpha)


def wired_for(demand: Demand, name: str, ports: int, bandwidth: Fraction, alpha: float) -> Topology:
    """TopoOpt's circuits for a demand. The ports are divided among the layers of all_reduces and the rest in proportion
    to their bytes."""
    on_rings = layers(demand.all_reduces)
    volumes = [sum(len(group.members) * group.sent for group in layer) for layer in on_rings]
    volumes.append(float(demand.bytes.sum()))

    def circuits(free: int) -> Circuits:
        *for_rings, for_matchings = apportioned(free, volumes)
        found: Circuits = Counter()
        for layer, share in zip(on_rings, for_rings, strict=True):
            if share:
                found += rings(layer, share)
        return found + matchings(demand, for_matchings)

    return wired(name, demand, connected(demand.ranks, ports, circuits), bandwidth, alpha)


def wired(name: str, demand: Demand, circuits: Circuits, bandwidth: Fraction, alpha: float) -> Topology:
    """The ranks with their circuits, each of `bandwidth` bytes/s."""
    wiring = Wiring(name)
    for place in circle(demand.ranks):
        wiring.rank(place)
    for (src, dst), number in sorted(circuits.items()):
        wiring.link(src, dst, number * bandwidth, alpha)
    kept = [
        turn
        for turn in demand.turns
        if all(circuits[turn[src], turn[dst]] == number for (src, dst), number in circuits.items())
    ]
    return wiring.topology(kept)


def _demand(family: str, ranks: int, traffic: str, ports: int) -> Demand:
    require(ranks >= 2, f"{family}: ranks is {ranks}; circuits join at least 2")
    require(1 <= ports <= 64, f"{family}: ports is {ports}; it must be 1 to 64")
    return read_demand(traffic, ranks, f"{family}: traffic")


TRAFFIC = Parameter(
    "traffic", str, "what is sent: ring, all_to_all, all_reduce, axes such as dp4xtp8, or a .json or .csv file"
)

_PARAMETERS = (
    Parameter("ranks", count, "ranks"),
    TRAFFIC,
    Parameter("ports", count, "ports of a rank, and optical switches"),
    Parameter("bandwidth", rate, "bytes/s of a port, per direction"),
    Parameter("alpha", seconds, "seconds per circuit"),
)

SIP_OCS = Family(
    name="sip-ocs",
    build=sip_ocs,
    parameters=_PARAMETERS,
    summary="ranks on optical circuit switches, with circuits matched to a given traffic",
    source="SiP-ML (Khani et al., SIGCOMM'21); a port carries 64 wavelengths of 25 Gb/s; latency: that of abstract "
    "families",
    example="sip-ocs:16,dp4xtp4",
)

TOPOOPT = Family(
    name="topoopt",
    build=topoopt,
    parameters=_PARAMETERS,
    summary="ranks on optical circuit switches, in rings for all_reduce and matched to a given traffic for the rest",
    source="TopoOpt (Wang et al., NSDI'23): four ports of 100 Gb/s; latency: that of abstract families",
    example="topoopt:16,dp8xep2",
)
