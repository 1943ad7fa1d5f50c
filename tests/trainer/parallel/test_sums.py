"""Canonical sums, the exact norm, and optimizers on slices: each against the plain way."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sampled import examples

torch = pytest.importorskip("torch")

from syntony._torch import square_sums  # noqa: E402
from syntony.trainer.config import ELEMENTWISE, Optimizer  # noqa: E402
from syntony.trainer.model.layer import Weight  # noqa: E402
from syntony.trainer.parallel.data_parallel.flat import Flat  # noqa: E402
from syntony.trainer.parallel.data_parallel.norm import ExactSum  # noqa: E402
from syntony.trainer.parallel.data_parallel.slices import Slices  # noqa: E402
from syntony.trainer.parallel.data_parallel.tree import Tree  # noqa: E402


def reference(terms: list) -> object:
    """The tree as its definition says it."""
    level = dict(enumerate(terms))
    while len(level) > 1:
        level = {
            i: level[2 * i] + level[2 * i + 1] if 2 * i + 1 in level else level[2 * i]
            for i in range((len(level) + 1) // 2)
        }
    return level[0]


@examples(40)
@given(count=st.integers(1, 13), seed=st.integers(0, 999))
def test_tree_in_any_order(count: int, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    terms = [torch.randn(64, generator=source) for _ in range(count)]
    home = torch.empty(64)
    tree = Tree(count, lambda: home)
    order = list(range(count))
    random.Random(seed).shuffle(order)
    for index in order:
        leaf = tree.leaf(index)
        leaf.copy_(terms[index])
        tree.add(index, leaf)
    total = tree.take(keep_spare=True)
    assert total.data_ptr() == home.data_ptr()
    assert torch.equal(total, reference(terms))


@examples(20)
@given(ranks=st.sampled_from([1, 2, 4, 8]), each=st.sampled_from([1, 2, 4]), seed=st.integers(0, 99))
def test_ranks_with_aligned_runs_make_nodes_of_the_same_tree(ranks: int, each: int, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    terms = [torch.randn(64, generator=source) for _ in range(ranks * each)]
    runs = [reference(terms[r * each : (r + 1) * each]) for r in range(ranks)]
    assert torch.equal(reference(runs), reference(terms))


def test_tree_says_what_is_missing() -> None:
    tree = Tree(3, lambda: torch.zeros(64))
    for index in (0, 2):
        tree.add(index, tree.leaf(index))
    with pytest.raises(RuntimeError, match="2 sums of 3 microbatches are left apart"):
        tree.take(keep_spare=False)


@given(blocks=st.integers(1, 40), scale=st.integers(-60, 60))
def test_sums_of_squares_are_trees_of_halves(blocks: int, scale: int) -> None:
    gradient = torch.randn(64 * blocks, generator=torch.Generator().manual_seed(blocks)) * 2.0**scale
    want = gradient.double().square().view(-1, 64)
    while want.shape[1] > 1:
        want = want[:, : want.shape[1] // 2] + want[:, want.shape[1] // 2 :]
    assert torch.equal(square_sums(gradient), want.flatten())


@examples(30)
@given(blocks=st.integers(1, 400), cuts=st.sets(st.integers(1, 399), max_size=6), scale=st.integers(-30, 15))
def test_the_norm_has_no_order(blocks: int, cuts: set[int], scale: int) -> None:
    source = torch.Generator().manual_seed(blocks)
    gradient = torch.randn(64 * blocks, generator=source) * 2.0**scale
    whole = ExactSum.of(square_sums(gradient))
    borders = [0, *sorted(cut for cut in cuts if cut < blocks), blocks]
    parts = [gradient[64 * a : 64 * b] for a, b in pairwise(borders)]
    random.Random(blocks).shuffle(parts)
    assert sum((ExactSum.of(square_sums(part)) for part in parts), ExactSum()) == whole
    assert math.isclose(whole.root, math.sqrt(math.fsum((gradient.double() ** 2).tolist())), rel_tol=1e-14)


def test_the_norm_of_nothing_and_of_too_much() -> None:
    assert ExactSum.of(square_sums(torch.zeros(64))).root == 0.0
    assert ExactSum.of(square_sums(torch.full((64,), math.nan))).root == math.inf
    assert math.isfinite(ExactSum.of(square_sums(torch.full((64,), 3e38))).root)
    assert ExactSum.of(square_sums(torch.full((64,), 1e-45))).root > 0


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_optimizers_on_slices_give_the_bits_of_the_whole(name: str) -> None:
    torch.set_num_threads(1)
    source = torch.Generator().manual_seed(4)
    first = torch.randn(64 * 50, generator=source)
    gradients = [torch.randn(64 * 50, generator=source) for _ in range(4)]
    cuts = [0, 64, 64 * 7, 64 * 20, 64 * 21, 64 * 50]

    def trained(borders: list[int]) -> object:
        flat = first.clone()
        for begin, end in pairwise(borders):
            slices = Slices(Optimizer(name=name), [(flat[begin:end], True)])
            for gradient in gradients:
                slices.update(slices.parameters, [gradient[begin:end].clone()], 1e-2)
        return flat

    assert torch.equal(trained(cuts), trained([0, 64 * 50]))
    assert not torch.equal(trained(cuts), first)


def test_flat_buffers_keep_matrices_first_and_every_tensor_aligned() -> None:
    weights = [Weight("gain", (10,), 0), Weight("a", (3, 5), 1.0), Weight("b", (2, 64), 1.0)]
    flat = Flat.of(weights, 256)
    assert [(weight.name, at) for weight, at in flat.places] == [("a", 0), ("b", 64), ("gain", 192)]
    assert (flat.decaying, flat.elements) == (192, 256)
    buffer = flat.begin(7, "layer")
    assert torch.equal(flat.views(buffer)["a"], weights[1].begin(7, "layer"))
    assert torch.equal(flat.views(buffer)["gain"], torch.ones(10))
