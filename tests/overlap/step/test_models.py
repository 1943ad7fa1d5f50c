"""Published shapes have their published sizes, and parallelism divides work without losing any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from syntony.base.command import UserError
from syntony.overlap.step.generate import generate
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import MODELS, model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op import Kind

PUBLISHED = {
    "gpt3-6.7b": 6.7e9,
    "gpt3-175b": 175e9,
    "llama2-7b": 6.74e9,
    "llama2-70b": 69e9,
    "llama3-8b": 8.03e9,
    "mixtral-8x7b": 46.7e9,
    "gpt2-xl": 1.56e9,
    "internlm2-102b": 102e9,
    "gshard-600b": 600e9,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_sizes_are_the_published_ones(name: str, parameters: float) -> None:
    assert MODELS[name].parameters == pytest.approx(parameters, rel=0.05)
    assert MODELS[name].source


@pytest.mark.parametrize("name", MODELS)
def test_layers_hold_the_models_weights(name: str) -> None:
    model = MODELS[name]
    held = sum(layer.weights for layer in layers_of(model, Layout(), Form(element=4)))
    assert held / 4 == pytest.approx(model.parameters, rel=0.002)


def test_operations_are_six_per_parameter_and_token() -> None:
    """The usual rule of thumb (Kaplan et al., 2020, section 2.1): 6 N T, beside attention's own."""
    model = model_named("gpt:hidden=1024,blocks=4,seq=64,vocab=256")
    layers = layers_of(model, Layout())
    total = sum(sum(layer.segments) * (1 + sum(layer.backward)) for layer in layers)
    attention = 3 * model.blocks * 4 * 64 * 64 * model.hidden
    matrices = model.parameters - model.vocab * model.hidden  # looking up the embedding is no product
    assert total - attention == pytest.approx(6 * matrices * 64, rel=0.001)


@pytest.mark.parametrize("parallel", [{"tp": 2}, {"tp": 8}, {"cp": 4, "dp": 2}, {"cp": 2, "tp": 2}, {"ep": 4, "dp": 4}])
def test_parallelism_divides_work(parallel: dict[str, int]) -> None:
    model = model_named("gpt:hidden=512,blocks=2,heads=8,kv=8,experts=8,every=2,seq=128")
    alone, shared = layers_of(model, Layout()), layers_of(model, Layout(**parallel))
    by = parallel.get("tp", 1) * parallel.get("cp", 1)
    work = [sum(sum(layer.segments) for layer in layers) for layers in (alone, shared)]
    assert work[1] * by == pytest.approx(work[0], rel=0.02)  # tp's ranks all route
    experts = [layer for layer in shared if layer.name.startswith("experts")]
    assert all(layer.expert == (parallel.get("ep", 1) > 1) for layer in experts)


def test_generated_steps_move_what_the_layout_says() -> None:
    model = model_named("gpt:hidden=512,blocks=2,heads=8,seq=128")
    layout = Layout(tp=4, microbatches=2)
    tokens = 128 * 512 * 2
    for sequence, kinds in ((True, {Kind.ALL_GATHER, Kind.REDUCE_SCATTER}), (False, {Kind.ALL_REDUCE})):
        layout = replace(layout, sequence=sequence)
        moved = [op for op in generate(layers_of(model, layout), layout) if op.lane == "tp"]
        large = [op for op in moved if op.microbatch >= 0 and op.key.kind != "totals"]
        assert {op.kind for op in large} == kinds
        assert {op.amount for op in large} == {tokens}


@pytest.mark.parametrize("side", [2, 4])
def test_a_grid_divides_all_but_norms(side: int) -> None:
    model, form = model_named("gpt:hidden=512,blocks=2,heads=8,seq=128"), Form(batch=4)
    layout = Layout(tp=side * side, grid=True)
    alone, shared = layers_of(model, Layout(), form), layers_of(model, layout, form)
    assert sum(sum(layer.segments) for layer in shared) * side * side == sum(sum(layer.segments) for layer in alone)
    for whole, part in zip(alone, shared, strict=True):
        assert (part.weights - part.shared) * side * side == whole.weights - part.shared
        assert part.output * side * side == whole.output
    block = {move.name: (move.lane, move.bytes) for move in shared[1].transfers}
    tokens = 4 * 128 // side * 2
    assert block == {
        "across": ("row", tokens * 512), "weights": ("column", 2 * 4 * 512 * 512 // side),
        "heads": ("row", tokens * 512),
        "across_feed": ("row", tokens * 512), "weights_feed": ("column", 2 * 8 * 512 * 512 // side),
        "hidden": ("row", tokens * 2048),
    }  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 4])
