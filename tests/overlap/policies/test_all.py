"""Every policy: its plan is one, keeps the step's work, and is listed as what it is."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from contextlib import suppress

import pytest

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.base.standing import Standing
from syntony.overlap.policies.apart import APART
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.policies.table import LEFT_OUT, POLICIES, policy
from syntony.overlap.predict.estimate import estimates
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.plan import Plan
from tests.overlap.policies.steps import STEPS, demanded, plans_for, plans_of, priced


@pytest.mark.parametrize("step", STEPS)
def test_every_policy_keeps_the_work(step: str) -> None:
    layers, layout = STEPS[step]
    graph = generate(layers, layout)
    cost = priced(graph, alpha=1e-3)
    found = plans_of(step)
    for name, (plan, timeline) in found.items():
        plan.check()
        assert bool(plan.simulated) == (POLICIES[name].standing is Standing.SIMULATED), name
        assert timeline.seconds >= estimates(plan, cost)[0].seconds * (1 - 1e-9), name
        assert (timeline.end >= timeline.start - 1e-12).all(), name
        assert _computed(plan.graph) == pytest.approx(_computed(graph)), name
        assert sum(op.holds - op.frees for op in plan.graph) == pytest.approx(0, abs=1), name
        # Every byte of every layer's gradients is summed exactly once.
        summed: Counter[int] = Counter()
        for op in plan.graph:
            if op.key.kind == "reduce":
                summed.update({piece.layer: piece.bytes for piece in op.pieces})
        grouped = "dp" in layout.groups or "edp" in layout.groups
        want = {
            i: layer.weights
            for i, layer in enumerate(plan.graph.layers)
            if layer.weights and grouped and not (layer.expert and layout.ep == 4)
        }
        shadows = {plan.graph.shadow(i): layer.shadow for i, layer in enumerate(plan.graph.layers) if layer.shadow}
        want |= {i: shadow.weights for i, shadow in shadows.items()}
        assert summed == want, name
        # What the trainer calls Ops is found in the plan.
        if plan.graph.layout == layout and not plan.simulated:
            recorded = generate(plan.graph.layers, layout)  # with the experts where the policy has them
            own = {op.key for op in recorded if op.kind not in (Kind.ALL_GATHER, Kind.BACKWARD)}
            assert own <= plan.parts.keys(), name
    assert len(found) >= 10


def _computed(graph: Graph) -> dict[int, float]:
    found: Counter[int] = Counter()
    for op in graph:
        if op.lane == COMPUTE and op.microbatch >= 0:
            found[op.layer] += op.amount
    return dict(found)


def chains(first: int, every: int) -> list[str]:
    """Every policy before each of two that split backwards; or one in so many of them, from that one on."""
    return [f"{one}+{then}" for one in POLICIES for then in ("need", "ooo_backprop")][first % every :: every]


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.sweep)], ids=["some", "all"])
@pytest.mark.parametrize("step", STEPS)
def test_backwards_are_split_whatever_came_before(step: str, every: int) -> None:
    graph = generate(*STEPS[step])
    cost = priced(graph, 0.5)
    for chain in chains([*STEPS].index(step), every):
        with suppress(UserError):  # some do not fit together, and say so
            plan = planned(chain_of(chain), graph, cost)
            plan.graph.check()
            simulate(plan, cost)


@pytest.mark.parametrize("name", ["tutel", "janus", "interleave"])
def test_two_exchanges_stay_whole(name: str) -> None:
    layout = Layout(dp=4, ep=4, relay=2, microbatches=2)
    graph = generate(layers_of(model_named("gpt:hidden=64,blocks=2,heads=8,experts=8,top_k=2,seq=32"), layout), layout)
    with pytest.raises(UserError, match="relay=2 sends tokens in two exchanges, which stay whole; set relay=1"):
        policy(name).plan(graph, priced(graph))


@pytest.mark.parametrize("name", ["domino", "oases"])
def test_weights_that_rotate_are_not_hidden_by_parts_of_the_batch(name: str) -> None:
    layout = Layout(tp=4, rotate=True, microbatches=2)
    graph = generate(layers_of(model_named("gpt:hidden=64,blocks=2,heads=8,seq=32,vocab=64"), layout, Form(4)), layout)
    with pytest.raises(UserError, match="only weights move on tp"):
        policy(name).plan(graph, priced(graph))


@pytest.mark.parametrize(
    ("name", "step", "knobs", "message"),
    [
        ("bytescheduller", "dp", {}, "did you mean bytescheduler"),
        ("bytescheduler", "dp", {"slise": 1}, "has no knob 'slise' .did you mean slice"),
        ("bytescheduler", "dp", {"slice": "big"}, "slice is 'big'; it must be a number"),
        ("bytescheduler", "dp", {"slice": -1}, "slice is -1; it must not be negative"),
        ("bytescheduler", "dp", {"slice": 0}, "slice is 0"),
        ("zero_bubble", "dp", {}, "orders a pipeline, and this step has pp=1"),
        ("zero_bubble", "pp", {"memory": "3p"}, "memory is '3p'; it must be 1p, 2p or v"),
        ("domino", "dp", {}, "nothing moves on tp"),
        ("domino", "tp", {"batches": 3}, "microbatches=2; it must be a multiple of 3"),
        ("tutel", "tp", {}, "nothing moves on ep"),
        ("interleave", "recompute", {}, "orders steps with pp=1 and recompute=false"),
        ("lynx", "tp", {}, "set recompute=true"),
        ("fastermoe", "dp x ep", {"hot": 3}, "of layer layer0 it can be 2, 4: of each rank of ep=2"),
        ("poseidon", "dp", {"send": "most"}, "send is 'most'; it must be best, sums or factors"),
        ("syndicate", "dp", {"local": 3}, "local is 3; it must divide the 4 ranks"),
    ],
)
def test_refusals(name: str, step: str, knobs: dict[str, object], message: str) -> None:
    graph = generate(*STEPS[step])
    with pytest.raises(UserError, match=message):
        policy(name, **knobs).plan(graph, priced(graph))


def test_entries_are_short_and_name_their_source() -> None:
    import inspect

    for entry in POLICIES.values():
        function = inspect.getsource(entry.decide).partition("\ndef ")[2]
        assert len(function.splitlines()) <= 14, entry.name
        assert entry.about, entry.name
        assert entry.paper, entry.name
        assert all(knob.default in knob.grid or not knob.grid for knob in entry.knobs.values()), entry.name


def test_knobs_are_read_as_text() -> None:
    assert policy("bytescheduler", slice="1M", credit="256K").values == {"slice": 1 << 20, "credit": 1 << 18}


def test_plans_are_the_same_everywhere() -> None:
    graph = generate(*STEPS["dp x ep"])
    cost = priced(graph)
    for name in ("need", "lina", "flowmoe", "centauri"):
        plan = policy(name).plan(graph, cost)
        assert plan.hash == policy(name).plan(graph, cost).hash
        assert Plan.from_text(plan.text) == plan


def test_rows_say_how_whole_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """What is listed is what the registry has."""
    assert main(["overlap", "list"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    listed = dict(reversed(found) for found in re.findall(r"^([WSP-]) (\w+) ", text, re.MULTILINE))
    apart = {one.name: one.standing for one in APART}
    assert listed == {name: one.standing for name, one in POLICIES.items()} | apart | dict.fromkeys(LEFT_OUT, "-")
    for name, one in POLICIES.items():
        assert (one.standing is Standing.PARTIAL) == bool(one.missing), name
        assert "left out" not in one.about, name
    for name, reason in LEFT_OUT.items():
        with pytest.raises(UserError, match=re.escape(reason)):
            policy(name)


def test_no_two_names_stand_for_the_same_plans() -> None:
    """Of every two published systems that apply to the same steps, one has another plan, or cost, for one of them. But
    for gshard, which says where tokens go, not when: its plan is the plain one, as poseidon's is where nothing has
    factors."""
    plans: dict[str, dict[str, object]] = {}
    found = {step: plans_of(step) for step in STEPS} | {"asked unevenly": plans_for(demanded(1.0))}
    for step, those in found.items():
        for name, (plan, timeline) in those.items():
            if not POLICIES[name].paper.startswith("none"):
                plans.setdefault(name, {})[step] = plan.orders, plan.windows, plan.priorities, timeline.seconds
    for one, other in itertools.combinations(plans, 2):
        both = plans[one].keys() & plans[other].keys()
        alike = both and all(plans[one][step] == plans[other][step] for step in both)
        assert bool(alike) == ((one, other) == ("poseidon", "gshard")), (one, other)
