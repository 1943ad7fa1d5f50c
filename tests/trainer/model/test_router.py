"""Experts with a capacity: what each takes, and what becomes of the rest."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from syntony.trainer.model.router import capped, slots, unite  # noqa: E402


@given(
    st.integers(1, 5).flatmap(
        lambda experts: st.tuples(
            st.just(experts),
            st.integers(1, experts).flatmap(
                lambda k: st.lists(st.permutations(range(experts)).map(lambda p: p[:k]), min_size=1, max_size=20)
            ),
            st.sampled_from((0.1, 0.5, 1.0, 1.25, 3.0, 9.0)),
        )
    )
)
def test_experts_take_first_choices_first(case: tuple[int, list[list[int]], float]) -> None:
    experts, choices, factor = case
    k, most = len(choices[0]), math.ceil(factor * len(choices) * len(choices[0]) / experts)
    wanted, taken = [[experts] * k for _ in choices], [0] * experts
    for rank in range(k):
        for token, mine in enumerate(choices):
            expert = mine[rank]
            if taken[expert] < most:
                wanted[token][rank] = expert
                taken[expert] += 1
    assert capped(torch.tensor(choices), experts, factor).tolist() == wanted
    if factor >= experts:
        assert wanted == choices  # nothing is dropped


def test_what_is_dropped_has_no_answer_and_no_gradient() -> None:
    chosen = capped(torch.tensor([[0, 1], [0, 1], [0, 1], [1, 0]]), 2, 0.5)
    assert chosen.tolist() == [[0, 1], [0, 2], [2, 2], [1, 2]]  # two rows each; first choices go first
    x = torch.arange(8.0).view(4, 2).requires_grad_()
    rows, order, inverse, counts = slots(x, chosen, 2)
    assert counts.tolist() == [2, 2]
    assert rows.tolist() == [[0, 1], [2, 3], [0, 1], [6, 7]]
    y = unite(10 * rows, torch.full((4, 2), 0.5), order, inverse)
    assert y.tolist() == [[0, 10], [10, 15], [0, 0], [30, 35]]
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.tolist() == [[10, 10], [5, 5], [0, 0], [5, 5]]
