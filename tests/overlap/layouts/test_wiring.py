"""Layout and wiring in turn: circuits follow the bytes of a step, and no round is slower than the one before."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import cast

import numpy as np
import pytest

from syntony.__main__ import main
from syntony.overlap.layouts.search import Found, search
from syntony.overlap.layouts.space import Candidate, Question
from syntony.overlap.layouts.wiring import alternate, demand_of_plan
from syntony.overlap.policies.search import chain_of, planned
from syntony.overlap.predict.machine import MACHINES, cost_of
from syntony.overlap.predict.traffic import traffic
from syntony.overlap.predict.wires import wires_of
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.generate import generate
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import Form, layers_of
from syntony.overlap.step.plan import Plan
from syntony.topologies.demand import Demand
from syntony.topologies.families.optical.optical import wired_for
from syntony.topologies.topology import Topology

_MACHINE = MACHINES["a100"]
_DENSE = "gpt:hidden=512,blocks=4,heads=4,seq=256,vocab=4096"
_EXPERTS = f"{_DENSE},experts=4,top_k=2"


def _plan(model: str, layout: Layout, policy: str = "fifo") -> Plan:
    graph = generate(layers_of(model_named(model), layout, Form(2, 4)), layout)
    return planned(chain_of(policy), graph, cost_of(_MACHINE, layout))


@pytest.mark.parametrize(
    ("model", "layout", "policy", "lanes"),
    [
        (_DENSE, Layout(dp=2, pp=2, microbatches=2), "fifo", ("pp",)),
        (_EXPERTS, Layout(dp=4, ep=4), "fifo", ("ep",)),
        (_DENSE, Layout(tp=4), "collective_matmul", ("tp",)),
    ],
)
def test_pairs_get_the_bytes_that_their_programs_send(
    model: str, layout: Layout, policy: str, lanes: tuple[str, ...]
) -> None:
    plan = _plan(model, layout, policy)
    demand, wanted = demand_of_plan(plan), traffic(plan, layout)
    found = np.zeros((layout.ranks, layout.ranks))
    found[demand.src, demand.dst] = demand.bytes
    pairs = sum((wanted[lane] for lane in lanes), np.zeros((layout.ranks, layout.ranks)))
    if policy == "collective_matmul":  # what it leaves whole is summed
        assert found.sum() > 0
        assert (found <= pairs + 1).all()
    else:
        assert found == pytest.approx(pairs, rel=1e-3)


@pytest.mark.parametrize("zero", [0, 1])
def test_gradients_are_all_reduces_however_they_are_sharded(zero: int) -> None:
    demand = demand_of_plan(_plan(_DENSE, Layout(dp=2, pp=2, zero=zero, microbatches=2)))
    sums = {group.members: group.bytes for group in demand.all_reduces}
    weights = Counter[int]()
    for op in _plan(_DENSE, Layout(dp=2, pp=2, microbatches=2)).graph:
        weights[op.device] += round(op.amount) if op.lane == "dp" else 0
    assert {group: sums[group] for group in ((0, 1), (2, 3))} == pytest.approx({(0, 1): weights[0], (2, 3): weights[1]})


def _wire(demand: Demand) -> Topology:
    return wired_for(demand, "wired", 2, Fraction(10**9), 1e-6)


def _exact(topology: Topology, layout: Layout) -> Cost:
    return replace(cost_of(_MACHINE, layout), wires=wires_of(topology, layout).wires)


def _two_stages(one: Candidate) -> bool:
    layout = one.layout
    return layout.schedule == "1f1b" and (layout.dp, layout.pp, layout.zero) == (2, 2, 0)


def _search(topology: Topology) -> Found:
    asked = Question(model_named(_DENSE), 4, 8, 1e12)
    return search(
        asked,
        lambda layout: cost_of(_MACHINE, layout),
        lambda layout: _exact(topology, layout),
        1e6,
        among=_two_stages,
        more=(),
        most=4,
    )


def _slower(found: Found, seconds: float) -> Found:
    """The same layouts, of which the first takes this long."""
    first = found.choices[0]
    return replace(found, choices=(replace(first, timeline=replace(first.timeline, seconds=seconds)),))


@pytest.mark.parametrize(("seconds", "kept"), [((3.0, 2.0, 2.5), 2), ((3.0, 3.0), 1), ((3.0, 2.0, 1.0, 1.0), 3)])
def test_each_wiring_is_for_the_step_before_until_none_is_faster(seconds: tuple[float, ...], kept: int) -> None:
    found, wired = _search(_wire(demand_of_plan(_plan(_DENSE, Layout(dp=4))))), list[Demand]()

    def wire(demand: Demand) -> Topology:
        wired.append(demand)
        return _wire(demand)

    rounds = alternate(4, wire, lambda topology: _slower(found, seconds[len(wired) - 1]))
    assert [one.seconds for one in rounds] == list(seconds[:kept])
    assert len(wired) == len(seconds)
    assert [group.members for group in wired[0].all_reduces] == [(0, 1, 2, 3)]
    assert not len(wired[0].src)
    for later in wired[1:]:  # of two stages
        assert {group.members for group in later.all_reduces} == {(0, 1), (2, 3)}
        pairs = set(zip(later.src.tolist(), later.dst.tolist(), strict=True))
        assert pairs == {(0, 2), (2, 0), (1, 3), (3, 1)}
    for one in rounds:
        out = Counter[int]()
        for link in one.topology.links:
            out[link.src] += cast(int, link.bandwidth / 10**9)
        assert max(out.values()) <= 2  # ports


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["overlap", "layout", "--model", _DENSE, "--ranks", "4", "--machine", "a100", "--wire", "2"]
    assert main([*words, "--where", "pp=1,cp=1", "--timeout", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rounds"] == sorted(told["rounds"], reverse=True)
    assert told["rounds"][-1] == told["layouts"][0]["seconds"]
    assert {end for circuit in told["circuits"] for end in circuit[:2]} == {0, 1, 2, 3}
    assert main([*words, "--on", "dgx-a100:1"]) != 0
    assert "give one of the two" in capsys.readouterr().err
