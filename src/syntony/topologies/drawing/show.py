"""A topology as a table: what `syntony topo show` prints, and the same facts as an object for `--json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from syntony.base.wording import counted, rate, time
from syntony.topologies.graph.distance import cut_off, diameter, longest_route
from syntony.topologies.graph.symmetry import group_order, orbits
from syntony.topologies.topology import Link, Topology

if TYPE_CHECKING:
    from rich.console import RenderableType


MOST_ASYMMETRIC = 8
"""So many are told one by one."""


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of equal kind, abilities, degree and rate. Bandwidths are sums over a node's links, in bytes/s."""

    kind: str
    count: int
    first: str
    last: str
    abilities: tuple[str, ...]
    links_out: int
    links_in: int
    bandwidth_out: Fraction
    bandwidth_in: Fraction


@dataclass(frozen=True)
class LinkGroup:
    """Links between the same kinds of nodes, of equal bandwidth (bytes/s) and alpha (seconds)."""

    src_kind: str
    dst_kind: str
    bandwidth: Fraction
    alpha: float
    count: int


@dataclass(frozen=True)
class Asymmetry:
    """Two neighbours, `there` from the first to the second and `back`: bandwidths, bytes/s, and alphas of the links."""

    ends: tuple[str, str]
    there: tuple[tuple[Fraction, float], ...]
    back: tuple[tuple[Fraction, float], ...]

    def __str__(self) -> str:
        one, other = self.ends
        told = [f"{one} -> {other} {_links(self.there)}", f"{other} -> {one} {_links(self.back)}"]
        return f"asymmetric wire {one}-{other}: {', '.join(told)}; meant?"


@dataclass(frozen=True)
class Summary:
    """The most important facts about a topology.

    `duplex`: every link has an equal one the other way, so links are cables.
    `asymmetric`: the few neighbours of which that is not so, in a network where it mostly is: perhaps a mistake. Empty
    where most wires lead one way, as in a directed ring: that is meant.
    `hops`: the diameter, and `route` the most links of a shortest path between two ranks; None if some rank is cut
    off: `cut_off` then names a source and a rank that it cannot reach.
    `symmetry`: order of the group that the generators generate, None if it takes long to count.
    `rank_orbits`: the number of orbits of ranks under that group.
    """

    name: str
    about: str
    ranks: int
    nodes: tuple[NodeGroup, ...]
    links: tuple[LinkGroup, ...]
    duplex: bool
    asymmetric: tuple[Asymmetry, ...]
    hops: int | None
    route: int | None
    cut_off: tuple[int, int] | None
    symmetry: int | None
    rank_orbits: int


def summarize(topology: Topology) -> Summary:
    hops = diameter(topology)
    return Summary(
        name=topology.name,
        about=topology.about,
        ranks=topology.ranks,
        nodes=tuple(_node_groups(topology)),
        links=tuple(_link_groups(topology)),
        duplex=_is_duplex(topology),
        asymmetric=_asymmetric(topology),
        hops=hops,
        route=longest_route(topology) if hops is not None else None,
        cut_off=cut_off(topology) if hops is None else None,
        symmetry=group_order(len(topology.nodes), topology.generators),
        rank_orbits=sum(orbit[0] < topology.ranks for orbit in orbits(len(topology.nodes), topology.generators)),
    )


def to_dict(summary: Summary) -> dict[str, Any]:
    """Plain JSON types; bandwidths as exact strings."""
    return {
        "name": summary.name,
        "about": summary.about,
        "ranks": summary.ranks,
        "nodes": [
            {
                "kind": group.kind,
                "count": group.count,
                "abilities": list(group.abilities),
                "links_out": group.links_out,
                "links_in": group.links_in,
                "bandwidth_out": str(group.bandwidth_out),
                "bandwidth_in": str(group.bandwidth_in),
            }
            for group in summary.nodes
        ],
        "links": [
            {
                "from": group.src_kind,
                "to": group.dst_kind,
                "count": group.count,
                "bandwidth": str(group.bandwidth),
                "alpha": group.alpha,
            }
            for group in summary.links
        ],
        "diameter_hops": summary.hops,
        "longest_route_links": summary.route,
        "asymmetric": [list(one.ends) for one in summary.asymmetric],
        "cut_off": None if summary.cut_off is None else list(summary.cut_off),
        "symmetry_order": summary.symmetry,
        "rank_orbits": summary.rank_orbits,
    }


