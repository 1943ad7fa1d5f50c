"""Topology: a network as a directed multigraph.

Nodes are ranks (they hold data), switches (they forward; some copy or add messages) and NICs (they forward). A link
carries bytes in one direction; there may be several between the same two nodes. A cable is two links, one per
direction.

                      bandwidth 25e9 bytes/s, alpha 0.7e-6 s
      rank 0  ───────────────────────────────────────────────▶  rank 1
              ◀───────────────────────────────────────────────

Sending n bytes over one idle link takes `alpha + n / bandwidth` seconds. Bandwidths are exact rationals, so that bounds
computed from them are exact too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from syntony.base.command import UserError
from syntony.base.notebook import html_of
from syntony.base.quantity import rate, seconds
from syntony.topologies.aggregator import Aggregator

if TYPE_CHECKING:
    import networkx

NodeKind = Literal["rank", "switch", "nic"]
NODE_KINDS: tuple[NodeKind, ...] = get_args(NodeKind)

Permutation = tuple[int, ...]
"""`p[i]` is the node (or link) that node (or link) `i` is mapped to."""


class TopologyError(UserError):
    """An invalid topology: bad name, bad argument, malformed file or inconsistent graph."""


@dataclass(frozen=True, slots=True)
class Node:
    """A rank, switch or NIC.

    `multicast`: the switch can send one incoming message to several links; `reduces`: it can add incoming messages,
    within the limits of its `aggregator` (None: without limits).
    `place`: coordinates (x, y) in a drawing, y upwards, neighbours about 1 apart; None: the drawing chooses.
    """

    id: int
    kind: NodeKind
    name: str
    multicast: bool = False
    reduces: bool = False
    place: tuple[float, float] | None = None
    aggregator: Aggregator | None = None

    @property
    def able(self) -> bool:
        """Whether it is a switch that copies or adds, so that schedules may use it as an agent."""
        return self.multicast or self.reduces


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a connection: `alpha` seconds of latency, `bandwidth` bytes/s."""

    id: int
    src: int
    dst: int
    alpha: float
    bandwidth: Fraction


