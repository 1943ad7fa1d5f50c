"""Every parallelism against the whole model, all ranks in one process: losses and all gradients, in float64."""

from __future__ import annotations

import pytest
import torch

from syntony.trainer.config import Model
from syntony.trainer.parallel.context_parallel import ring
from syntony.trainer.parallel.context_parallel.split import positions
from syntony.trainer.parallel.data_parallel.flat import Flat
from syntony.trainer.parallel.parallel import parallelized
from tests.sampled import one_in
from tests.trainer.parallel.ranks_in_one import assemble, meshes_of, step, tiny

ROWS = 3


def check(model: Model, rows: int = ROWS, **sizes: object) -> None:
    meshes = meshes_of(**sizes)
    seed = 1234
    source = torch.Generator().manual_seed(seed)
    copies = meshes[0].layout.dp
    texts = [torch.randint(model.vocabulary, (rows, model.context + 1), generator=source) for _ in range(copies)]
    (one,) = meshes_of()
    want_losses, want = [], {}
    for text in texts:
        single = step([parallelized(model, one, rows, 8)], [one], [(text[:, :-1], text[:, 1:])], seed, 1 / copies)
        want_losses += single.losses
        for key, gradient in single.gradients[0].items():
            want[key] = want.get(key, 0) + gradient
    batches = []
    for mesh in meshes:
        here, text = positions(mesh, model.context), texts[mesh.place["dp"]]
        text = text.chunk(mesh.layout.batch_parts)[mesh.place["rows"]]
        batches.append((text[:, here], text[:, here + 1]))
    share = 1 / (copies * meshes[0].layout.cp * meshes[0].layout.batch_parts)
    models = [parallelized(model, mesh, rows, 8) for mesh in meshes]
    result = step(models, meshes, batches, seed, share)
    assert sum(result.losses) / len(result.losses) == pytest.approx(sum(want_losses) / copies, rel=1e-6), seed
    got = assemble(models, meshes, result)
    assert got.keys() == want.keys()
    for key, gradient in want.items():
        error = float((got[key] - gradient).norm() / gradient.norm())
        assert error < 3e-6, (key, error, seed)  # the head computes in float32


@pytest.mark.parametrize(
    ("sequence", "positions", "activation"), one_in(2, [False, True], ["rotary", "learned"], ["swiglu", "gelu"])
)
def test_tensor_parallel(sequence: bool, positions: str, activation: str) -> None:
    check(tiny(positions=positions, activation=activation), tp=2, sequence=sequence)


@pytest.mark.parametrize(("positions", "activation"), one_in(2, ["rotary", "learned"], ["swiglu", "gelu"]))
def test_a_grid(positions: str, activation: str) -> None:
    check(tiny(positions=positions, activation=activation), rows=4, tp=4, grid=True)


@pytest.mark.parametrize(("positions", "activation"), one_in(2, ["rotary", "learned"], ["swiglu", "gelu"]))
def test_weights_that_rotate(positions: str, activation: str) -> None:
    check(tiny(positions=positions, activation=activation), rows=4, tp=4, rotate=True)
    check(tiny(kv=2), rows=2, dp=2, tp=2, rotate=True)


def test_larger_grids_and_grouped_queries() -> None:
    check(tiny(width=36, heads=6, kv=3, hidden=24), rows=3, tp=9, grid=True)
    check(tiny(kv=2), rows=2, dp=2, tp=4, grid=True)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_vocabulary_that_ranks_cannot_share_evenly(ranks: int) -> None:
    model = tiny(vocabulary=17)
    check(model, tp=ranks)
    every = [parallelized(model, mesh, ROWS, 8) for mesh in meshes_of(tp=ranks)]
    for name in ("embedding", "head"):
        mine = [next(layer for layer in layers if layer.name == name) for layers in every]
        rows = [layer.weights[0].shape[0] for layer in mine]
        assert sum(rows) == 17
        assert max(rows) - min(rows) == 1
        assert len({Flat.of(layer.weights).elements for layer in mine}) == 1  # one plan is for all


@pytest.mark.parametrize(
    ("attention", "spread"),
    one_in(2, ["ring", "striped", "plain", "ulysses"], [("rotary", 2), ("rotary", 4), ("learned", 4)]),
)
def test_context_parallel(attention: str, spread: tuple[str, int]) -> None:
    positions, ranks = spread
    check(tiny(positions=positions), cp=ranks, attention=attention)


