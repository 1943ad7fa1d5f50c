"""Price bounds, for all_to_all: the dual of multi-commodity flow.

Put a price per byte on every link. A byte from s to d pays at least the cheapest path from s to d, and in one second
the network earns at most sum(price * bandwidth). So *any* prices prove

    seconds per byte of size  >=  sum over s, d of share(s, d) * cheapest(s, d)  /  sum of price * bandwidth

(a cut is the special case of price 1 on its exits). The best prices are the dual solution of the flow LP, which HiGHS
solves in floating point. They are then rounded to fractions and the bound is recomputed exactly from those: rounding
can weaken the bound but never make it false. Beyond the LP's reach, cuts at bandwidth boundaries and equal prices
serve.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import lcm

import numpy as np

from synth.bounds.bound import Prices
from synth.bounds.cut import exits_of
from synth.network import Network
from synth.schedule import round_bandwidth

MAX_LP_VARIABLES = 20_000
_DENOMINATORS = (1, 2, 3, 4, 6, 12, 60, 10_000)

Demands = Mapping[int, Mapping[int, int]]
"""demands[s][d]: units of chunk weight from node s to node d."""


def priced(network: Network, demands: Demands) -> Prices:
    """The best prices found for the demands, of which at least one must be to another node."""
    best: Prices | None = None
    for prices in _candidates(network, demands):
        bound = _evaluate(network, demands, prices)
        if best is None or bound.share * best.bandwidth > best.share * bound.bandwidth:
            best = bound
    assert best is not None
    return best


def _candidates(network: Network, demands: Demands) -> Iterator[list[Fraction]]:
    links = network.links
    yield [Fraction(1)] * len(links)
    for src in demands:
        leaving, entering = exits_of(links, frozenset({src})), exits_of(links, frozenset({src}), entering=True)
        for exits in (leaving, entering):
            ids = {link.id for link in exits}
            yield [Fraction(link.id in ids) for link in links]
    for nodes in _islands(network):
        ids = {link.id for link in exits_of(links, nodes)}
        yield [Fraction(link.id in ids) for link in links]
    if len(demands) * len(links) <= MAX_LP_VARIABLES:
        dual = _flow_dual(network, demands)
        for denominator in _DENOMINATORS:
            prices = [Fraction(float(price)).limit_denominator(denominator) for price in dual]
            if any(prices):
                yield prices


def _islands(network: Network) -> Iterator[frozenset[int]]:
    """Node sets that hang together by links faster than some bandwidth: boxes of a cluster, halves of a dumbbell."""
    seen: set[frozenset[int]] = set()
    for floor in sorted({link.bandwidth for link in network.links}):
        label = list(range(len(network.topology.nodes)))

        def root(node: int, label: list[int] = label) -> int:
            while label[node] != node:
                label[node] = label[label[node]]
                node = label[node]
            return node

        for link in network.links:
            if link.bandwidth > floor:
                label[root(link.src)] = root(link.dst)
        islands: dict[int, set[int]] = {}
        for node, use in enumerate(network.usable):
            if use:
                islands.setdefault(root(node), set()).add(node)
        for island in islands.values():
            nodes = frozenset(island)
            if 1 < len(nodes) < sum(network.usable) and nodes not in seen:
                seen.add(nodes)
                yield nodes


def _evaluate(network: Network, demands: Demands, prices: Sequence[Fraction]) -> Prices:
    """The exact bound that the prices prove; its share is infinite nowhere because every demand has a path."""
    scale = lcm(*(price.denominator for price in prices))
    whole = [int(price * scale) for price in prices]
    neighbours: dict[int, list[tuple[int, int]]] = {}
    for link, price in zip(network.links, whole, strict=True):
        neighbours.setdefault(link.src, []).append((link.dst, price))
    owed = 0
    for src, wanted in demands.items():
        distance = _cheapest(neighbours, src)
        owed += sum(weight * distance[dst] for dst, weight in wanted.items())
    used = [(link, price) for link, price in zip(network.links, prices, strict=True) if price]
    return Prices(
        tuple(link.id for link, _ in used),
        tuple(price for _, price in used),
        Fraction(owed, scale) * network.collective.unit,
        sum((price * link.bandwidth for link, price in used), Fraction(0)),
    )


def _cheapest(neighbours: Mapping[int, list[tuple[int, int]]], src: int) -> dict[int, int]:
    distance = {src: 0}
    heap = [(0, src)]
    while heap:
        so_far, node = heapq.heappop(heap)
        if so_far > distance[node]:
            continue
        for head, price in neighbours.get(node, ()):
            through = so_far + price
            if through < distance.get(head, through + 1):
                distance[head] = through
                heapq.heappush(heap, (through, head))
    return distance


def _flow_dual(network: Network, demands: Demands) -> np.ndarray:
    """Dual prices of the capacity rows, scaled to a greatest of 1.

    minimize t  such that  per source and node: inflow - outflow = demand,  per link: all flow <= t * capacity
    """
    from scipy.optimize import linprog
    from scipy.sparse import block_diag, coo_array, csr_array, hstack

    links, nodes = network.links, len(network.topology.nodes)
    unit = round_bandwidth(network.topology)
    columns = np.arange(len(links))
    source_nodes, target_nodes = ([link.src for link in links], [link.dst for link in links])
    balance = csr_array(
        coo_array((np.ones(len(links)), (target_nodes, columns)), shape=(nodes, len(links)))
        - coo_array((np.ones(len(links)), (source_nodes, columns)), shape=(nodes, len(links)))
    )
    rows, wanted = [], []
    for src, demand in demands.items():
        keep = np.asarray([node for node in range(nodes) if node != src and network.usable[node]])
        rows.append(balance[keep])
        wanted.append(np.asarray([demand.get(int(node), 0) for node in keep], float))
    flows = block_diag(rows)
    equal = hstack([flows, csr_array((flows.shape[0], 1))])
    capacity = np.asarray([[-float(link.bandwidth / unit)] for link in links])
    total = hstack([csr_array(np.eye(len(links)))] * len(demands) + [csr_array(capacity)])
    objective = np.zeros(total.shape[1])
    objective[-1] = 1.0
    solved = linprog(
        objective, total.tocsr(), np.zeros(len(links)), equal.tocsr(), np.concatenate(wanted), method="highs"
    )
    if not solved.success:
        return np.zeros(len(links))
    prices = -np.asarray(solved.ineqlin.marginals)
    top = float(prices.max(initial=0.0))
    return np.maximum(prices, 0.0) / top if top > 0 else np.zeros(len(links))
