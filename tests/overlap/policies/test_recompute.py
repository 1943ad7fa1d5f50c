"""Activations computed again, within a memory."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from syntony.base.command import UserError
from syntony.overlap.policies.passes.recompute import hidden, keep, within_memory
from syntony.overlap.policies.table import policy
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.generate import generate
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import Kind
from tests.overlap.policies.steps import MOVED, priced, tensor


def test_lynx_computes_again_what_costs_least_within_its_memory() -> None:
    large = [replace(layer, activations=8 * MOVED, inputs=MOVED) for layer in tensor(3)]
    graph = generate(large, Layout(tp=4, microbatches=2, recompute=True))
    cost = priced(graph, 0.1)
    segments = sorted({(op.layer, op.segment) for op in graph if op.kind is Kind.RECOMPUTE})
    every = [
        simulate(hidden(keep(graph, kept), 4).plan("", {}, cost), cost)
        for number in range(len(segments) + 1)
        for kept in itertools.combinations(segments, number)
    ]
    low, high = min(one.peak[0] for one in every), max(one.peak[0] for one in every)
    before = [10.0, 10.0]
    for share in (0.1, 0.3, 0.5, 0.7, 1.0):
        memory = int(low + share * (high - low)) + 1
        best = min(one.seconds for one in every if one.peak[0] <= memory)
        for alike in (1, 0):
            plan = policy("lynx", memory=memory, alike=alike).plan(graph, cost)
            plan.check()
            found = simulate(plan, cost)
            assert found.peak[0] <= memory
            assert found.seconds <= before[alike] * (1 + 1e-9)
            before[alike] = found.seconds
        assert before[0] <= best * 1.05  # of all choices; its waits are those of the step that keeps all
        assert before[0] <= before[1] * (1 + 1e-9)
    with pytest.raises(UserError, match=f"memory is {MOVED}; with all activations computed again, device 0 needs"):
        policy("lynx", memory=MOVED).plan(graph, cost)


def test_lynx_moves_layers_to_stages_that_compute_less_again() -> None:
    deep = [replace(layer, activations=8 * MOVED, inputs=MOVED) for layer in tensor(9)]
    graph = generate(deep, Layout(tp=2, pp=4, microbatches=8, recompute=True))
    cost = priced(graph, 0.3)
    least = max(simulate(policy("fifo").plan(graph, cost), cost).peak.values())
    plan = policy("lynx", memory=int(1.3 * least)).plan(graph, cost)
    plan.check()
    found = simulate(plan, cost)
    assert max(found.peak.values()) <= 1.3 * least
    still = simulate(within_memory(graph, cost, int(1.3 * least), 4, alike=True).plan("", {}, cost), cost)
    assert found.seconds < still.seconds * 0.99
