"""The core's simulation against one that is too simple to be wrong, and against what can be reckoned by hand."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.overlap.policies.orders import in_order
from syntony.overlap.policies.passes.backward import split_backward
from syntony.overlap.predict.estimate import estimates
from syntony.overlap.predict.sim_step import in_a_row, simulate_sim_step
from syntony.overlap.predict.simulation import Wait, sim_step_of, simulate
from syntony.overlap.step.cost import Cost, Linear, Wire, ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph, LayerSpec
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.pipelines.pipelines import Times, finish, pipeline
from syntony.overlap.step.plan import Plan
from tests.overlap.models import dense, sharded
from tests.overlap.plans import key
from tests.sampled import examples

STEPS = 3


def reference(plan: Plan, cost: Cost) -> dict[tuple[int, str], tuple[float, float]]:
    """Start and end of every op of every step, by trying all that could happen next, again and again.

    Collectives on one device and computing only.
    """
    graph = plan.graph
    seconds, latency = (
        dict(zip((op.key for op in graph), column.tolist(), strict=True)) for column in cost.seconds(graph)
    )
    queues = {lane: [(s, n) for s in range(STEPS) for n in names] for lane, names in plan.orders.items()}
    launched: dict[tuple[int, str], float] = {}
    started: dict[tuple[int, str], float] = {}
    ended: dict[tuple[int, str], float] = {}
    left = {(s, op.key): seconds[op.key] for s in range(STEPS) for op in graph}
    now = 0.0

    def rates() -> dict[tuple[int, str], float]:
        """Of the first of every lane that has arrived: the most urgent lanes of a link share it."""
        found = {}
        for device in graph.devices:
            first: dict[str, tuple[int, str]] = {}
            for one, at in launched.items():
                op = graph[one[1]]
                if op.device == device and one not in ended and at + latency[op.key] <= now:
                    first.setdefault(op.lane, one)
            lanes = [lane for lane in first if lane != COMPUTE]
            best = min((plan.priorities.get(lane, 0) for lane in lanes), default=0)
            equal = [lane for lane in lanes if plan.priorities.get(lane, 0) == best]
            found |= {first[lane]: 1 / len(equal) for lane in equal}
            found |= {first[COMPUTE]: 1.0} if COMPUTE in first else {}
        return found

    while len(ended) < STEPS * len(graph):
        moved = True
        while moved:
            moved = False
            for (_, lane), queue in queues.items():
                at = next((i for i, one in enumerate(queue) if one not in launched), None)
                if at is None:
                    continue
                step, name = queue[at]
                op = graph[name]
                waits = [(step, dep) for dep in op.deps] + [(step - 1, dep) for dep in op.lagged if step]
                flying = [one for one in queue[:at] if one not in ended]
                room = plan.windows.get(lane, 0)
                used = sum(graph[other].amount for _, other in flying)
                if any(one not in ended for one in waits) or (lane == COMPUTE and flying):
                    continue
                if lane != COMPUTE and flying and room and used + op.amount > room:
                    continue
                launched[step, name] = now
                moved = True
        running = rates()
        started |= {one: now for one in running if one not in started}
        arrivals = [at + latency[name] for (_, name), at in launched.items() if at + latency[name] > now]
        until = min([*arrivals, *(now + left[one] / rate for one, rate in running.items())])
        for one, rate in running.items():
            left[one] -= (until - now) * rate
            if left[one] == 0:  # exact: all are multiples of small powers of a half
                ended[one] = until
        now = until
    return {one: (started[one], end) for one, end in ended.items()}


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, Cost]:
    ops: list[Op] = []
    count = draw(st.integers(2, 9))
    for i in range(count):
        lane = draw(st.sampled_from([COMPUTE, COMPUTE, "dp", "ep"]))
        device = draw(st.integers(0, 1))
        kind = Kind.FORWARD if lane == COMPUTE else Kind.ALL_REDUCE
        before = [op.key for op in ops]
        deps = draw(st.lists(st.sampled_from(before), max_size=2, unique=True)) if before else []
        lagged = draw(st.lists(st.sampled_from([OpKey(f"op{j}") for j in range(count)]), max_size=2, unique=True))
        ops.append(Op(OpKey(f"op{i}"), kind, device, lane, draw(st.integers(1, 5)), tuple(deps), tuple(lagged)))
    graph = Graph(tuple(ops))
    kinds = {Kind.ALL_REDUCE: Linear(draw(st.integers(0, 2)), 1.0)}
    cost = Cost(1.0, {lane: Wire(kinds, "net") for lane in ("dp", "ep")})
    windows = {"dp": draw(st.sampled_from([0, 5, 8]))}
    priorities = {"ep": draw(st.sampled_from([-1, 0, 1]))}
    return Plan("random", graph, in_order(graph), windows, priorities=priorities), cost


@examples(300)
@given(plans())
def test_equals_the_reference(case: tuple[Plan, Cost]) -> None:
    plan, cost = case
    step_ = sim_step_of(plan.graph, cost, plan.orders, plan.windows, plan.priorities)
    times = simulate_sim_step(step_, STEPS)
    want = reference(plan, cost)
    found = {
        (step, op.key): (times.start[step, row], times.end[step, row])
        for step in range(STEPS)
        for row, op in enumerate(plan.graph)
    }
    assert found == want


def plan_of(graph: Graph, **more: object) -> Plan:
    return Plan("plain", graph, in_order(graph), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "schedule",
    ["gpipe", "1f1b", "interleaved", "breadth_first", "zb1p", "zb2p", "zbv", "v_half", "v_min", "dualpipe_v"],
)
@pytest.mark.parametrize("message", [0.0, 0.25])
def test_pipelines_take_what_their_schedules_say(schedule: str, message: float) -> None:
    """One step of four devices; nothing is summed, so the next step begins where this one ends, device by device."""
    p, m = 4, 8
    order = pipeline(schedule, p, 1, m, Times(1.0, 1.0, 1.0, message))
    chunks = len(order.places)
    layers = [LayerSpec(f"chunk{i}", 0, (1.0,), output=4) for i in range(chunks)]
    graph = generate(layers, Layout(pp=p, microbatches=m, schedule=schedule), order)
    cost = Cost(1.0, {"pp": Wire(dict.fromkeys((Kind.SEND, Kind.RECV), Linear(message, 0.0)))})
    times = simulate_sim_step(sim_step_of(graph, cost, in_order(graph), {}, {}), 1)
    assert times.end.max() == pytest.approx(finish(order, Times(1.0, 1.0, 1.0, message)))


def test_updates_without_a_flush_leave_no_bubble() -> None:
    """Zero Bubble, section 4: devices that do not wait for each other at a step's end run without idle time."""
    order = pipeline("zb2p", 4, 1, 8)
    layers = [LayerSpec(f"layer{i}", 4, (1.0,), output=4) for i in range(4)]
    graph = generate(layers, Layout(pp=4, microbatches=8, schedule="zb2p"), order)
    cost = Cost(1.0, {"pp": ring_wire(2, 1e9)})
    assert simulate(plan_of(graph), cost).seconds == pytest.approx(24, rel=1e-3)
    flushed = generate(layers, Layout(pp=4, microbatches=8), pipeline("1f1b", 4, 1, 8))
    assert simulate(plan_of(flushed), cost).seconds == pytest.approx(33, rel=1e-3)