def test_rotation_divides_all_but_norms(ranks: int) -> None:
    model, form = model_named("gpt:hidden=512,blocks=2,heads=8,seq=128,vocab=1024"), Form(batch=4)
    alone, turning = (layers_of(model, layout, form) for layout in (Layout(), Layout(tp=ranks, rotate=True)))
    for whole, part in zip(alone, turning, strict=True):
        assert sum(part.segments) * ranks == pytest.approx(sum(whole.segments))
        assert (part.weights - part.shared) * ranks == whole.weights - part.shared
        assert part.output * ranks == whole.output
    matrices = {"": 4 * 512 * 512, "_feed": 8 * 512 * 512}
    assert [(move.name, move.bytes) for move in turning[1].transfers] == [
        (f"turn{suffix}_{by}", 2 * size // ranks) for suffix, size in matrices.items() for by in range(1, ranks)
    ]


def test_tokens_go_to_experts_once() -> None:
    """With dedup, ep moves 1/tp of the bytes, and tp moves what arrives, once into the experts and once out of them."""
    model = model_named("gpt:hidden=512,blocks=2,heads=8,experts=8,seq=128")
    layout = Layout(dp=4, ep=4, tp=2)
    plain, once = (
        {move.name: move for move in layers_of(model, form)[-2].transfers}
        for form in (layout, replace(layout, dedup=True))
    )
    assert [*once] == ["sizes", "dispatch", "widen", "narrow", "combine", "leave"]
    for way in ("dispatch", "combine"):
        assert once[way].bytes * 2 == plain[way].bytes
    assert once["widen"].bytes == once["narrow"].bytes == plain["dispatch"].bytes
    assert once["leave"] == plain["leave"]


@pytest.mark.parametrize("even", [False, True])
def test_tokens_go_once_to_each_box(even: bool) -> None:
    """Between boxes move as many rows as routers that choose at random send, or those that choose in turn."""
    model, layout = model_named("gpt:hidden=512,blocks=2,heads=8,experts=16,top_k=4,seq=128"), Layout(dp=8, ep=8)
    plain, relayed = (
        {move.name: move for move in layers_of(model, form, Form(2, even=even))[-2].transfers}
        for form in (layout, replace(layout, relay=4))
    )
    source, tokens = np.random.default_rng(1), 1 << 14
    chosen = source.random((tokens, 16)).argsort(axis=1)[:, :4]
    if even:
        chosen = np.arange(4 * tokens).reshape(tokens, 4) % 16
    met = np.mean([len(set(row)) for row in (chosen // 8).tolist()])
    assert relayed["combine_far"].bytes == pytest.approx(2 * 128 * met * 512 * 2, rel=0.01)
    assert relayed["dispatch_far"].bytes * 512 == relayed["combine_far"].bytes * 516
    assert relayed["dispatch"].bytes == relayed["combine"].bytes == plain["combine"].bytes
    assert {move.lane for move in relayed.values()} == {"ep_far", "ep_near"}
    assert sum(move.bytes for move in relayed.values() if move.parts) == 0


@pytest.mark.parametrize("sizes", [{"ep": 8, "relay": 8}, {"ep": 8, "relay": 3}])
def test_no_boxes(sizes: dict[str, int]) -> None:
    with pytest.raises(UserError, match="boxes of so many ranks must divide ep"):
        Layout(**{"dp": 8, "ep": 4, **sizes})  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [{"tp": 2}, {"dp": 2, "ep": 2}])
def test_no_copies_of_tokens(sizes: dict[str, int]) -> None:
    with pytest.raises(UserError, match="tp and ep must be 2 or more"):
        Layout(**sizes, dedup=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sizes", [{}, {"tp": 4, "cp": 2}, {"tp": 4, "dp": 2, "ep": 2}, {"tp": 4, "grid": True}, {"tp": 2, "zero": 3}]
)
def test_no_rotation(sizes: dict[str, int]) -> None:
    with pytest.raises(UserError, match="rotate passes shards of weights round the ranks of tp"):
        Layout(**sizes, rotate=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "batch", "sentence"),
    [
        ("gpt:hidden=512,blocks=2,heads=8,seq=128,vocab=1024", 2, "2 sequences, which 4 ranks of tp cannot share"),
        ("gpt:hidden=512,blocks=2,heads=8,seq=128,vocab=1022", 4, "1022 words, which 4 ranks cannot share evenly"),
        ("gpt:hidden=512,blocks=2,heads=8,seq=128,experts=4", 4, "the model has experts, which rotate cannot cut"),
    ],
)
def test_what_cannot_rotate(model: str, batch: int, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        layers_of(model_named(model), Layout(tp=4, rotate=True), Form(batch))


@pytest.mark.parametrize("sizes", [{"tp": 8}, {"tp": 4, "cp": 2}, {"tp": 4, "dp": 2, "ep": 2}])
def test_no_grid(sizes: dict[str, int]) -> None:
    with pytest.raises(UserError, match="grid needs tp to be the square of a number"):
        Layout(**sizes, grid=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "layout", "sentence"),
    [
        ("lama2-7b", Layout(), "did you mean llama2-7b"),
        ("gpt:hiden=3", Layout(), "unknown key 'hiden'"),
        ("gpt:blocks=0", Layout(), "every size must be 1 or more"),
        ("gpt2", Layout(tp=5), "12 heads, which 5 ranks cannot share evenly"),
        ("gpt2", Layout(dp=4, ep=4), "the model has no experts"),
        ("gpt2", Layout(pp=40), "too few"),
        ("gpt:hidden=512", Layout(tp=4, grid=True), "1 sequences, which 2 rows of the grid cannot share"),
        ("gpt2", Layout(tp=4, grid=True), "50257 words, which 2 ranks cannot share evenly"),
        ("gpt:hidden=512,heads=9", Layout(tp=4, grid=True), "9 heads, which 2 ranks cannot share evenly"),
        ("gpt:hidden=512,experts=4", Layout(tp=4, grid=True), "experts, which grid cannot cut"),
    ],
)
def test_refusals(name: str, layout: Layout, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        layers_of(model_named(name), layout)
