r"""Hosts: which ranks share a machine, and which NICs the machine has.

        network        s        a switch behind the NICs belongs to no host
                      / \
                   nic   nic    a NIC is the edge of its host
                    |     |
                   sw     sw    a switch that a rank reaches without a NIC is in the box
                  /  \   /  \
                 0    1 2    3  hosts (0 1 sw nic) and (2 3 sw nic)

In a topology without NICs every rank is a host of its own, which forwards data for others where links lead from rank to
rank (a torus).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from syntony.topologies.topology import Topology, TopologyError


@dataclass(frozen=True)
class Host:
    """One host: node ids in ascending order. `nodes` are all of them: ranks, NICs, and the switches in the box."""

    ranks: tuple[int, ...]
    nics: tuple[int, ...]
    nodes: tuple[int, ...]


def hosts_of(topology: Topology) -> tuple[Host, ...]:
    """The hosts, in the order of their lowest ranks; nodes that belong to none are the network.

    Raises TopologyError if a NIC connects two boxes, because it cannot belong to both.
    """
    if not any(node.kind == "nic" for node in topology.nodes):
        return tuple(Host((rank,), (), (rank,)) for rank in range(topology.ranks))
    boxes = list(_boxes(topology))
    box_of = {node: number for number, box in enumerate(boxes) for node in box}
    nics: list[list[int]] = [[] for _ in boxes]
    for node in topology.nodes:
        if node.kind != "nic":
            continue
        owners = sorted({box_of[neighbour] for neighbour in _neighbours(topology, node.id) if neighbour in box_of})
        if len(owners) > 1:
            first, second = (boxes[owner][0] for owner in owners[:2])
            raise TopologyError(
                f"{topology.name}: NIC {node.name} has cables to rank {first}'s box and to rank {second}'s; "
                "a NIC belongs to one host"
            )
        if owners:
            nics[owners[0]].append(node.id)
    return tuple(
        Host(
            tuple(node for node in box if topology.nodes[node].kind == "rank"), tuple(own), tuple(sorted([*box, *own]))
        )
        for box, own in zip(boxes, nics, strict=True)
    )


def _boxes(topology: Topology) -> Iterator[list[int]]:
    """Ranks and the switches they reach without crossing a NIC, in ascending order."""
    seen: set[int] = set()
    for rank in range(topology.ranks):
        if rank in seen:
            continue
        box = [rank]
        seen.add(rank)
        for node in box:  # grows
            for neighbour in _neighbours(topology, node):
                if neighbour not in seen and topology.nodes[neighbour].kind != "nic":
                    seen.add(neighbour)
                    box.append(neighbour)
        yield sorted(box)


def _neighbours(topology: Topology, node: int) -> Iterable[int]:
    yield from (link.dst for link in topology.links_from(node))
    yield from (link.src for link in topology.links_to(node))
