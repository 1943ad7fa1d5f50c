"""Graph algorithms of the core against networkx and SciPy, on random graphs."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra, maximum_flow

from syntony._solve import FlowNetwork, ShortestPaths
from tests.sampled import examples


@dataclass(frozen=True)
class Graph:
    """Parallel arcs, two-way pairs, dead ends and unreachable nodes all occur."""

    nodes: int
    ends: list[tuple[int, int]]
    numbers: list[int]

    def flow(self) -> FlowNetwork:
        return FlowNetwork(self.nodes, *self.columns(), np.asarray(self.numbers, np.int64))

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        ends = np.asarray(self.ends, np.int32).reshape(-1, 2)
        return np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])

    def value(self, source: int, sink: int) -> int:
        """By networkx."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(self.nodes))
        for (tail, head), number in zip(self.ends, self.numbers, strict=True):
            known = graph[tail][head]["capacity"] if graph.has_edge(tail, head) else 0
            graph.add_edge(tail, head, capacity=known + number)
        return int(nx.maximum_flow_value(graph, source, sink))

    def exits(self, inside: np.ndarray) -> int:
        return sum(
            number
            for (tail, head), number in zip(self.ends, self.numbers, strict=True)
            if inside[tail] and not inside[head]
        )

    def net_out_of(self, node: int, flows: np.ndarray) -> int:
        return sum(
            int(flow) * ((tail == node) - (head == node)) for (tail, head), flow in zip(self.ends, flows, strict=True)
        )


@st.composite
def graphs(draw: st.DrawFn, least: int = 2, largest: int = 10**12) -> Graph:
    nodes = draw(st.integers(least, 8))
    node = st.integers(0, nodes - 1)
    arcs = draw(st.lists(st.tuples(node, node, st.integers(0, largest)).filter(lambda a: a[0] != a[1]), max_size=30))
    return Graph(nodes, [arc[:2] for arc in arcs], [arc[2] for arc in arcs])


@examples(150)
@given(graph=graphs())
def test_max_flow_and_both_cuts(graph: Graph) -> None:
    source, sink = 0, graph.nodes - 1
    network = graph.flow()
    value = network.augment(source, sink)
    assert value == graph.value(source, sink)
    near, far = network.reachable_from(source), network.reaching(sink)
    assert near[source]
    assert far[sink]
    assert not (near & far).any()
    assert graph.exits(near) == graph.exits(~far) == value
    flows = network.flows()
    assert [network.flow(arc) for arc in range(network.arcs)] == flows.tolist()
    assert all(0 <= flow <= number for flow, number in zip(flows, graph.numbers, strict=True))
    for node in range(graph.nodes):
        assert graph.net_out_of(node, flows) == {source: value, sink: -value}.get(node, 0)


@examples(100)
@given(graph=graphs(least=3), data=st.data())
def test_a_flow_moves_on_from_sink_to_sink(graph: Graph, data: st.DataObject) -> None:
    """As much reaches every sink as from scratch, up to what was sent in the first place."""
    amount = data.draw(st.integers(0, graph.value(0, 1)))
    network = graph.flow()
    assert network.augment(0, 1, amount) == amount
    at = 1
    for sink in data.draw(st.permutations(range(2, graph.nodes))):
        moved = network.augment(at, sink, amount)
        assert moved == min(amount, graph.value(0, sink))
        if moved < amount:
            assert graph.exits(~network.reaching(sink)) == moved
            network.augment(sink, at, moved)
        else:
            at = sink


