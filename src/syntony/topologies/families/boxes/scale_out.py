r"""Scale-out: several boxes of one kind on one network.

                     network                one switch: a fat tree at full bisection
                   /    │    \              wire `network`
               nic0.0 nic0.1  nic1.0 ...
                 │      │       │           wire `inside`
            ┌─ box 0 ─────┐  ┌─ box 1 ──
            │  any fabric │  │  the same

The contents of a box are any Topology. This file repeats it, connects the NICs to their nodes, and joins them by a
network. A single box has neither network nor NICs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from syntony.topologies.families.boxes.rates import Wire
from syntony.topologies.graph.symmetry import moving, swap_and_turn
from syntony.topologies.graph.wiring import Place, Wiring, require
from syntony.topologies.topology import Permutation, Topology


@dataclass(frozen=True)
class Nics:
    """The NICs of a box: `beside[i]` are the nodes of the box that NIC i is joined to, each by a cable `inside`.

    `places[i]` are the coordinates of NIC i in the drawing of a box; the network switch is drawn beyond the NICs.
    """

    beside: tuple[tuple[int, ...], ...]
    places: tuple[Place, ...]
    inside: Wire
    network: Wire


def scale_out(name: str, box: Topology, boxes: int, nics: Nics) -> Topology:
    """`boxes` times `box` on one network; for one box, the box as it is.

    Ranks are numbered box by box. Symmetry: permute boxes; the symmetries of a box that map its NICs to NICs; exchange
    NICs that are connected to the same nodes.
    """
    family = name.partition(":")[0]
    require(boxes >= 1, f"{family}: boxes is {boxes}; it must be at least 1")
    if boxes == 1:
        return box.renamed(name)
    wiring = Wiring(name)
    across = _Across(box, nics)
    ids: list[list[int]] = [[] for _ in range(boxes)]
    for b in range(boxes):
        for rank in range(box.ranks):
            ids[b].append(wiring.rank(across.place(b, rank)))
    for b in range(boxes):
        for node in box.nodes[box.ranks :]:
            ids[b].append(
                wiring.switch(
                    f"box{b}.{node.name}", across.place(b, node.id), multicast=node.multicast, reduces=node.reduces
                )
            )
    for b in range(boxes):
        for n in range(len(nics.beside)):
            ids[b].append(wiring.nic(f"nic{b}.{n}", across.nic_place(b, n)))
    network = wiring.switch("network", across.network_place(boxes))

    cables = [(link.src, link.dst, link.bandwidth, link.alpha) for link in box.links if link.src < link.dst]
    first_nic = len(box.nodes)
    for own in ids:
        for src, dst, bandwidth, alpha in cables:
            wiring.cable(own[src], own[dst], bandwidth, alpha)
        for n, ends in enumerate(nics.beside):
            for end in ends:
                wiring.cable(own[end], own[first_nic + n], nics.inside.bandwidth, nics.inside.alpha)
            wiring.cable(own[first_nic + n], network, nics.network.bandwidth, nics.network.alpha)

    size = network + 1
    moves = swap_and_turn(size, ids)
    for inside in _symmetries(box, nics.beside):
        moves.append(moving(size, {ids[0][node]: ids[0][image] for node, image in enumerate(inside)}))
    return wiring.topology(moves)


def _symmetries(box: Topology, beside: tuple[tuple[int, ...], ...]) -> list[Permutation]:
    """The symmetries of one box with its NICs, which are numbered after its nodes."""
    nodes = len(box.nodes)
    sitting: dict[frozenset[int], list[int]] = defaultdict(list)
    for n, ends in enumerate(beside):
        sitting[frozenset(ends)].append(nodes + n)
    moves = []
    for generator in box.generators:
        image = dict(enumerate(generator))
        for seats, numbers in sitting.items():
            there = sitting.get(frozenset(generator[end] for end in seats), [])
            image |= dict(zip(numbers, there, strict=False))
        if len(set(image.values())) == nodes + len(beside):
            moves.append(moving(nodes + len(beside), image))
    for numbers in sitting.values():
        moves += swap_and_turn(nodes + len(beside), [[number] for number in numbers])
    return moves


class _Across:
    """The coordinates of nodes when the boxes are drawn side by side."""

    def __init__(self, box: Topology, nics: Nics) -> None:
        self._inside = [node.place or (0.0, 0.0) for node in box.nodes]
        self._nics = nics.places
        xs = [x for x, _ in (*self._inside, *self._nics)]
        self._left, self._right = min(xs), max(xs)
        self._pitch = self._right - self._left + 1.5

    def place(self, box: int, node: int) -> Place:
        x, y = self._inside[node]
        return x + box * self._pitch, y

    def nic_place(self, box: int, nic: int) -> Place:
        x, y = self._nics[nic]
        return x + box * self._pitch, y

    def network_place(self, boxes: int) -> Place:
        width = self._pitch * boxes - 1.5
        top = max(y for _, y in (*self._inside, *self._nics))
        return self._left + width / 2, top + max(1.2, 0.14 * width)
