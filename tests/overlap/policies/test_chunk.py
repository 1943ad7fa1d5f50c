"""What `chunk` cuts: whole layers where rows travel, what lies between two all_to_alls where experts get rows."""

from __future__ import annotations

from dataclasses import replace

from syntony.overlap.policies.passes.cut import ALIGNMENT, chunk, divisors, slice
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import CommSpec, LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import Kind
from syntony.overlap.step.op_key import OpKey
from tests.overlap.models import moved
from tests.overlap.plans import key

ROWS = (
    CommSpec("enter", "tp", None, Kind.ALL_REDUCE, 8, most=240),
    CommSpec("leave", "tp", Kind.ALL_REDUCE, None, 8, most=240),
)
GROUPS = (
    CommSpec("sizes", "ep", Kind.ALL_TO_ALL, None, 8, parts=""),
    CommSpec("dispatch", "ep", Kind.ALL_TO_ALL, Kind.ALL_TO_ALL, 8, parts="experts", most=240),
    CommSpec("combine", "ep", Kind.ALL_TO_ALL, Kind.ALL_TO_ALL, 8, parts="experts", most=240),
)
LAYERS = (
    LayerSpec("attention", 64, (1.0, 1.0, 1.0), ROWS),
    LayerSpec("router", 64, (1.0,)),
    LayerSpec("experts", 64, (1.0, 1.0, 1.0, 1.0), GROUPS, expert=True, joined=True),
    LayerSpec("head", 64, (1.0,)),
)


def cut_by(*lanes: str) -> set[OpKey]:
    """Ops of the forward, and of the backward of `head`, that are in parts."""
    graph = chunk(generate(LAYERS, Layout(dp=2, ep=2, tp=2)), 2, lanes)
    return {op.of[0] for op in graph if op.of and (op.layer == 3 or op.key.direction == "f")} | {
        op.of[0] for op in graph if op.of and op.kind is Kind.FORWARD
    }


def test_slices_of_copies_can_be_shared_by_shards() -> None:
    first, second = moved(2)
    assert second.shadow is not None
    shadow = replace(second.shadow, weights=1 << 16)
    layers = [replace(first, weights=1 << 16), replace(second, shadow=shadow)]
    for layout, lane, shards in (
        (Layout(dp=8, ep=4), "edp", 4),
        (Layout(dp=12, zero=2, replicas=2), "replicas", 6),
    ):
        graph = slice(generate(layers, layout), 3000)
        begins = [piece.begin for op in graph if op.lane == lane for piece in op.pieces]
        assert len(begins) > len(layers)
        assert all(begin % (ALIGNMENT * shards) == 0 for begin in begins)


def test_experts_are_cut_between_their_all_to_alls() -> None:
    assert cut_by("ep") == {key("dispatch.2.0.f"), key("fwd.2.0.2"), key("combine.2.0.f")}


def test_counts_that_cut_evenly() -> None:
    graph = generate(LAYERS, Layout(dp=2, ep=2, tp=2))
    assert divisors(graph, 9, ("ep",)) == [1, 2, 3, 4, 5, 6, 8]  # of 240


def test_rows_are_cut_everywhere_but_around_a_router() -> None:
    everywhere = {
        key("fwd.0.0.0"),
        key("fwd.0.0.1"),
        key("fwd.0.0.2"),
        key("leave.0.0.f"),
        key("fwd.3.0"),
        key("bwd.3.0"),
    }
    assert cut_by("tp") == everywhere
    assert cut_by("tp", "ep") == everywhere | cut_by("ep")


def test_part_waits_for_part() -> None:
    graph = chunk(generate(LAYERS, Layout(dp=2, ep=2, tp=2)), 2, ("tp", "ep"))
    assert graph[key("leave.0.0.f/1")].deps == (key("fwd.0.0.1/1"),)
    assert set(graph[key("fwd.1.0")].deps) == {key("fwd.0.0.2/0"), key("fwd.0.0.2/1")}
    assert graph[key("dispatch.2.0.f/0")].deps == (key("fwd.2.0.1"),)
    assert set(graph[key("fwd.2.0.3")].deps) == {key("combine.2.0.f/0"), key("combine.2.0.f/1")}
    assert graph[key("bwd.2.0.2/1")].deps == (key("combine.2.0.b/1"),)


def test_no_more_parts_than_there_can_be_equal_ones() -> None:
    def parts(count: int) -> dict[str, int]:
        graph = chunk(generate(limited, Layout(dp=2, ep=2, tp=2)), count, ("tp", "ep"))
        return {
            name: sum(name in op.of for op in graph)
            for name in (key("fwd.0.0.1"), key("leave.0.0.f"), key("fwd.2.0.2"))
        }

    limits = {"rows": 6, "experts": 4, "": 1}
    limited = tuple(
        replace(layer, transfers=tuple(replace(move, most=limits[move.parts]) for move in layer.transfers))
        for layer in LAYERS
    )
    assert parts(2) == {key("fwd.0.0.1"): 2, key("leave.0.0.f"): 2, key("fwd.2.0.2"): 2}
    assert parts(4) == {key("fwd.0.0.1"): 2, key("leave.0.0.f"): 2, key("fwd.2.0.2"): 4}
    assert parts(3) == {key("fwd.0.0.1"): 3, key("leave.0.0.f"): 3, key("fwd.2.0.2"): 0}
