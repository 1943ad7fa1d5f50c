"""What is predicted can run: plans for described models fit the trainer's layers, whatever model, layout and policy."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.sampled import examples

pytest.importorskip("torch")

from syntony.base.command import UserError
from syntony.collectives.bootstrap.launch import run_ranks
from syntony.overlap.policies.search import chain_of, planned, search
from syntony.overlap.policies.table import POLICIES, policy
from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan
from syntony.trainer.config import Config, Data, Model, Overlap, Parallel, Run
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run import loop
from syntony.trainer.run.compiled_step import CompiledStep, Loan, compiled
from syntony.trainer.run.rank import Rank
from syntony.trainer.run.turns import Turned

SMALL = {"blocks": 4, "width": 32, "heads": 4, "hidden": 64, "context": 16}
MODELS = (SMALL, SMALL | {"experts": 4}, SMALL | {"experts": 4, "top": 1}, SMALL | {"together": 2}, SMALL | {"kv": 2})
LAYOUTS: tuple[dict[str, Any], ...] = (
    {"dp": 2}, {"dp": 4, "zero": 1}, {"dp": 4, "zero": 3}, {"dp": 4, "zero": 2, "replicas": 2},
    {"dp": 2, "recompute": True},
    {"dp": 2, "ep": 2}, {"dp": 4, "ep": 4}, {"dp": 4, "ep": 2, "zero": 3}, {"tp": 2}, {"tp": 4, "sequence": False},
    {"tp": 2, "rotate": True},
    {"cp": 4}, {"cp": 2, "attention": "ulysses"}, {"pp": 2}, {"pp": 2, "schedule": "zbv"}, {"dp": 2, "tp": 2, "pp": 2},
    {"dp": 2, "ep": 2, "tp": 2}, {"dp": 2, "ep": 2, "tp": 2, "dedup": True}, {"dp": 4, "ep": 4, "relay": 2},
    {"dp": 2, "ep": 2, "pp": 2}, {"pp": 2, "cp": 2, "schedule": "gpipe"},
)  # fmt: skip
ROWS = (1, 2, 3, 4)
CASES = st.tuples(*map(st.sampled_from, (MODELS, LAYOUTS, ROWS, sorted(POLICIES))))


def config_of(model: dict[str, Any], layout: dict[str, Any], rows: int) -> Config:
    return Config(Model(**model), Data(rows=rows, microbatches=8), parallel=Parallel(**layout), run=Run(steps=1))


def described(config: Config) -> tuple[Any, Cost]:
    """The step as `syntony overlap` has it, with no trainer at hand; and what it costs."""
    graph = generate(layers_of(config.model.spec, config.layout, Form(config.data.rows, 4)), config.layout)
    lanes = ("dp", "replicas", "edp", "tp", "ep", "ep_far", "ep_near", "cp", "pp")
    return graph, Cost(1e9, {lane: ring_wire(max(2, graph.groups.get(lane, 2)), 1e7, 1e-5) for lane in lanes})


def fits(plan: Plan, config: Config) -> None:
    """Raises UserError where the trainer cannot run it."""
    for device in range(config.parallel.pp):
        mesh = Mesh(config.parallel, device * config.parallel.ranks // config.parallel.pp)
        parts = Rank(config, mesh, SimpleNamespace()).parts_of(plan)  # type: ignore[arg-type]
        used = {op.layer for op in plan.graph if op.device == device}
        layers = {i: layer for i, (layer, _) in parts.items() if i in used and layer.segments}
        step = compiled(plan, device, layers, parts.keys(), config.data.rows)
        assert step.tasks
        computed: set[OpKey] = set()
        for task in step.tasks:
            for key in task.waits:
                assert computed_for(step, key) <= computed, f"{task.op.key} waits for {key}"
            computed.add(task.op.key)


def computed_for(step: CompiledStep, key: OpKey) -> set[OpKey]:
    """What the device computes before this communication begins, as far as the trainer holds it back."""
    begun: dict[OpKey, Loan | Turned] = {**step.loans, **step.turned}
    after = begun[key].after if key in begun else frozenset[OpKey]()
    tasks = {task.op.key for task in step.tasks}
    return set(after & tasks).union(*(computed_for(step, other) for other in after - tasks))


@examples(25)
@given(case=CASES)
@example(case=(SMALL | {"kv": 2}, {"tp": 4, "sequence": False}, 1, "fifo"))  # ranks that no head of keys and values has
def test_a_predicted_plan_fits_the_trainer(case: tuple[dict[str, Any], dict[str, Any], int, str]) -> None:
    model, layout, rows, name = case
    try:
        config = config_of(model, layout, rows)
        graph, cost = described(config)
        plan = policy(name).plan(graph, cost)
    except UserError:
        return  # nothing is promised
    if not plan.simulated:
        fits(plan, config)


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_predicted_plan_fits_the_trainer(name: str) -> None:
    promised = 0
    for model, layout, rows in itertools.product(MODELS, LAYOUTS, ROWS):
        try:
            config = config_of(model, layout, rows)
            graph, cost = described(config)
            plan = policy(name).plan(graph, cost)
        except UserError:
            continue
        promised += 1
        if not plan.simulated:
            fits(plan, config)
    assert promised


@pytest.mark.sweep
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_plan_that_a_search_finds_fits_the_trainer(layout: dict[str, Any]) -> None:
    config = config_of(MODELS[1] if "ep" in layout else SMALL, layout, 4)
    graph, cost = described(config)
    for found in search(graph, cost, 2.0).candidates:
        if not found.plan.simulated:
            fits(found.plan, config)


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        ({"dp": 2, "ep": 2}, ("tutel:degree=4",)),
        ({"tp": 2}, ("collective_matmul",)),
        pytest.param({"dp": 2}, sorted(POLICIES), marks=pytest.mark.sweep),
        pytest.param({"dp": 2, "ep": 2}, sorted(POLICIES), marks=pytest.mark.sweep),
        pytest.param({"tp": 2}, sorted(POLICIES), marks=pytest.mark.sweep),
        pytest.param({"cp": 2}, sorted(POLICIES), marks=pytest.mark.sweep),
        pytest.param({"pp": 2}, sorted(POLICIES), marks=pytest.mark.sweep),
    ],
    ids=str,
)
def test_predicted_plans_run(layout: dict[str, Any], names: tuple[str, ...], tmp_path: Path) -> None:
    source = tmp_path / "text.py"
    source.write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    ran = 0
    for name in names:
        config = Config(
            Model(**SMALL, experts=2 if "ep" in layout else 0),
            Data(source=str(source), rows=4, microbatches=8),
            parallel=Parallel(**layout),
            overlap=Overlap(name, profile=0),
            run=Run(steps=1),
        )
        graph, cost = described(config)
        try:
            plan = planned(chain_of(name), graph, cost)
        except UserError:
            continue
        if not plan.simulated:
            assert run_ranks(2, partial(loop.train, config), 120.0) == 0, name
            ran += 1
    assert ran