def test_steps_in_a_row_are_these_steps() -> None:
    """Three steps told as one take the times that they take one after the other."""
    layers, layout = dense(3), Layout(dp=4, microbatches=2)
    graph = generate(layers, layout)
    cost = Cost(1e3, {"dp": ring_wire(4, 1e3, 0.01)}, memory=1e-4)
    step = sim_step_of(graph, cost, in_order(graph), {}, {})
    alone = simulate_sim_step(step, 6)
    row = simulate_sim_step(in_a_row(step, np.zeros(len(graph), bool), 3, 0), 2).by_step(3)
    assert np.allclose(row.end, alone.end)
    assert (row.blame == alone.blame).all()


@pytest.mark.parametrize(("local", "delay"), [(1, 1), (4, 0), (4, 1), (3, 2)])
def test_exchanges_of_islands_by_hand(local: int, delay: int) -> None:
    """One layer computes 3 seconds a step; an exchange takes 30."""
    graph = generate([LayerSpec("one", 64, (1.0,))], Layout(dp=2, islands=2, local=local, delay=delay))
    cost = Cost(1.0, {"islands": Wire(dict.fromkeys(Kind, Linear(0.0, 30 / 64)))})
    plan = plan_of(graph)
    found = simulate(plan, cost)
    # Training waits for the whole exchange; or for what is left of it when so many others would be under way.
    want = 3.0 + 30 / local if not delay else max(3.0, 30 / local)
    assert found.seconds == pytest.approx(want, rel=0.05)
    assert estimates(plan, cost)[0].seconds <= found.seconds * (1 + 1e-9)
    assert found.busy[0, "islands"] == pytest.approx(30 / local)


