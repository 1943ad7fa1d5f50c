"""Plans as text: what is written is read, what differs has another hash, and what is wrong is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from syntony.base.command import UserError
from syntony.overlap.policies.orders import in_order
from syntony.overlap.policies.passes.cut import slice
from syntony.overlap.step.generate import generate
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.plan import Plan
from tests.overlap.models import experts, moving, sharded
from tests.overlap.plans import key
from tests.overlap.step.test_generate import layouts
from tests.sampled import examples


def example() -> Plan:
    layers = [replace(layer, weights=1 << 20) for layer in experts(2)]
    layers[1] = replace(layers[1], moved=moving(layers[1], 2))
    graph = slice(generate(layers, Layout(dp=4, ep=2, pp=2, zero=1, clip=Clip.EXACT)), 1 << 18)
    return Plan("example", graph, in_order(graph), {"dp": 5}, {"slice": 1 << 18}, Clip.EXACT, {"dp": 1})


@examples(20)
@given(layouts())
def test_text_round_trip(layout: Layout) -> None:
    graph = generate(sharded(8), layout)
    plan = Plan("plain", graph, in_order(graph))
    assert Plan.from_text(plan.text) == plan
    assert Plan.from_text(plan.text).hash == plan.hash


def test_file_round_trip(tmp_path: Path) -> None:
    plan = example()
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan
    assert len((tmp_path / "plan.json").read_text().splitlines()) > len(plan.graph)  # an op a line


def test_every_field_is_in_the_hash() -> None:
    plan = example()
    first, graph = plan.graph.ops[0], plan.graph
    hashes = {plan.hash}
    others: list[Plan] = [
        replace(plan, policy="other"),
        replace(plan, windows={"dp": 6}),
        replace(plan, knobs={}),
        replace(plan, clip=Clip.OFF),
        replace(plan, priorities={}),
        replace(plan, simulated="because"),
        replace(plan, orders={lane: names[::-1] for lane, names in plan.orders.items()}),
        replace(plan, graph=replace(graph, layout=None)),
        replace(plan, graph=replace(graph, layers=graph.layers[:1])),
    ]
    for name, value in first._asdict().items():
        changed = value + type(value)([first.pieces or "x"][:1]) if isinstance(value, tuple) else None
        if name == "pieces":
            changed = next(op.pieces for op in graph if op.pieces)
        elif changed is None:
            changed = next(v for v in ("recv", 7) if isinstance(v, str) == isinstance(value, str))
        ops = (first._replace(**{name: changed}), *graph.ops[1:])
        others.append(replace(plan, graph=graph.with_ops(ops)))
    for other in others:
        assert other.hash not in hashes
        hashes.add(other.hash)


def test_parts_are_what_stands_for_a_recorded_op() -> None:
    plan = example()
    count = len([op for op in plan.graph if op.of == (key("reduce.0"),)])
    assert count > 1
    assert plan.parts[key("reduce.0")] == tuple(key(f"reduce.0/{i}") for i in range(count))
    assert plan.parts[key("opt.0")] == (key("opt.0"),)


def edited(change: Callable[[dict], object]) -> str:
    data = json.loads(example().text)
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=9), "plan: version 9 of a plan; this reads version 1"),
        (lambda d: d.update(format="x"), 'not a plan: "format" must be "syntony-plan"'),
        (lambda d: d.pop("ops"), '"ops" is missing'),
        (lambda d: d.update(extra=1), '"extra" is not a field of a plan'),
        (lambda d: d["ops"][3].update(kind="fly"), r'ops\[3\]: "kind" is "fly"; it must be one of fwd'),
        (lambda d: d["ops"][3].update(amount="much"), r'ops\[3\]: "amount" is "much"; it must be a number'),
        (lambda d: d["ops"][3].update(device=True), r'ops\[3\]: "device" is true; it must be a whole number'),
        (lambda d: d["ops"][3].update(weight=1), r'ops\[3\] has "weight"; it may have name'),
        (lambda d: d["ops"][3].pop("name"), r"ops\[3\] lacks one of name"),
        (lambda d: d["ops"][0].update(deps=["nobody"]), "waits for 'nobody', which the graph does not have"),
        (lambda d: d["ops"][0].update(deps=[d["ops"][1]["name"]]), "in a circle within one step"),
        (lambda d: d["ops"].append(d["ops"][0]), "two ops named"),
        (lambda d: d["orders"][0]["ops"].pop(), "no order has"),
        (lambda d: d["orders"][0]["ops"].append(d["orders"][0]["ops"][0]), "twice"),
        (lambda d: d["orders"][0]["ops"].append("nobody"), "has 'nobody', which the graph does not have"),
        (lambda d: d["orders"][0]["ops"].append(d["orders"][1]["ops"][0]), "which is of lane"),
        (lambda d: d["layout"].update(dp=0), "layout: dp is 0; it must be 1 or more"),
        (lambda d: d.update(windows={"dp": "big"}), 'windows: "dp" is "big"; it must be a whole number'),
        (lambda d: d.update(layers={}), r"layers is {}; it must be a list"),
    ],
)
def test_what_is_wrong_is_named(change: Callable[[dict], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Plan.from_text(edited(change))


def test_lines_of_what_is_no_json() -> None:
    lines = example().text.splitlines()
    lines[10] = lines[10].replace(":", "", 1)
    with pytest.raises(UserError, match="plan: not JSON at line 11, column"):
        Plan.from_text("\n".join(lines))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"nowhere\.json: cannot be read: No such file"):
        Plan.read("nowhere.json")