@dataclass(frozen=True)
class Topology:
    """A validated network. Node and link ids are their positions; ranks are nodes 0..ranks-1, in rank order.

    `generators` are node permutations that generate a group of automorphisms: each preserves kinds, switch abilities
    and the multiset of links with their alpha and bandwidth. The group may be smaller than the full automorphism
    group. `about` describes the network in a sentence, such as the host that it was read from. Construction raises
    `TopologyError` on anything inconsistent, a false generator included.
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    generators: tuple[Permutation, ...] = ()
    about: str = ""

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("description", self.about)):
            if not text.isprintable():
                raise TopologyError(f"the topology has the {what} {text!r}; a {what} is printable text")
        _check_nodes(self.nodes)
        _check_links(self.nodes, self.links)
        if self.generators:
            self._check_generators()

    @cached_property
    def ranks(self) -> int:
        """Number of ranks."""
        return sum(node.kind == "rank" for node in self.nodes)

    @cached_property
    def _leaving(self) -> tuple[tuple[Link, ...], ...]:
        return _grouped(self.links, [link.src for link in self.links], len(self.nodes))

    @cached_property
    def _arriving(self) -> tuple[tuple[Link, ...], ...]:
        return _grouped(self.links, [link.dst for link in self.links], len(self.nodes))

    def links_from(self, node: int) -> tuple[Link, ...]:
        """Links that leave `node`, by id."""
        return self._leaving[node]

    def links_to(self, node: int) -> tuple[Link, ...]:
        """Links that arrive at `node`, by id."""
        return self._arriving[node]

    @cached_property
    def _between(self) -> dict[tuple[int, int], tuple[Link, ...]]:
        pairs: dict[tuple[int, int], list[Link]] = {}
        for link in self.links:
            pairs.setdefault((link.src, link.dst), []).append(link)
        return {pair: tuple(links) for pair, links in pairs.items()}

    def links_between(self, src: int, dst: int) -> tuple[Link, ...]:
        """All parallel links from `src` to `dst`, by id; empty if there is none."""
        return self._between.get((src, dst), ())

    def reversed(self) -> Topology:
        """The same network with every link reversed; link ids and generators stay the same."""
        turned = tuple(Link(link.id, link.dst, link.src, link.alpha, link.bandwidth) for link in self.links)
        name = self.name.removesuffix(_REVERSED) if self.name.endswith(_REVERSED) else self.name + _REVERSED
        return replace(self, name=name, links=turned)

    @cached_property
    def speeds(self) -> npt.NDArray[np.int64]:
        """Per link, the number of its pair of alpha and bandwidth; pairs are numbered from 0 in order of occurrence."""
        numbers: dict[tuple[float, Fraction], int] = {}
        # Hashing a Fraction is slow, and most links share one object, so objects are looked up by address first.
        met: dict[tuple[float, int], int] = {}
        column = []
        for link in self.links:
            known = met.get((link.alpha, id(link.bandwidth)))
            if known is None:
                known = numbers.setdefault((link.alpha, link.bandwidth), len(numbers))
                met[link.alpha, id(link.bandwidth)] = known
            column.append(known)
        return np.array(column, dtype=np.int64)

    @cached_property
    def ends(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Sources and destinations of all links, in two columns."""
        count = len(self.links)
        sources = np.fromiter((link.src for link in self.links), dtype=np.int64, count=count)
        return sources, np.fromiter((link.dst for link in self.links), dtype=np.int64, count=count)

    def link_permutation(self, generator: Permutation) -> Permutation:
        """The permutation of links under `generator`; raises `TopologyError` if `generator` is not an automorphism.

        Identical parallel links keep their order, so the map is compatible with composition of automorphisms.
        """
        nodes = np.asarray(generator, dtype=np.int64)
        here, there = self._wires(), self._wires(nodes)
        places, arrivals = np.argsort(here, kind="stable"), np.argsort(there, kind="stable")
        if not np.array_equal(here[places], there[arrivals]):
            raise TopologyError(self._lost_link(nodes))
        image = np.empty(len(places), dtype=np.int64)
        image[arrivals] = places
        return tuple(image.tolist())

    def _wires(self, moved: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """Per link one number for its source, destination and speed, with the ends mapped by `moved`."""
        sources, destinations = self.ends if moved is None else (moved[self.ends[0]], moved[self.ends[1]])
        return (self.speeds * len(self.nodes) + sources) * len(self.nodes) + destinations

    def _lost_link(self, moved: npt.NDArray[np.int64]) -> str:
        """Describes the first link whose image is not a link."""
        free: dict[int, int] = {}
        for wire in self._wires().tolist():
            free[wire] = free.get(wire, 0) + 1
        for link, wire in zip(self.links, self._wires(moved).tolist(), strict=True):
            if not free.get(wire):
                return (
                    f"it maps link {link.id} ({link.src} -> {link.dst}) to {moved[link.src]} -> {moved[link.dst]}, "
                    "where no such link is left"
                )
            free[wire] -= 1
        raise AssertionError("every link has an image")

    def _repr_html_(self) -> str:
        return html_of(self)

    def to_networkx(self) -> networkx.MultiDiGraph:
        """This topology as a networkx graph. Nodes are their names and have the attributes `id`, `kind`, and, if not
        the default, `multicast`, `reduces`, `place` and `aggregator`; edges have `id`, `alpha` (s) and `bandwidth`
        (bytes/s, a Fraction). `from_networkx` is the inverse except for generators: an edit may have broken them."""
        import networkx

        graph = networkx.MultiDiGraph(name=self.name, **({"about": self.about} if self.about else {}))
        for node in self.nodes:
            more: dict[str, Any] = {
                "multicast": node.multicast,
                "reduces": node.reduces,
                "place": node.place,
                "aggregator": node.aggregator,
            }
            graph.add_node(
                node.name, id=node.id, kind=node.kind, **{key: value for key, value in more.items() if value}
            )
        for link in self.links:
            src, dst = self.nodes[link.src].name, self.nodes[link.dst].name
            graph.add_edge(src, dst, id=link.id, alpha=link.alpha, bandwidth=link.bandwidth)
        return graph

    @staticmethod
    def from_networkx(graph: networkx.Graph, name: str = "") -> Topology:
        """The network of any networkx graph: directed (an edge is a link) or undirected (an edge is a cable).

        Nodes without a `kind` are ranks; edges without `bandwidth` and `alpha` get those of abstract families, 1e9
        bytes/s and 1 us. Both may have units, as in files: "25GB/s", "700ns". Nodes and edges with an `id` are ordered
        by it; the rest keep the graph's order, with ranks first.

        name    default: the graph's own

        Raises TopologyError that names the node or the edge.
        """
        order = _in_order([(data, node) for node, data in graph.nodes(data=True)])
        order.sort(key=lambda entry: entry[0].get("kind", "rank") != "rank")
        place = {node: number for number, (_, node) in enumerate(order)}
        nodes = tuple(_node_of(number, node, data) for number, (data, node) in enumerate(order))
        links: list[Link] = []
        for data, (src, dst) in _in_order([(data, (src, dst)) for src, dst, data in graph.edges(data=True)]):
            where = f"edge {src!r} -> {dst!r}"
            alpha = _quantity(where, data, "alpha", 1e-6, seconds)
            bandwidth = _quantity(where, data, "bandwidth", Fraction(10**9), rate)
            for one, other in ((src, dst),) if graph.is_directed() else ((src, dst), (dst, src)):
                links.append(Link(len(links), place[one], place[other], float(alpha), Fraction(bandwidth)))
        about = graph.graph.get("about", "")
        return Topology(name or str(graph.graph.get("name") or "graph"), nodes, tuple(links), about=str(about))

    def renamed(self, name: str) -> Topology:
        """The same network under another name."""
        twin = copy.copy(self)
        object.__setattr__(twin, "name", name)
        return twin

    def with_aggregator(self, aggregator: Aggregator, pattern: str = "*") -> Topology:
        """The same network, where switches whose names match the shell `pattern` add as `aggregator` does.

        Generators that map such a switch to another kind of switch are dropped. Raises `TopologyError` if no switch
        matches.
        """
        chosen = {node.id for node in self.nodes if node.kind == "switch" and fnmatchcase(node.name, pattern)}
        if not chosen:
            switches = [node.name for node in self.nodes if node.kind == "switch"]
            known = f"its switches are {', '.join(switches[:8])}{', ..' if len(switches) > 8 else ''}"
            raise TopologyError(
                f"{self.name}: no switch is named {pattern!r}, so none can be given aggregator {aggregator.name}; "
                f"{known if switches else 'it has no switches'}"
            )
        nodes = tuple(
            replace(node, reduces=True, multicast=node.multicast or aggregator.multicast, aggregator=aggregator)
            if node.id in chosen
            else node
            for node in self.nodes
        )
        fitting = tuple(generator for generator in self.generators if all(generator[node] in chosen for node in chosen))
        return replace(self, nodes=nodes, generators=fitting)

    def _check_generators(self) -> None:
        size = len(self.nodes)
        kinds: dict[tuple[object, ...], int] = {}
        kind = np.array([kinds.setdefault(_abilities(node), len(kinds)) for node in self.nodes], dtype=np.int64)
        wires = np.sort(self._wires())
        for position, generator in enumerate(self.generators):
            what = f"generator {position}"
            if not _is_permutation(generator, size):
                raise TopologyError(f"{what} is not a permutation of the node ids 0..{size - 1}")
            moved = np.array(generator, dtype=np.int64)
            unlike = np.flatnonzero(kind[moved] != kind)
            if len(unlike):
                node = self.nodes[unlike[0]]
                image = self.nodes[generator[node.id]]
                raise TopologyError(
                    f"{what} maps node {node.id} ({node.kind}) to node {image.id} ({image.kind}), "
                    "which is of another kind"
                )
            if not np.array_equal(np.sort(self._wires(moved)), wires):
                raise TopologyError(f"{what} is not an automorphism: {self._lost_link(moved)}")


def _in_order(entries: list[tuple[dict[str, Any], Any]]) -> list[tuple[dict[str, Any], Any]]:
    """Sorted by `id` if all entries have one and all differ."""
    ids = [data.get("id") for data, _ in entries]
    if all(isinstance(one, int) for one in ids) and len(set(ids)) == len(ids):
        return sorted(entries, key=lambda entry: int(entry[0]["id"]))
    return entries


def _node_of(number: int, node: object, data: dict[str, Any]) -> Node:
    """Node `number` of a topology, from a graph's node and its attributes."""
    kind, aggregator, place = data.get("kind", "rank"), data.get("aggregator"), data.get("place")
    if kind not in NODE_KINDS:
        raise TopologyError(f"node {node!r} has kind {kind!r}; a node is one of {', '.join(NODE_KINDS)}")
    if aggregator is not None and not isinstance(aggregator, Aggregator):
        raise TopologyError(f"node {node!r} has aggregator {aggregator!r}; it must be an Aggregator")
    if place is not None and not (isinstance(place, tuple) and len(place) == 2):
        raise TopologyError(f"node {node!r} has place {place!r}; it must be (x, y)")
    return Node(number, kind, str(node), bool(data.get("multicast")), bool(data.get("reduces")), place, aggregator)


def _quantity(
    where: str, data: dict[str, Any], key: str, default: float | Fraction, read: Callable[[str], float | Fraction]
) -> float | Fraction:
    """An edge attribute: a number, or text with a unit."""
    value = data.get(key, default)
    try:
        return read(value) if isinstance(value, str) else Fraction(value)
    except (ValueError, OverflowError, TypeError):
        raise TopologyError(f"{where} has {key} {value!r}; that is no {key}") from None


def _abilities(node: Node) -> tuple[object, ...]:
    """What an automorphism preserves about a node."""
    return node.kind, node.multicast, node.reduces, node.aggregator


def _is_permutation(generator: Sequence[int], size: int) -> bool:
    if len(generator) != size or not all(0 <= image < size for image in generator):
        return False
    return bool((np.bincount(np.array(generator, dtype=np.int64), minlength=size) == 1).all())


_REVERSED = " reversed"


def _grouped(links: tuple[Link, ...], keys: list[int], count: int) -> tuple[tuple[Link, ...], ...]:
    groups: list[list[Link]] = [[] for _ in range(count)]
    for key, link in zip(keys, links, strict=True):
        groups[key].append(link)
    return tuple(tuple(group) for group in groups)


def _check_nodes(nodes: tuple[Node, ...]) -> None:
    if not nodes or nodes[0].kind != "rank":
        raise TopologyError("a topology needs at least one rank, and its ranks are the first nodes")
    names: dict[str, int] = {}
    forwarders_began = False
    for position, node in enumerate(nodes):
        if node.id != position:
            raise TopologyError(f"node {position} carries id {node.id}; ids are positions, so it must be {position}")
        if node.kind not in NODE_KINDS:
            raise TopologyError(f"node {position} has kind {node.kind!r}; a node is one of {', '.join(NODE_KINDS)}")
        if node.kind != "rank":
            forwarders_began = True
        elif forwarders_began:
            raise TopologyError(f"node {position} is a rank after a switch or NIC; ranks come first")
        if (node.multicast or node.reduces) and node.kind != "switch":
            raise TopologyError(f"node {position} is a {node.kind}; only a switch multicasts or reduces")
        if node.aggregator is not None and not node.reduces:
            raise TopologyError(f"node {position} has aggregator {node.aggregator.name} but does not reduce")
        if not (node.name and node.name.isprintable()):
            raise TopologyError(f"node {position} has the name {node.name!r}; a name is printable and not empty")
        if node.name in names:
            raise TopologyError(f"nodes {names[node.name]} and {position} share the name {node.name!r}")
        names[node.name] = position


def _check_links(nodes: tuple[Node, ...], links: tuple[Link, ...]) -> None:
    count = len(nodes)
    sound: set[int] = set()  # bandwidths already checked, by object address, because most links share one object
    for position, link in enumerate(links):
        if link.id != position:
            raise TopologyError(f"link {position} carries id {link.id}; ids are positions, so it must be {position}")
        if not (0 <= link.src < count and 0 <= link.dst < count):
            end = link.dst if 0 <= link.src < count else link.src
            raise TopologyError(f"link {position} ends at node {end}; nodes are 0..{count - 1}")
        if link.src == link.dst:
            raise TopologyError(f"link {position} leads from node {link.src} to itself")
        if not 0 <= link.alpha < math.inf:
            raise TopologyError(f"link {position} has alpha {link.alpha}; it is in seconds, finite and not negative")
        if id(link.bandwidth) not in sound:
            if not isinstance(link.bandwidth, Fraction):
                raise TopologyError(f"link {position} has bandwidth {link.bandwidth!r}; it must be an exact Fraction")
            if link.bandwidth <= 0:
                raise TopologyError(f"link {position} has bandwidth {link.bandwidth}; it is in bytes/s and positive")
            sound.add(id(link.bandwidth))