def test_what_it_waited_for() -> None:
    """reduce.1 is ready at 3 and takes 4; reduce.0, ready at 5, finds its link busy; the next step waits for it."""
    graph = generate(dense(2, weights=4), Layout(dp=2))
    cost = Cost(1.0, {"dp": Wire({Kind.ALL_REDUCE: Linear(0.0, 1.0)})})
    timeline = simulate(plan_of(graph), cost)
    assert timeline.seconds == 12  # 2 forward, 2 backward, 8 of which all is exposed but 2

    def waited(name: str) -> tuple[Wait, str]:
        row = timeline.row[name]
        blame = int(timeline.blame[row])
        return Wait(timeline.wait[row]), graph.ops[blame].key if blame >= 0 else ""

    assert waited(key("reduce.1")) == (Wait.DEPENDENCY, key("bwd.1.0"))
    assert waited(key("reduce.0")) == (Wait.LINK, key("reduce.1"))
    assert waited(key("opt.0")) == (Wait.DEPENDENCY, key("reduce.0"))
    assert waited(key("fwd.1.0"))[0] in (Wait.LANE, Wait.DEPENDENCY)
    assert timeline.exposed == {key("reduce.1"): 2.0, key("reduce.0"): 4.0}
    assert timeline.idle(0) == 6.0
    assert timeline.busy == {(0, COMPUTE): 6.0, (0, "dp"): 8.0}
    held = simulate(plan_of(graph, windows={"dp": 4}), cost)
    assert Wait(held.wait[held.row[key("reduce.0")]]) is Wait.WINDOW


def test_contention_slows_computing_only_while_something_moves() -> None:
    graph = generate(dense(4, weights=2), Layout(dp=2))
    cost = Cost(1.0, {"dp": Wire({Kind.ALL_REDUCE: Linear(0.0, 1.0)})})
    alone = simulate(plan_of(graph), cost)
    slowed = simulate(plan_of(graph), replace(cost, contention=0.5))
    # Backward ops 2 to 4 run beside sums: each unit of work beside one takes 1.5.
    assert alone.seconds == 4 + 2 * 4 + 2
    assert slowed.busy[0, COMPUTE] == pytest.approx(alone.busy[0, COMPUTE] + 0.5 * 6 / 1.5, rel=0.1)
    assert slowed.busy[0, "dp"] == alone.busy[0, "dp"]


