"""Weights that go round: where each shard is in a generated step, and how many are at a rank at once."""

from __future__ import annotations

import pytest

from syntony.overlap.policies.passes.backward import split_backward
from syntony.overlap.policies.table import policy
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import BACKWARD, FORWARD
from syntony.overlap.step.rotation import brings, is_gradient, is_turn

MODEL = model_named("gpt:hidden=64,blocks=2,heads=8,seq=32,vocab=64")


def step(**sizes: object) -> Graph:
    layout = Layout(rotate=True, microbatches=2, **sizes)  # type: ignore[arg-type]
    return generate(layers_of(MODEL, layout, Form(layout.tp)), layout)


def brought_by(graph: Graph, op: Op) -> Op:
    """The Op that brings the weights of a segment."""
    (found,) = (graph[key] for key in op.deps if is_turn(graph, graph[key]) and not is_gradient(graph, graph[key]))
    return found


def owner(graph: Graph, turn: Op, rank: int) -> int:
    """Whose shard a turn brings to a rank: it follows the shard back to where it begins."""
    ranks, way = graph.groups["tp"], 1 if turn.key.direction == FORWARD else -1
    before = [graph[key] for key in turn.deps if is_turn(graph, graph[key]) and key.layer == turn.layer]
    chain = [one for one in before if one.key.direction == turn.key.direction and not is_gradient(graph, one)]
    source = (rank - way) % ranks
    return owner(graph, chain[0], source) if chain else source


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_every_rank_computes_with_every_shard_once(ranks: int) -> None:
    """Forward and backward, and with the same shard in both."""
    graph = step(tp=ranks)
    for kind, way in ((Kind.FORWARD, FORWARD), (Kind.BACKWARD, BACKWARD)):
        for rank in range(ranks):
            for i, layer in enumerate(graph.layers):
                met: dict[str, list[int]] = {}
                for op in (op for op in graph if (op.kind, op.layer, op.microbatch) == (kind, i, 1)):
                    spec = brings(layer, op.segment)
                    if spec is not None:
                        turn = brought_by(graph, op)
                        assert turn.key.direction == way
                        assert owner(graph, turn, rank) == (rank - spec.rotates) % ranks
                        met.setdefault(spec.name.rpartition("_")[0], []).append(owner(graph, turn, rank))
                assert met
                assert all(sorted([rank, *others]) == list(range(ranks)) for others in met.values())


@pytest.mark.parametrize("sizes", [{}, {"recompute": True}, {"pp": 2, "schedule": "zb1p"}, {"dp": 2, "zero": 2}])
@pytest.mark.parametrize("prefetch", [1, 2])
def test_few_shards_are_at_a_rank(sizes: dict[str, object], prefetch: int) -> None:
    """Beside its own, the shard in use and `prefetch` on their way."""
    graph = step(tp=4, prefetch=prefetch, **sizes)
    cost = Cost(1e9, dict.fromkeys(("tp", "dp", "pp"), ring_wire(4, 1e9, 1e-6)))
    times = simulate(policy("fifo").plan(graph, cost), cost)
    turns = [(row, op) for row, op in enumerate(graph) if is_turn(graph, op)]
    kinds = (Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT)
    using = [
        (row, op) for row, op in enumerate(graph) if op.kind in kinds and brings(graph.layers[op.layer], op.segment)
    ]
    users = {brought_by(graph, op).key: row for row, op in using}
    for device in graph.devices:
        weights = [(row, op) for row, op in turns if op.device == device and not is_gradient(graph, op)]
        for row, _ in weights:
            now = times.launch[row]
            here = [one for one, op in weights if times.launch[one] <= now < times.end[users[op.key]]]
            assert len(here) <= 1 + prefetch


def test_a_split_backward_passes_on_what_its_second_half_makes() -> None:
    graph = split_backward(step(tp=4))
    gradients = [op for op in graph if is_gradient(graph, op)]
    assert gradients
    for op in gradients:
        assert [graph[key].kind for key in op.deps if graph[key].lane == COMPUTE] == [Kind.BACKWARD_WEIGHT]


def test_nothing_rotates_elsewhere() -> None:
    layout = Layout(tp=4)
    graph = generate(layers_of(MODEL, layout, Form(4)), layout)
    assert not any(is_turn(graph, op) for op in graph)