@pytest.mark.parametrize(("ranks", "traders"), [(4, 1), (4, 2), (4, 4), (8, 2)])
def test_rings_of_traders(ranks: int, traders: int) -> None:
    check(tiny(), cp=ranks, attention="usp", traders=traders)


@pytest.mark.parametrize("attention", ["ring", "striped", "plain"])
def test_double_rings(attention: str) -> None:
    check(tiny(), cp=4, attention=attention, inner=2)


def test_larger_double_rings() -> None:
    check(tiny(), cp=8, inner=4)
    check(tiny(kv=2), cp=8, attention="usp", traders=2, inner=2)


@pytest.mark.parametrize("ranks", [4, 6, 8, 12])
def test_double_rings_pass_on_what_they_have(ranks: int) -> None:
    """Every rank sees everybody's keys once; each step brings those of a neighbour, in the inner or the outer ring."""
    for inner in (size for size in range(1, ranks + 1) if ranks % size == 0):
        held = list(range(ranks))
        seen = [{rank} for rank in held]
        for number in range(1, ranks):
            if number % inner:
                held = [held[rank // inner * inner + (rank - 1) % inner] for rank in range(ranks)]
            else:
                held = [held[(rank - inner) % ranks] for rank in range(ranks)]
            assert held == [ring.source(rank, ranks, inner, number) for rank in range(ranks)], (inner, number)
            seen = [had | {have} for had, have in zip(seen, held, strict=True)]
        assert all(len(had) == ranks for had in seen), inner


@pytest.mark.parametrize(
    ("kv", "sizes"),
    [
        *one_in(
            2,
            [1, 2],
            [
                {"cp": 2},
                {"cp": 2, "attention": "ulysses"},
                {"cp": 4, "attention": "ulysses"},
                {"cp": 4, "attention": "usp", "traders": 2},
                {"cp": 4, "attention": "striped"},
            ],
        ),
        (2, {"tp": 2}),  # tp must divide kv
        (2, {"cp": 2, "tp": 2, "attention": "ulysses"}),
    ],
)
def test_grouped_queries(kv: int, sizes: dict[str, object]) -> None:
    """Eight heads that share one or two heads of keys and values, which are fewer than some ranks trade."""
    check(tiny(width=32, heads=8, kv=kv), **sizes)


@pytest.mark.parametrize("ranks", [2, 4])
def test_expert_parallel(ranks: int) -> None:
    check(tiny(experts=8), dp=ranks, ep=ranks)


@pytest.mark.parametrize(("attention", "sequence"), one_in(2, ["ring", "ulysses"], [False, True]))
def test_products(attention: str, sequence: bool) -> None:
    check(tiny(positions="learned"), dp=2, cp=2, tp=2, attention=attention, sequence=sequence)


@pytest.mark.parametrize(("ep", "sequence"), one_in(2, [1, 2], [False, True]))
def test_experts_in_parts(ep: int, sequence: bool) -> None:
    check(tiny(experts=4), dp=2, tp=2, ep=ep, sequence=sequence)


@pytest.mark.parametrize("sequence", [False, True])
def test_tokens_sent_to_experts_once(sequence: bool) -> None:
    """Ranks of tp send a part of each row, not a copy of it."""
    check(tiny(experts=4), dp=2, tp=2, ep=2, dedup=True, sequence=sequence)


@pytest.mark.parametrize(("top", "sizes"), [(2, {}), (3, {"tp": 2}), (3, {"dp": 6, "ep": 6, "relay": 3})])
def test_tokens_sent_once_to_each_box(top: int, sizes: dict[str, object]) -> None:
    check(tiny(experts=12, top=top), **{"dp": 4, "ep": 4, "relay": 2, **sizes})


@pytest.mark.parametrize("sequence", [False, True])
def test_parts_of_tokens_sent_once_to_each_box(sequence: bool) -> None:
    check(tiny(experts=8, top=3), dp=4, ep=4, relay=2, tp=2, dedup=True, sequence=sequence)


def test_copies_of_experts() -> None:
    check(tiny(experts=4, top=1), dp=4, ep=2)
