r"""Places for the nodes of a network that says none: hosts side by side, the network's switches above them in layers.

        spine                     switches, by their distance from the hosts
       /     \
    leaf0   leaf1                 each above the middle of what is below it
    /   \   /   \
   nic  nic nic  nic              NICs, the edge of a host
    |  /     |  /
   sw        sw                   switches of a box towards its NICs
   / \      / \
  0   1    2   3                  ranks; below them the other switches of their box
   \ /      \ /
   nvs      nvs
   host     host                  hosts below the same switches are neighbours

In a network of ranks without NICs each rank is a host. One without switches has no layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from syntony.topologies.graph.wiring import Place
from syntony.topologies.hosts import Host, hosts_of
from syntony.topologies.topology import Topology, TopologyError

_APART = 1.3  # between layers
_GAP = 0.7  # between hosts
_LETTER = 0.08  # width of a label's letter; a node's place is a unit apart from the next


def layered(topology: Topology) -> list[Place] | None:
    """The place of every node, neighbours about 1 apart, y upwards; None where there are no switches."""
    if not any(node.kind == "switch" for node in topology.nodes):
        return None
    hosts, layer = _layers(topology)
    place: dict[int, Place] = {}
    left = 0.0
    above = _distances(topology, layer, layer)
    first = max(layer.values()) + 1
    for host in sorted(hosts, key=lambda host: (_leaves(topology, host, above), host.ranks)):
        rows = _by_layer(host.nodes, layer)
        wide = max(sum(_width(topology, node) for node in row) for row in rows.values())
        for at, row in rows.items():
            _spread(topology, row, left, wide, at * _APART, place)
        left += wide + _GAP
    middle = (left - _GAP) / 2
    for at, row in sorted(_by_layer((node for node in above if node not in place), above).items()):
        _stack(topology, row, (at + first) * _APART, middle, place)
    loose = [node.id for node in topology.nodes if node.id not in place]
    _spread(topology, loose, 0.0, sum(_width(topology, node) for node in loose), -_APART, place)
    return [place[node.id] for node in topology.nodes]


def hosts_or_ranks(topology: Topology) -> Sequence[Host]:
    """The hosts; where a NIC belongs to two of them, each rank as one."""
    try:
        return hosts_of(topology)
    except TopologyError:
        return tuple(Host((rank,), (), (rank,)) for rank in range(topology.ranks))


def _layers(topology: Topology) -> tuple[Sequence[Host], dict[int, int]]:
    """The hosts, and the layers of their nodes."""
    hosts = hosts_or_ranks(topology)
    layer: dict[int, int] = {}
    for host in hosts:
        for node in host.nodes:
            kind = topology.nodes[node].kind
            beside_nic = any(topology.nodes[other].kind == "nic" for other in _neighbours(topology, node))
            layer[node] = {"rank": 1, "nic": 3}.get(kind, 2 if beside_nic else 0)
    number = {at: i for i, at in enumerate(sorted(set(layer.values())))}  # no empty layers
    return hosts, {node: number[at] for node, at in layer.items()}


def _distances(topology: Topology, sources: Iterable[int], inside: dict[int, int]) -> dict[int, int]:
    """Of every node outside the hosts that they reach, how many others lie between: 0 beside a host."""
    found: dict[int, int] = {}
    edge, far = list(sources), 0
    while edge:
        next_to = (other for node in edge for other in _neighbours(topology, node))
        edge = list(dict.fromkeys(other for other in next_to if other not in inside and other not in found))
        found |= dict.fromkeys(edge, far)
        far += 1
    return found


def _leaves(topology: Topology, host: Host, above: dict[int, int]) -> tuple[int, ...]:
    """The switches that a host hangs on."""
    return tuple(sorted({other for node in host.nodes for other in _neighbours(topology, node) if other in above}))


def _by_layer(nodes: Iterable[int], layer: dict[int, int]) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = defaultdict(list)
    for node in nodes:
        rows[layer[node]].append(node)
    return rows


def _width(topology: Topology, node: int) -> float:
    """What a node takes of its row."""
    return max(1.0, 0.3 + _LETTER * len(topology.nodes[node].name))


def _spread(
    topology: Topology, row: Sequence[int], left: float, wide: float, y: float, place: dict[int, Place]
) -> None:
    """Evenly over a width, in their order."""
    needed = sum(_width(topology, node) for node in row)
    stretch = wide / needed if needed else 1.0
    for node in row:
        step = _width(topology, node) * stretch
        place[node] = (left + step / 2, y)
        left += step


def _stack(topology: Topology, row: Sequence[int], y: float, middle: float, place: dict[int, Place]) -> None:
    """Each above the middle of its neighbours that have a place, and far enough from the next."""
    wanted = {}
    for node in row:
        below = [place[other][0] for other in _neighbours(topology, node) if other in place]
        wanted[node] = sum(below) / len(below) if below else middle
    placed: list[list[tuple[int, float]]] = []  # runs of nodes that touch, each node with its place from the run's left
    begin: list[float] = []
    for node in sorted(row, key=lambda node: (round(wanted[node], 6), node)):
        placed.append([(node, _width(topology, node) / 2)])
        begin.append(wanted[node] - _width(topology, node) / 2)
        while len(placed) > 1 and begin[-2] + _length(topology, placed[-2]) > begin[-1]:
            run, start = placed.pop(), begin.pop()
            ends = _length(topology, placed[-1])
            placed[-1] += [(one, ends + at) for one, at in run]
            begin[-1] = sum(wanted[one] - at for one, at in placed[-1]) / len(placed[-1])
    for run, start in zip(placed, begin, strict=True):
        for node, at in run:
            place[node] = (start + at, y)


def _length(topology: Topology, run: Sequence[tuple[int, float]]) -> float:
    return sum(_width(topology, node) for node, _ in run)


def _neighbours(topology: Topology, node: int) -> Iterable[int]:
    yield from (link.dst for link in topology.links_from(node))
    yield from (link.src for link in topology.links_to(node))