def tables(summary: Summary) -> Iterable[RenderableType]:
    """The tables, for a rich console."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    yield Text(f"\n{summary.name}: {counted(summary.ranks, 'rank')}", style="bold")
    if summary.about:
        yield Text(summary.about)
    nodes = Table(box=SIMPLE_HEAD)
    nodes.add_column("nodes", no_wrap=True)
    nodes.add_column("count", justify="right", no_wrap=True)
    nodes.add_column("names")
    nodes.add_column("links", justify="right", no_wrap=True)
    nodes.add_column("bandwidth", justify="right", no_wrap=True)
    nodes.add_column("ability", no_wrap=True)
    for group in summary.nodes:
        nodes.add_row(
            group.kind,
            str(group.count),
            group.first if group.count == 1 else f"{group.first} .. {group.last}",
            _both_ways(str(group.links_out), str(group.links_in)),
            _both_ways(rate(group.bandwidth_out), rate(group.bandwidth_in)),
            ", ".join(group.abilities),
        )
    yield nodes
    if summary.links:
        links = Table(box=SIMPLE_HEAD)
        links.add_column("cables" if summary.duplex else "links")
        for heading in ("count", "bandwidth", "alpha"):
            links.add_column(heading, justify="right")
        order = [group.kind for group in summary.nodes]
        for wire in summary.links:
            if summary.duplex and order.index(wire.src_kind) > order.index(wire.dst_kind):
                continue  # the other direction of a cable that has a row
            count = wire.count // 2 if summary.duplex and wire.src_kind == wire.dst_kind else wire.count
            arrow = "--" if summary.duplex else "->"
            links.add_row(
                f"{wire.src_kind} {arrow} {wire.dst_kind}", str(count), rate(wire.bandwidth), time(wire.alpha)
            )
        yield links
    yield Text(f"{_reach(summary)}\n{_symmetry(summary)}")
    for one in summary.asymmetric[:MOST_ASYMMETRIC]:
        yield Text(str(one), style="yellow")
    if len(summary.asymmetric) > MOST_ASYMMETRIC:
        yield Text(f"and {len(summary.asymmetric) - MOST_ASYMMETRIC} more asymmetric wires", style="yellow")


def _node_groups(topology: Topology) -> Iterable[NodeGroup]:
    # First grouped by the numbers of their speeds: adding up exact rates is slow, and few sums differ.
    out, into = (_speeds_by_node(topology, ends) for ends in topology.ends)
    alike: dict[tuple[Any, ...], list[int]] = {}
    for node in topology.nodes:
        adds = f"reduce ({node.aggregator.name})" if node.aggregator else "reduce"
        abilities = tuple(word for word, can in (("multicast", node.multicast), (adds, node.reduces)) if can)
        alike.setdefault((node.kind, abilities, out[node.id], into[node.id]), []).append(node.id)
    bandwidth = dict(zip(topology.speeds.tolist(), (link.bandwidth for link in topology.links), strict=True))
    groups: dict[tuple[Any, ...], list[int]] = {}
    for (kind, abilities, speeds_out, speeds_in), members in alike.items():
        rate_out = sum((bandwidth[speed] for speed in speeds_out), Fraction(0))
        rate_in = sum((bandwidth[speed] for speed in speeds_in), Fraction(0))
        groups.setdefault((kind, abilities, len(speeds_out), len(speeds_in), rate_out, rate_in), []).extend(members)
    for key, members in sorted(groups.items(), key=lambda group: min(group[1])):
        kind, abilities, links_out, links_in, rate_out, rate_in = key
        first, last = topology.nodes[min(members)].name, topology.nodes[max(members)].name
        yield NodeGroup(kind, len(members), first, last, abilities, links_out, links_in, rate_out, rate_in)


def _speeds_by_node(topology: Topology, ends: npt.NDArray[np.int64]) -> list[tuple[int, ...]]:
    """Per node the speeds of the links that end there, in ascending order."""
    order = np.lexsort((topology.speeds, ends))
    speeds = topology.speeds[order].tolist()
    cuts = np.searchsorted(ends[order], np.arange(len(topology.nodes) + 1)).tolist()
    return [tuple(speeds[start:stop]) for start, stop in pairwise(cuts)]


def _link_groups(topology: Topology) -> Iterable[LinkGroup]:
    kinds = [node.kind for node in topology.nodes]
    first: dict[tuple[str, str, int], Link] = {}
    counts: Counter[tuple[str, str, int]] = Counter()
    for link, speed in zip(topology.links, topology.speeds.tolist(), strict=True):
        key = kinds[link.src], kinds[link.dst], speed
        first.setdefault(key, link)
        counts[key] += 1
    for (src_kind, dst_kind, speed), link in first.items():
        yield LinkGroup(src_kind, dst_kind, link.bandwidth, link.alpha, counts[src_kind, dst_kind, speed])


def _is_duplex(topology: Topology) -> bool:
    src, dst = topology.ends
    size = len(topology.nodes)
    there, back = ((topology.speeds * size + one) * size + other for one, other in ((src, dst), (dst, src)))
    return np.array_equal(np.sort(there), np.sort(back))


def _asymmetric(topology: Topology) -> tuple[Asymmetry, ...]:
    """See `Summary.asymmetric`."""
    if _is_duplex(topology):
        return ()
    sides: dict[tuple[int, int], tuple[list[Link], list[Link]]] = {}
    for link in topology.links:
        pair = min(link.src, link.dst), max(link.src, link.dst)
        sides.setdefault(pair, ([], []))[link.src > link.dst].append(link)
    found = []
    for (one, other), both in sides.items():
        there, back = (tuple(sorted((link.bandwidth, link.alpha) for link in side)) for side in both)
        if there != back:
            found.append(Asymmetry((topology.nodes[one].name, topology.nodes[other].name), there, back))
    return tuple(found) if 2 * len(found) <= len(sides) else ()


def _links(side: tuple[tuple[Fraction, float], ...]) -> str:
    """`has 25 GB/s in 1 us`, or that nothing leads there."""
    return (
        "has " + " + ".join(f"{rate(bandwidth)} in {time(alpha)}" for bandwidth, alpha in side) if side else "has none"
    )


def _both_ways(out: str, into: str) -> str:
    return out if out == into else f"{out} out, {into} in"


def _reach(summary: Summary) -> str:
    if summary.cut_off is not None:
        return f"not connected: rank {summary.cut_off[0]} cannot reach rank {summary.cut_off[1]}"
    links = f", {counted(summary.route, 'link')}" if summary.route and summary.route != summary.hops else ""
    return f"diameter: {counted(summary.hops or 0, 'hop')} from rank to rank{links}"


def _symmetry(summary: Summary) -> str:
    if summary.symmetry == 1:
        return "symmetry: none declared"
    order = "declared, too many automorphisms to count quickly"
    if summary.symmetry is not None:
        order = f"{summary.symmetry:,}" if summary.symmetry < 10**15 else f"about {summary.symmetry:.2g}"
        order += " automorphisms declared"
    return f"symmetry: {order}; {counted(summary.rank_orbits, 'kind')} of rank"
