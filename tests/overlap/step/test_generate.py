"""Generated steps: nothing is missing, nothing waits for itself, and memory that is taken is given back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.overlap.layouts.memory import needed
from syntony.overlap.predict.simulation import Timeline, simulate
from syntony.overlap.step.cost import ring_wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import layers_of
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.pipelines.chunks import split
from syntony.overlap.step.plan import Plan
from tests.overlap.models import dense, experts, moved, shadowed, sharded
from tests.overlap.plans import COST, in_order, key
from tests.sampled import examples


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    dp, pp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4]))
    schedule = draw(
        st.sampled_from(["gpipe", "1f1b", "interleaved", "breadth_first", "zb1p", "zbv", "dualpipe_v", "bpipe"])
    )
    zero = draw(st.sampled_from([0, 1, 2, 3]))
    replicas = draw(st.sampled_from([1, 2])) if zero and dp > 1 else 1
    return Layout(
        dp=dp,
        pp=pp,
        tp=draw(st.sampled_from([1, 2])),
        ep=draw(st.sampled_from([ep for ep in (1, 2, 4) if dp % ep == 0])),
        zero=zero,
        replicas=replicas,
        spread=replicas > 1 and draw(st.booleans()),
        microbatches=draw(st.sampled_from([2 * pp, 3 * pp])),
        schedule=schedule,
        loops=draw(st.sampled_from([1, 2])) if schedule in ("interleaved", "breadth_first") else 1,
        clip=draw(st.sampled_from(list(Clip))),
        recompute=draw(st.booleans()),
        prefetch=draw(st.sampled_from([1, 2])),
    )


@examples(60)
@given(layouts(), st.sampled_from([dense, sharded, experts, moved, shadowed]))
def test_every_layout(layout: Layout, model) -> None:
    layers = model(8)
    graph = generate(layers, layout)  # checks names, edges and circles
    held: Counter[int] = Counter()
    for op in graph:
        held[op.device] += op.holds - op.frees
        assert op.lane == COMPUTE or layout.groups[op.lane] > 1
        # Only the norm is known to devices without a message.
        assert all(graph[name].device == op.device or graph[name].kind is Kind.NORM for name in (*op.deps, *op.lagged))
    assert all(abs(left) < 1e-6 for left in held.values())
    sends = {op.key: op for op in graph if op.kind is Kind.SEND}
    receives = {op.key.sender: op for op in graph if op.kind is Kind.RECV}
    assert sends.keys() == receives.keys()
    assert all((op.device, op.peer) == (receives[n].peer, receives[n].device) for n, op in sends.items())
    forward = sum(op.amount for op in graph if op.kind is Kind.FORWARD)
    assert forward == layout.microbatches * sum(sum(layer.segments) for layer in layers)
    backward = {Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT}
    assert sum(op.amount for op in graph if op.kind in backward) == 2 * forward


@pytest.mark.parametrize("recompute", [False, True])
def test_lent_activations(recompute: bool) -> None:
    """On quick wires a balanced pipeline takes as long as 1f1b, and its fullest device holds 3 microbatches, not 4; but
    the last one also has logits."""
    layers = layers_of(model_named("gpt:hidden=512,blocks=14,vocab=512,seq=512"), Layout(pp=4))
    cost = replace(COST, wires={"pp": ring_wire(4, 1e12, 1e-9)})

    def step(schedule: str) -> Timeline:
        graph = generate(layers, Layout(pp=4, microbatches=8, schedule=schedule, recompute=recompute))
        return simulate(in_order(graph), cost)

    plain, lending = step("1f1b"), step("bpipe")
    assert lending.seconds <= 1.002 * plain.seconds
    assert lending.peak[0] < 0.9 * plain.peak[0]  # what is being computed again comes on top
    assert all(lending.peak[device] == plain.peak[device] for device in (1, 2))
    assert lending.peak[3] <= plain.peak[3] + plain.peak[0] / 2  # two places


def test_names() -> None:
    graph = generate(sharded(2), Layout(dp=2, tp=2, pp=2, zero=3, clip=Clip.EXACT))
    assert [op.key for op in graph if op.device == 0] == [
        key("gather.0.0.f"),
        key("fwd.0.0.0"),
        key("fwd.0.0.1"),
        key("leave.0.0.f"),
        key("fwd.0.0.2"),
        key("send.0.0.f"),
        key("gather.0.0.b"),
        key("recv.1.0.b"),
        key("bwd.0.0.2"),
        key("bwd.0.0.1"),
        key("enter.0.0.b"),
        key("bwd.0.0.0"),
        key("reduce.0"),
        key("norm.0"),
        key("opt.0"),
    ]
    assert graph[key("fwd.0.0.0")].deps == (key("gather.0.0.f"),)
    assert graph[key("gather.0.0.f")].lagged == (key("opt.0"),)
    assert graph[key("opt.0")].deps == (key("reduce.0"), key("norm.0"), key("norm.1"))


def test_updates_are_waited_for() -> None:
    assert generate(dense(2), Layout(dp=2))[key("fwd.1.0")].lagged == (key("opt.1"),)
    assert generate(dense(2), Layout(dp=2, zero=1))[key("fwd.1.0")].lagged == (key("gather.1"),)
    optimistic = generate(dense(2), Layout(dp=2, clip=Clip.OPTIMISTIC))
    assert optimistic[key("bwd.1.0")].lagged == (key("norm.0"),)
    assert optimistic[key("opt.0")].deps == (key("reduce.0"),)


def test_weights_are_gathered_once_for_microbatches_in_a_row() -> None:
    count = {
        schedule: sum(
            op.key.kind == "gather"
            for op in generate(dense(4), Layout(dp=2, zero=3, microbatches=4, schedule=schedule))
        )
        for schedule in ("1f1b", "breadth_first")
    }
    assert count == {"1f1b": 4 * 4 * 2, "breadth_first": 4 * 2}


def test_replicas_that_spread_an_update_send_each_other_its_parts() -> None:
    for zero in (1, 3):
        layout = Layout(dp=8, zero=zero, replicas=2)
        graph = generate(dense(2), replace(layout, spread=True))
        size = dense(2)[0].weights
        sums, opt, renew = graph[key("replicas.0")], graph[key("opt.0")], graph[key("renew.0")]
        assert (sums.kind, sums.lane, sums.amount) == (Kind.REDUCE_SCATTER, "replicas", size / 4)
        assert opt.amount == size / 8
        assert (renew.kind, renew.lane, renew.amount, renew.deps) == (
            Kind.ALL_GATHER, "replicas", size / 4, (opt.key,),
        )  # fmt: skip
        if zero == 1:
            assert graph[key("gather.0")].deps == (renew.key,)
            assert graph[key("fwd.0.0")].lagged == (key("gather.0"),)
        else:
            assert graph[key("gather.0.0.f")].lagged == (renew.key,)
        # What moves is the same as where each replica updates all of its shard; what the optimizer keeps is half.
        steps = [in_order(generate(dense(2), each)) for each in (layout, replace(layout, spread=True))]
        one, other = (max(needed(simulate(each, COST), 4).values()) for each in steps)
        assert one - other == pytest.approx(2 * 2 * size / 8)


def test_experts_that_come_to_the_tokens_come_once_and_go_back_once() -> None:
    graph = generate(moved(2), Layout(dp=4, ep=2, microbatches=2))
    assert Kind.ALL_TO_ALL not in {op.kind for op in graph}
    (gather,) = [op for op in graph if op.kind is Kind.ALL_GATHER]
    assert graph.shadow(1) == 3
    assert (gather.key, gather.lane, gather.lagged, gather.holds) == (key("gather.3.0.f"), "ep", (key("opt.3"),), 8000)
    users = [op.key for op in graph if op.layer == 1 and op.lane == COMPUTE and op.kind is not Kind.OPTIMIZE]
    assert [op.key for op in graph if gather.key in op.deps] == users
    activations = 500
    assert [op.frees for op in graph if op.key in (key("bwd.1.0.0"), key("bwd.1.1.0"))] == [
        activations,
        activations + 8000,
    ]
    back, copies = graph[key("reduce.3")], graph[key("replicas.3")]
    assert (back.kind, back.lane, back.amount, back.frees) == (Kind.REDUCE_SCATTER, "ep", 8000, 4000)
    assert (copies.kind, copies.lane, copies.amount) == (Kind.ALL_REDUCE, "edp", 4000)
    assert graph[key("opt.3")].deps == (key("replicas.3"),)
    assert (graph[key("reduce.0")].kind, graph[key("reduce.0")].lane) == (Kind.ALL_REDUCE, "dp")
    # Where all weights come and go, so do these.
    zero = generate(moved(2), Layout(dp=4, ep=2, microbatches=2, zero=3))
    names = [op.key for op in zero if op.kind is Kind.ALL_GATHER and op.layer == 1]
    assert names == [key("gather.3.0.f"), key("gather.3.0.b"), key("gather.3.1.f"), key("gather.3.1.b")]


def test_shadows_come_beside_what_stays() -> None:
    graph = generate(shadowed(2), Layout(dp=4, ep=2, microbatches=2))
    (gather,) = [op for op in graph if op.kind is Kind.ALL_GATHER]
    assert (gather.key, gather.lane, gather.holds) == (key("gather.3.0.f"), "ep", 4000)
    assert {op.amount for op in graph if op.kind is Kind.ALL_TO_ALL} == {50}
    last = graph[key("bwd.1.1.0")]
    assert (last.frees, last.lagged, gather.key in last.deps) == (500 + 4000, (), True)
    assert (graph[key("reduce.1")].lane, graph[key("reduce.1")].amount, graph[key("opt.1")].amount) == (
        "edp",
        2000,
        2000,
    )
    assert (graph[key("reduce.3")].lane, graph[key("reduce.3")].amount, graph[key("opt.3")].amount) == (
        "ep",
        4000,
        2000,
    )
    # Both come and go together, as early as weights of the layer after the next.
    zero = generate(shadowed(6), Layout(dp=4, ep=2, zero=3))
    both = [op for op in zero if op.kind is Kind.ALL_GATHER and op.layer == 3 and op.key.direction == "f"]
    assert [(op.key, op.deps) for op in both] == [
        (key("gather.3.0.f"), (key("fwd.1.0.2"),)),
        (key("gather.9.0.f"), (key("fwd.1.0.2"),)),
    ]


def test_memory_of_sharded_weights_is_that_of_what_is_prefetched() -> None:
    graph = generate(dense(12), Layout(dp=4, zero=3, prefetch=2))
    for op in graph:
        if op.key.kind == "gather" and op.deps:
            (end,) = op.deps
            order = [other.key for other in graph if other.lane == COMPUTE]
            used = next(other.key for other in graph if op.key in other.deps)
            assert order.index(used) - order.index(end) == 3


def test_chunks_are_alike() -> None:
    layers = dense(8)
    assert [len(members) for members in split(layers, 4)] == [2, 2, 2, 2]
    heavy = [LayerSpec("embedding", 10, (0.0,)), *layers, LayerSpec("head", 10, (4.0,))]
    assert [len(members) for members in split(heavy, 4)] == [3, 3, 3, 1]
    assert [len(members) for members in split(layers, 3, (4.0, 2.0, 2.0))] == [4, 2, 2]


@pytest.mark.parametrize("schedule", ["1f1b", "zbv"])
def test_layers_dealt_by_speed(schedule: str) -> None:
    """A pipeline of one quick device and one slow one takes as long as both together would."""
    layers = dense(16, flops=1e6)
    layout = Layout(pp=2, microbatches=16, schedule=schedule, speeds=(3.0, 1.0))
    plan = in_order(generate(layers, layout))
    assert Plan.from_text(plan.text).hash == plan.hash
    quick = replace(COST, wires={"pp": ring_wire(2, 1e12, 1e-9)})
    apart, alike = simulate(plan, quick), simulate(in_order(generate(layers, replace(layout, speeds=()))), quick)
    assert apart.seconds < 0.6 * alike.seconds
    assert apart.busy[0, COMPUTE] == pytest.approx(apart.busy[1, COMPUTE], rel=0.1)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"dp": 4, "ep": 3}, "ep is 3; it must divide dp x cp, which is 4"),
        ({"zero": 4}, "zero is 4"),
        ({"dp": 4, "replicas": 2}, "replicas is 2, but zero is 0"),
        ({"schedule": "1f1c"}, "did you mean 1f1b"),
        (
            {"pp": 4, "microbatches": 6, "schedule": "interleaved", "loops": 2},
            "rounds of 4 microbatches, one per device; 6 is not a multiple",
        ),
        ({"pp": 2, "speeds": (1.0,)}, "speeds are 1; there must be one above 0 for each of pp devices, which are 2"),
        ({"pp": 2, "loops": 2}, "schedule 1f1b has one chunk of layers per device"),
        ({"pp": 16}, "8 layers are too few for 16 chunks"),
    ],
)
def test_refusals(layout: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        generate(dense(8), Layout(**layout))


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12), st.integers(1, 4))
def test_joined_layers_stay_together(rows: list[tuple[int, bool]], chunks: int) -> None:
    layers = [LayerSpec(f"{i}", 4, (float(work),), joined=joined and i > 0) for i, (work, joined) in enumerate(rows)]
    if sum(not layer.joined for layer in layers) < chunks:
        with pytest.raises(UserError, match="too few for"):
            split(layers, chunks)
        return
    found = split(layers, chunks)
    assert [i for members in found for i in members] == list(range(len(layers)))
    assert all(members and not layers[members[0]].joined for members in found)


def test_shared_weights_are_summed_by_tp_before_dp() -> None:
    layers = [LayerSpec("a", 1000, (1.0,), shared=64), LayerSpec("b", 1000, (1.0,))]
    graph = generate(layers, Layout(dp=2, tp=2, microbatches=2))
    op = graph[key("share.0")]
    assert (op.kind, op.lane, op.amount, op.deps) == (Kind.ALL_REDUCE, "tp", 64, (key("bwd.0.0"), key("bwd.0.1")))
    assert graph[key("reduce.0")].deps == (key("share.0"),)
    assert key("share.1") not in graph.by_key
    assert generate(layers, Layout(tp=2, microbatches=2))[key("opt.0")].deps == (key("share.0"),)
    assert key("share.0") not in generate(layers, Layout(dp=2)).by_key


def test_secondary_shards_are_gathered_among_neighbours() -> None:
    layout = Layout(dp=8, zero=3, secondary=2, microbatches=2)
    graph = generate(layers_of(model_named("gpt:hidden=256,blocks=2"), layout), layout)
    gathers = [op for op in graph if op.kind is Kind.ALL_GATHER and op.microbatch >= 0]
    assert {(op.key.direction, op.lane) for op in gathers} == {("f", "dp"), ("b", "near")}
    for op in gathers:
        if op.lane == "near":  # of what a forward of this step has brought
            assert any(graph[key].kind is Kind.FORWARD and key.layer == op.layer for key in op.deps)
            assert not op.lagged
    for sizes in ({"zero": 2}, {"zero": 3, "replicas": 2}, {"zero": 3, "dp": 6}):
        with pytest.raises(UserError, match="secondary is 4; it needs zero 3 and one replica, and must divide dp x cp"):
            Layout(**{"dp": 8, "secondary": 4} | sizes)  # type: ignore[arg-type]
