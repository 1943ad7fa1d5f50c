"""A damaged topology: some nodes and links are lost, some links have only a part of their bandwidth.

    without=rank5      a node, by its name as `topo show` and `topo convert` print it; a rank also by its number
    without=0-1        all links between two nodes, both directions      0 ── 1          0    1
    without=0->1       those of one direction                                 │    becomes     │
    slowed=0-1@50%     they keep half of their bandwidth                 2 ── 3          2 ── 3

Nodes keep the names of the intact topology. Numbers change, because ids are positions; `Degraded` has the new ones.
Switches and NICs without any link remain as nodes.

Symmetry: the automorphisms of the declared group that leave the damage in place (graph/stabilizer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syntony.base.wording import did_you_mean
from syntony.topologies.graph.stabilizer import Mark, stabilizer
from syntony.topologies.topology import Link, Permutation, Topology, TopologyError

Integers = NDArray[np.signedinteger]


@dataclass(frozen=True, eq=False)
class Degraded:
    """The damaged topology, and the new numbers of its nodes and links.

    node_at  by node of the intact topology: its new number; -1: lost
    link_at  by link of the intact topology: its new number; -1: lost
    """

    topology: Topology
    node_at: Integers
    link_at: Integers


def degraded(topology: Topology, without: Sequence[str] = (), slowed: Sequence[str] = ()) -> Degraded:
    """The topology without some nodes and links, and with some slower ones; see the module docstring.

    `parse` reads the resulting name. Raises TopologyError if there is no such node or link, or no rank is left.
    """
    lost_nodes: set[int] = set()
    lost_links: set[int] = set()
    share: dict[int, Fraction] = {}
    marks: list[tuple[Mark, bool]] = []
    for text in without:
        node = _node(topology, text)
        if node is not None:
            lost_nodes.add(node)
            marks.append(((node,), True))
        else:
            mark, directed, links = _wire(topology, text)
            lost_links.update(links)
            marks.append((mark, directed))
    for text in slowed:
        wire, at, part = text.rpartition("@")
        if not at:
            raise TopologyError(
                f"{topology.name}: slowed={text} does not say how much bandwidth is left; write slowed={text}@50%"
            )
        mark, directed, links = _wire(topology, wire)
        share |= dict.fromkeys(links, _part(topology, text, part))
        marks.append((mark, directed))

    generators: list[Permutation] = list(topology.generators)
    for mark, directed in marks:
        generators = stabilizer(len(topology.nodes), generators, mark, directed) if generators else []
    name = ",".join([topology.name, *(f"without={text}" for text in without), *(f"slowed={text}" for text in slowed)])
    return _rest(topology, lost_nodes, lost_links, share, generators, name)


def _rest(
    topology: Topology,
    lost_nodes: set[int],
    lost_links: set[int],
    share: dict[int, Fraction],
    generators: list[Permutation],
    name: str,
) -> Degraded:
    kept_nodes = [node for node in topology.nodes if node.id not in lost_nodes]
    if not any(node.kind == "rank" for node in kept_nodes):
        raise TopologyError(f"{name}: no rank is left")
    node_at = np.full(len(topology.nodes), -1)
    node_at[[node.id for node in kept_nodes]] = np.arange(len(kept_nodes))
    numbers = node_at.tolist()
    kept_links = [
        link
        for link in topology.links
        if link.id not in lost_links and link.src not in lost_nodes and link.dst not in lost_nodes
    ]
    link_at = np.full(len(topology.links), -1)
    link_at[[link.id for link in kept_links]] = np.arange(len(kept_links))
    links = tuple(
        Link(
            position,
            numbers[link.src],
            numbers[link.dst],
            link.alpha,
            link.bandwidth * share[link.id] if link.id in share else link.bandwidth,
        )
        for position, link in enumerate(kept_links)
    )
    nodes = tuple(replace(node, id=position) for position, node in enumerate(kept_nodes))
    # Lost nodes are marked, so every generator fixes them.
    moved = tuple(tuple(numbers[generator[node.id]] for node in kept_nodes) for generator in generators)
    return Degraded(Topology(name, nodes, links, moved, topology.about), node_at, link_at)


def _node(topology: Topology, text: str) -> int | None:
    """The node of that name, or the rank of that number; None if there is neither."""
    if text.isascii() and text.isdecimal() and int(text) < topology.ranks:
        return int(text)
    return next((node.id for node in topology.nodes if node.name == text), None)


def _wire(topology: Topology, text: str) -> tuple[Mark, bool, list[int]]:
    """The ends of `A-B` or `A->B` (names may contain dashes), whether one direction is meant, and its links."""
    directed = "->" in text
    dash = "->" if directed else "-"
    words = text.split(dash)
    splits = [(dash.join(words[:i]), dash.join(words[i:])) for i in range(1, len(words))]
    if not splits:
        raise TopologyError(
            f"{topology.name}: {_unknown(topology, text)}; write a link as 0-1, one direction of it as 0->1"
        )
    for one, other in splits:
        ends = _node(topology, one), _node(topology, other)
        if ends[0] is not None and ends[1] is not None:
            break
    else:
        one, other = splits[0]
        missing = one if _node(topology, one) is None else other
        raise TopologyError(f"{topology.name}: {text} is not a link: {_unknown(topology, missing)}")
    src, dst = ends
    assert src is not None
    assert dst is not None
    links = [link.id for link in topology.links_between(src, dst)]
    if not directed:
        links += [link.id for link in topology.links_between(dst, src)]
    if not links:
        around = sorted({link.dst for link in topology.links_from(src)})
        names = ", ".join(topology.nodes[node].name for node in around[:8]) + (", .." if len(around) > 8 else "")
        raise TopologyError(
            f"{topology.name}: no link leads from {topology.nodes[src].name} to {topology.nodes[dst].name}; "
            f"those from {topology.nodes[src].name} lead to {names or 'nowhere'}"
        )
    return ((src, dst) if directed else (min(src, dst), max(src, dst))), directed, links


def _unknown(topology: Topology, text: str) -> str:
    hint = did_you_mean(text, (node.name for node in topology.nodes))
    return f"no node is named {text!r}{hint}; ranks are 0..{topology.ranks - 1}"


def _part(topology: Topology, text: str, part: str) -> Fraction:
    """The part of the bandwidth that is left: `50%` or `1/2`, above 0 and below 1."""
    try:
        share = Fraction(part.removesuffix("%")) / (100 if part.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share < 1:
        raise TopologyError(
            f"{topology.name}: slowed={text}: {part!r} is not a part of a bandwidth; "
            "write what is left, such as 50% or 1/2"
        )
    return share