@examples(100)
@given(graph=graphs(), data=st.data())
def test_a_flow_continues_when_capacities_change(graph: Graph, data: st.DataObject) -> None:
    source, sink = 0, graph.nodes - 1
    network = graph.flow()
    value = network.augment(source, sink)
    if graph.ends:
        arc = data.draw(st.integers(0, len(graph.ends) - 1))
        flow = int(network.flows()[arc])
        if flow:
            with pytest.raises(ValueError, match=f"arc {arc} carries {flow}; its capacity cannot become {flow - 1}"):
                network.set_capacity(arc, flow - 1)
        numbers = list(graph.numbers)
        numbers[arc] = data.draw(st.integers(flow, flow + 10**12))
        network.set_capacity(arc, numbers[arc])
        changed = Graph(graph.nodes, graph.ends, numbers)
        value += network.augment(source, sink)
        assert value == changed.value(source, sink)
    network.reset()
    assert not network.flows().any()
    assert network.augment(source, sink, value // 2) == value // 2
    assert network.augment(source, sink) == value - value // 2


def test_larger_graphs_against_scipy() -> None:
    """SciPy's routine takes 32 bits only, but large graphs."""
    for seed in range(20):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        nodes, arcs = 300, int(rng.integers(600, 6000))
        ends = rng.integers(0, nodes, (arcs, 2)).astype(np.int32)
        ends = ends[ends[:, 0] != ends[:, 1]]
        numbers = rng.integers(0, 1000, len(ends))
        graph = Graph(nodes, [tuple(pair) for pair in ends.tolist()], numbers.tolist())
        matrix = coo_array((numbers, (ends[:, 0], ends[:, 1])), shape=(nodes, nodes)).tocsr().astype(np.int32)
        network = graph.flow()
        value = network.augment(0, nodes - 1)
        assert value == maximum_flow(matrix, 0, nodes - 1).flow_value
        assert graph.exits(network.reachable_from(0)) == value


def test_capacities_up_to_the_last_bit() -> None:
    tails, heads = np.asarray([0, 0, 1], np.int32), np.asarray([1, 1, 2], np.int32)
    half = 2**60
    network = FlowNetwork(3, tails, heads, np.asarray([half, half, 2 * half], np.int64))
    assert network.augment(0, 2) == 2 * half
    network.set_capacity(0, 2**63 - 1 - 3 * half)
    with pytest.raises(OverflowError, match=r"together exceed 2\^63 - 1"):
        network.set_capacity(0, 2**63 - 3 * half)
    with pytest.raises(OverflowError, match=r"together exceed 2\^63 - 1"):
        FlowNetwork(3, tails, heads, np.asarray([2**62, 2**62, 0], np.int64))


def test_refusals() -> None:
    one = np.asarray([1], np.int64)
    with pytest.raises(ValueError, match=r"arc 0 ends at node 7; nodes are 0\.\.1"):
        FlowNetwork(2, np.asarray([0], np.int32), np.asarray([7], np.int32), one)
    with pytest.raises(ValueError, match="arc 0 has capacity -1; it must not be negative"):
        FlowNetwork(2, np.asarray([0], np.int32), np.asarray([1], np.int32), -one)
    with pytest.raises(ValueError, match="2 tails and 1 heads"):
        FlowNetwork(2, np.asarray([0, 0], np.int32), np.asarray([1], np.int32), one)
    with pytest.raises(ValueError, match="2 capacities for 1 arcs"):
        FlowNetwork(2, np.asarray([0], np.int32), np.asarray([1], np.int32), np.asarray([1, 1], np.int64))
    network = FlowNetwork(2, np.asarray([0], np.int32), np.asarray([1], np.int32), one)
    for source, sink, sentence in ((0, 0, "both node 0"), (0, 5, "node 5 does not exist; there are 2")):
        with pytest.raises(ValueError, match=sentence):
            network.augment(source, sink)
    with pytest.raises(ValueError, match="the limit is -1"):
        network.augment(0, 1, -1)
    with pytest.raises(ValueError, match="arc 1 does not exist; there are 1"):
        network.flow(1)
    with pytest.raises(ValueError, match="node 9 does not exist"):
        network.reaching(9)
    with pytest.raises(ValueError, match="arc 0 has length -1"):
        ShortestPaths(2, np.asarray([0], np.int32), np.asarray([1], np.int32), np.asarray([-1.0]))
    with pytest.raises(ValueError, match="node 2 does not exist"):
        ShortestPaths(2, np.asarray([0], np.int32), np.asarray([1], np.int32), np.asarray([1.0])).distances(2)


@examples(100)
@given(graph=graphs(largest=9))
def test_shortest_paths(graph: Graph) -> None:
    tails, heads = graph.columns()
    paths = ShortestPaths(graph.nodes, tails, heads, np.asarray(graph.numbers, np.float64))
    reference = nx.DiGraph()
    reference.add_nodes_from(range(graph.nodes))
    for (tail, head), number in zip(graph.ends, graph.numbers, strict=True):
        known = reference[tail][head]["weight"] if reference.has_edge(tail, head) else number
        reference.add_edge(tail, head, weight=min(known, number))
    for source in range(graph.nodes):
        expected = nx.single_source_dijkstra_path_length(reference, source)
        assert paths.distances(source).tolist() == [expected.get(node, np.inf) for node in range(graph.nodes)]


def test_shortest_paths_on_larger_graphs() -> None:
    for seed in range(5):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        nodes = 200
        matrix = np.where(rng.random((nodes, nodes)) < 0.03, rng.random((nodes, nodes)) + 0.01, 0)
        tails, heads = np.nonzero(matrix)
        paths = ShortestPaths(nodes, tails.astype(np.int32), heads.astype(np.int32), matrix[tails, heads])
        expected = dijkstra(coo_array(matrix).tocsr())
        assert np.allclose([paths.distances(node) for node in range(nodes)], expected)