def test_memory_is_that_of_the_pipeline() -> None:
    layers = [replace(layer, weights=0, output=0) for layer in dense(4)]
    for schedule, held in (("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1])):
        graph = generate(layers, Layout(pp=4, microbatches=8, schedule=schedule))
        peak = simulate(plan_of(graph), Cost(1.0, {"pp": ring_wire(2, 1e9)})).peak
        assert [peak[device] / 500 for device in range(4)] == held


def test_lanes_that_wait_for_each_other_are_named() -> None:
    graph = generate(sharded(2), Layout(dp=2, tp=2))
    cost = Cost(1.0, {lane: ring_wire(2, 1.0) for lane in ("dp", "tp")})
    orders = dict(in_order(graph))
    orders[0, COMPUTE] = orders[0, COMPUTE][::-1]
    with pytest.raises(UserError, match="lane 'compute' of device 0 waits forever"):
        simulate(Plan("wrong", graph, orders), cost)


def test_lanes_without_a_cost_are_named() -> None:
    graph = generate(sharded(2), Layout(dp=2, tp=2))
    with pytest.raises(UserError, match="the cost has no wire for lane 'tp'; it has dp"):
        simulate(plan_of(graph), Cost(1.0, {"dp": ring_wire(2, 1.0)}))


def test_measured_seconds_are_shared_by_parts() -> None:
    graph = generate(dense(1), Layout())
    halves = graph.with_ops(
        [
            graph[key("fwd.0.0")],
            *(
                graph[key("bwd.0.0")]._replace(key=key(f"bwd.0.0/{i}"), amount=i + 1.0, of=(key("bwd.0.0"),))
                for i in range(2)
            ),
        ]
    )
    seconds, _ = Cost(1e9, measured={key("fwd.0.0"): 5.0, key("bwd.0.0"): 9.0}).seconds(halves)
    np.testing.assert_allclose(seconds, [5.0, 3.0, 6.0])
    halves = split_backward(graph)
    seconds, _ = Cost(1e9, measured={key("fwd.0.0"): 5.0, key("bwd.0.0"): 9.0}).seconds(halves)
    np.testing.assert_allclose(seconds[:3], [5.0, 4.5, 4.5])
    seconds, _ = Cost(1e9, measured={key("fwd.0.0"): 5.0, key("bwd_x.0.0"): 9.0, key("bwd_w.0.0"): 1.0}).seconds(graph)
    np.testing.assert_allclose(seconds[:2], [5.0, 10.0])


def test_every_part_is_launched_also_one_that_computes_nothing() -> None:
    graph = generate(dense(1), Layout())
    measured = {key("fwd.0.0"): 0.5, key("bwd.0.0"): 9.0}
    parts = graph.with_ops(
        [
            *(
                graph[key("fwd.0.0")]._replace(key=key(f"fwd.0.0/{i}"), amount=0.0, of=(key("fwd.0.0"),))
                for i in range(2)
            ),
            *(
                graph[key("bwd.0.0")]._replace(key=key(f"bwd.0.0/{i}"), amount=i + 1.0, of=(key("bwd.0.0"),))
                for i in range(2)
            ),
        ]
    )
    seconds, _ = Cost(1e9, measured=measured).seconds(parts)
    np.testing.assert_allclose(seconds, [0.25, 0.25, 3.0, 6.0])
    seconds, _ = Cost(1e9, measured=measured, launch=1.5).seconds(parts)
    np.testing.assert_allclose(seconds, [0.5, 0.5, 4.0, 6.5])  # no more than was measured
    seconds, _ = Cost(1e9, measured=measured, launch=1.0).seconds(split_backward(graph))
    np.testing.assert_allclose(seconds[:3], [0.5, 5.0, 5.0])


def test_speed() -> None:
    """1e5 ops in under a second is the goal; printed, not asserted."""
    graph = generate(sharded(160), Layout(dp=4, tp=8, pp=4, microbatches=76))
    cost = Cost(1.0, {lane: ring_wire(4, 1e6, link=lane) for lane in ("dp", "tp", "pp")})
    plan = plan_of(graph)
    begin = time.perf_counter()
    simulate(plan, cost)
    print(f"{len(graph)} ops simulated in {time.perf_counter() - begin:.2f} s")
