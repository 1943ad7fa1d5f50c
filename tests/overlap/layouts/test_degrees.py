"""Tensor-parallel degrees by layer: the program finds the best, and its choice is worth something simulated."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from syntony.base.command import UserError
from syntony.overlap.layouts import degrees
from syntony.overlap.layouts.degrees import Planner, Task
from syntony.overlap.policies.table import policy
from syntony.overlap.predict.machine import cost_of, machine_of
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.generate import generate
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of

MACHINE = machine_of("a100:flops=35e12,box=10e9,alpha=0")
TASK = Task(
    model_named("gpt:hidden=2048,heads=16,blocks=6,vocab=50257,seq=1024"), 8, 8,
    lambda layout: cost_of(MACHINE, layout), recompute=True,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_the_program_finds_the_best_of_all_choices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, count = 4, 3
    names = ("ahead", "behind", "moving", "sums", "update", "memory")
    parts = degrees._Parts(
        **{name: rng.uniform(0.1, 1.0, (layers, count)) for name in names},
        changes=rng.uniform(0.0, 0.3, (count, count)) * (1 - np.eye(count)),
        one_link=bool(seed % 2),
    )
    memory = float(parts.memory.mean() * layers * 0.9)
    rows = np.arange(layers)
    fitting = [one for one in product(range(count), repeat=layers) if parts.memory[rows, list(one)].sum() <= memory]
    best = min(map(parts.seconds, fitting))
    found = degrees._least(parts, memory)
    assert found is not None
    assert tuple(found) in fitting
    assert parts.seconds(found) == pytest.approx(best, rel=1e-3), f"seed {seed}"
    assert degrees._least(parts, 0.01) is None


@pytest.mark.parametrize("degree", [2, 8])
def test_equal_degrees_are_the_usual_layout(degree: int) -> None:
    planner, layout = Planner(TASK), TASK.layout(degree)
    graph, cost = generate(layers_of(TASK.model, layout, Form(degree)), layout), cost_of(MACHINE, layout)
    usual = simulate(policy("fifo").plan(graph, cost), cost).seconds
    assert planner.simulated([degree] * len(graph.layers), "fifo").seconds == pytest.approx(usual, rel=1e-6)


def test_where_one_degree_does_not_fit_some_layers_have_it() -> None:
    free = {one.degrees[0]: one for one in Planner(TASK).uniform("oases")}
    assert free[4].seconds < free[8].seconds
    assert free[4].memory > free[8].memory
    task = replace(TASK, memory=(free[4].memory + free[8].memory) / 2)
    best = Planner(task).chosen()
    assert set(best.degrees) == {4, 8}
    assert best.memory <= task.memory
    assert best.seconds < 0.97 * free[8].seconds
    assert Planner(TASK).chosen().seconds <= min(one.seconds for one in free.values())


def test_what_cannot_be_done_is_told() -> None:
    with pytest.raises(UserError, match="no degrees fit into 1 MB a device; the least is about"):
        Planner(replace(TASK, memory=1e6)).chosen()
    with pytest.raises(UserError, match="can cut the model: the model has 15 heads"):
        Planner(replace(TASK, sequences=7, model=replace(TASK.model, heads=15, kv=15))).chosen()
