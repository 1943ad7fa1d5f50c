"""Resharding: whatever the two layouts, every rank ends with its bytes, and no more of them move than must."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.overlap.layouts.reshard import Piece, held, reshard
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.pipelines.chunks import chunks_of
from tests.sampled import examples

MODEL = model_named("gpt:hidden=64,blocks=4,heads=4")
WHOLE = layers_of(MODEL, Layout(), Form(element=1))
SIZES = [layer.weights for layer in WHOLE]


def holding(layout: Layout) -> list[list[Piece]]:
    return held(SIZES, layers_of(MODEL, layout, Form(element=1)), layout)


def bytes_of(pieces: list[Piece]) -> set[tuple[int, int]]:
    return {(piece.layer, at) for piece in pieces for at in range(piece.begin // 64, piece.end // 64)}


LAYOUTS = st.one_of(
    st.builds(Layout, dp=st.integers(1, 8), zero=st.integers(0, 3)),
    st.builds(Layout, dp=st.integers(1, 3), tp=st.sampled_from([1, 2, 4]), pp=st.integers(1, 3), zero=st.just(1)),
    st.builds(Layout, dp=st.integers(1, 3), cp=st.integers(1, 2), zero=st.sampled_from([0, 1])),
    st.builds(Layout, dp=st.just(2), pp=st.just(2), zero=st.sampled_from([0, 2]), schedule=st.just("chimera"),
              microbatches=st.just(2)),
)  # fmt: skip


@examples(25)
@given(LAYOUTS, LAYOUTS)
def test_every_rank_has_its_bytes(old: Layout, new: Layout) -> None:
    before, after = holding(old), holding(new)
    found = reshard(before, after)
    assert sorted(set(found.place)) == sorted(found.place)
    whole = [np.arange(size) + (layer << 32) for layer, size in enumerate(SIZES)]
    machines = max((*found.place, len(before) - 1)) + 1
    memory = [[np.full(size, -1) for size in SIZES] for _ in range(machines)]
    for rank, pieces in enumerate(before):
        for layer, begin, end in pieces:
            memory[rank][layer][begin:end] = whole[layer][begin:end]
    then = [[row.copy() for row in rows] for rows in memory]
    for source, target, (layer, begin, end) in found.moves:
        assert (then[target][layer][begin:end] == -1).all()  # nothing moves that is there
        memory[target][layer][begin:end] = then[source][layer][begin:end]
    for machine, pieces in zip(found.place, after, strict=True):
        for layer, begin, end in pieces:
            assert (memory[machine][layer][begin:end] == whole[layer][begin:end]).all()
    assert found.bytes == found.bound == found.matrix.sum()


@pytest.mark.parametrize(("old", "new"), [("8", "6"), ("3", "5")])
def test_no_placement_moves_less(old: str, new: str) -> None:
    before, after = (holding(Layout(dp=int(n), zero=3)) for n in (old, new))
    found = reshard(before, after)
    sets = [[bytes_of(pieces) for pieces in side] for side in (before, after)]
    most = max(len(before), len(after))
    common = np.array([[64 * len(mine & there) for there in sets[0]] + [0] * (most - len(sets[0])) for mine in sets[1]])
    best = max(
        sum(common[row, column] for row, column in enumerate(order)) for order in permutations(range(most), len(after))
    )
    assert found.needed == sum(SIZES)
    assert found.bytes == pytest.approx(found.needed - best, abs=64 * 2 * len(SIZES) * most)  # sets have 64 bytes each


def test_replicas_that_spread_their_updates() -> None:
    """Each byte is updated once, and lies where the trainer has it: parts of a shard by replica, shards by rank."""
    layout = Layout(dp=4, zero=1, replicas=2, spread=True)
    found = holding(layout)
    whole = sum(SIZES)
    assert sum(piece.end - piece.begin for mine in found for piece in mine) == whole
    firsts = [next(piece.begin for piece in mine if piece.layer == 0) for mine in found]
    assert firsts == [SIZES[0] * part // 4 for part in (0, 2, 1, 3)]
    assert reshard(holding(Layout(dp=4, zero=1)), found).bytes == 0  # the same parts, on other ranks' machines
    assert reshard(holding(replace(layout, spread=False)), found).bytes == 0


def test_ranks_are_numbered_as_in_the_mesh() -> None:
    """tp innermost, stages outermost."""
    layout = Layout(dp=3, tp=2, pp=2)
    chunks = chunks_of(layers_of(MODEL, layout, Form(element=1)), layout)
    for rank, mine in enumerate(holding(layout)):
        half = rank % 2
        assert mine == [(i, SIZES[i] * half // 2, SIZES[i] * (half + 1) // 2) for i in chunks[rank // 6]]


@pytest.mark.parametrize("zero", [0, 1])
def test_copies_of_experts_share_their_state(zero: int) -> None:
    """Each of two copies of an expert keeps half of its state, if any is sharded."""
    model = model_named("gpt:hidden=64,blocks=2,heads=4,experts=4")
    layout = Layout(dp=4, ep=2, zero=zero)
    whole = layers_of(model, Layout(), Form(element=1))
    layers = layers_of(model, layout, Form(element=1))
    found = held([layer.weights for layer in whole], layers, layout)
    experts = next(i for i, layer in enumerate(layers) if layer.expert)
    spans = [[(piece.begin, piece.end) for piece in mine if piece.layer == experts] for mine in found]
    cuts = [whole[experts].weights * part // 4 for part in range(5)]
    if zero:
        assert spans == [[(cuts[part], cuts[part + 1])] for part in (0, 2, 1, 3)]  # ranks 0 and 2 have the same experts
    else:
        assert spans == [[(0, cuts[2])], [(cuts[2], cuts[4])]] * 2


def test_a_grid_is_refused() -> None:
    with pytest.raises(UserError, match="grid cuts matrices along both axes"):
        held(SIZES, WHOLE, Layout(tp=4, grid=True))


def test_who_holds_the_same_shares_the_sending() -> None:
    found = reshard(holding(Layout(dp=4)), holding(Layout(dp=8)))
    sent = found.matrix.sum(axis=1)
    assert sent.max() <= sent[:4].mean() + max(SIZES)


def test_lost_ranks() -> None:
    found = reshard(holding(Layout(dp=4)), holding(Layout(dp=3)), lost=[1])
    assert found.bytes == 0
    with pytest.raises(UserError, match="are lost: nobody else holds them"):
        reshard(holding(Layout(dp=4, zero=3)), holding(Layout(dp=3, zero=3)), lost=[1])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--lost", "4"], "--lost 4: there is no rank 4; --old has ranks 0..3"),
        (["--lost", "one"], "--lost one: 'one' is not a rank; write such as 6,7"),
        (["--new", "dp=2,zoro=1"], "--new dp=2,zoro=1: no key 'zoro' (did you mean zero?)"),
    ],
)
def test_wrong_options_are_named(wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overlap", "reshard", "--model", "gpt2", "--old", "dp=4", "--new", "dp=2", *wrong]) == 2
    assert said in capsys.readouterr().err
