"""Schedules of pipelines against what their papers promise, where F = X = W and messages take no time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest

from syntony.base.command import UserError
from syntony.overlap.step.pipelines.pipelines import PIPELINES, pipeline
from syntony.overlap.step.pipelines.tasks import LEND, RETURN, Pipeline, Task, Times, finish

SIZES = [(1, 2), (2, 4), (3, 9), (4, 8), (4, 12)]
EVEN = [(2, 4), (4, 4), (4, 8), (6, 6), (8, 16)]


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_every_task_once_in_an_order_that_runs(name: str, p: int, m: int) -> None:
    if (PIPELINES[name].twins or (name == "bpipe" and p > 1)) and p % 2:
        with pytest.raises(UserError, match="pairs devices"):
            pipeline(name, p, 1, m)
        return
    for loops in (1, 2, 3) if PIPELINES[name].loops else (1,):
        pipeline(name, p, loops, m).check()
    for slices in (2, 3) if PIPELINES[name].slices else ():
        pipeline(name, p, 1, m, None, slices).check()


@pytest.mark.parametrize(("p", "m"), EVEN)
def test_chimera(p: int, m: int) -> None:
    """Table 2, and section 3.2 for backwards of two forwards: there rounds behind the first add to the bubble."""
    found = pipeline("chimera", p, 1, m)
    assert finish(found, Times(2, 1, 1)) == 4 * m + 2 * (p - 2)
    if m == p:
        assert finish(found, Times()) == 3 * m + 2 * (p - 2)
    assert held(found) == tuple(p // 2 + 1 + min(d, p - 1 - d) for d in range(p))


@pytest.mark.parametrize("p", [2, 4, 6, 8, 16])
def test_bpipe(p: int) -> None:
    """Section 3: as quick as 1f1b, and no device holds more than half of what the first one did, and a little."""
    for m in (p, 2 * p, 4 * p):
        found = pipeline("bpipe", p, 1, m)
        assert finish(found, Times()) == finish(pipeline("1f1b", p, 1, m), Times())
        for d, order in enumerate(found.orders):
            own, room = _lending(order)
            assert own == min(m, p - d, p // 2 + 1)
            assert not room or d + 1 + room <= p // 2 + (1 if p in (4, 8) else 2)  # with the borrower's own


def _lending(order: Sequence[Task]) -> tuple[int, int]:
    """Microbatches that a device holds at most, those that leave or come during a task counted; and places that the
    other device must have, each free again from when on what was in it comes back."""
    here, away, most, room = set[int](), set[int](), 0, 0
    leaving, left = set[int](), set[int]()  # before the next task, and before the last one
    for task in order:
        m = task.microbatch
        if task.kind == LEND:
            leaving.add(m)
            away.add(m)
            room = max(room, len(away))
        elif task.kind == RETURN:
            away.remove(m)
            here.add(m)
        else:
            here = (here | {m}) - left
            leaving, left = set(), leaving
            most = max(most, len(here))
            here -= {m} if task.kind == "B" else set()
    return most, room


@pytest.mark.parametrize("waves", [1, 2, 4])
@pytest.mark.parametrize("p", [2, 4, 8])
def test_hanayo(p: int, waves: int) -> None:
    for m in (p, 2 * p):
        found = pipeline("hanayo", p, waves, m)
        idle = 1 - 6 * m * waves / finish(found, Times())
        assert idle <= 1.02 * (2 * p - 2) / (3 * p * waves + p - 1)
        assert max(held(found)) <= 2 * waves * p


@pytest.mark.parametrize("slices", [1, 2, 4])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_cut_sequences(p: int, m: int, slices: int) -> None:
    for name in ("terapipe", "seq1f1b"):
        took = finish(pipeline(name, p, 1, m, None, slices), Times())
        assert 1 - 3 * m * slices / took == pytest.approx((p - 1) / (m * slices + p - 1))
    most = [min(m * slices, p - d + slices - 1) for d in range(p)]
    assert held(pipeline("seq1f1b", p, 1, m, None, slices)) == tuple(most)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_bubbles(p: int, m: int) -> None:
    def stretch(name: str, loops: int = 1) -> float:
        found = pipeline(name, p, loops, m)
        return finish(found, Times()) / (3 * m * len(found.places) / p)

    assert stretch("gpipe") == stretch("1f1b") == pytest.approx((m + p - 1) / m)
    for loops in (1, 2, 3):
        assert stretch("interleaved", loops) == pytest.approx(1 + (p - 1) / (m * loops))
        assert stretch("breadth_first", loops) == pytest.approx(1 + (p - 1) / (m * loops))
    # Zero Bubble, table 1: a third of the bubble at the memory of 1f1b, then none but the first wait.
    assert stretch("zb1p") <= 1 + (p - 1) * 1.34 / (3 * m) + 1e-9
    assert stretch("zb2p") == pytest.approx(1 + (p - 1) / (3 * m))
    assert stretch("zbv") == pytest.approx(1 + (p - 1) / (6 * m))
    # Controllable Memory: half of the memory costs half of 1f1b's bubble, a third of it about the whole.
    assert stretch("v_half") <= 1 + (p + 1) / (2 * m) + 1e-9
    assert stretch("v_min") <= 1 + (p - 1) / m + 1e-9
    assert stretch("dualpipe_v") <= 1 + (p - 1) / (3 * m) + 1e-9


def held(found: Pipeline) -> tuple[int, ...]:
    """Per device the most microbatches of chunks whose activations are there at once."""
    steps = [[(task.kind == "F") - (task.kind in "BW") for task in order] for order in found.orders]
    return tuple(max(accumulate(each)) for each in steps)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_memory(p: int, m: int) -> None:
    assert held(pipeline("gpipe", p, 1, m)) == (m,) * p
    assert held(pipeline("1f1b", p, 1, m)) == tuple(min(m, p - d) for d in range(p))
    assert max(held(pipeline("zb1p", p, 1, m))) <= p
    assert max(held(pipeline("zb2p", p, 1, m))) <= 2 * p
    assert max(held(pipeline("zbv", p, 1, m))) <= 2 * p  # of half the size
    assert max(held(pipeline("v_half", p, 1, m))) <= p + 2
    assert max(held(pipeline("v_min", p, 1, m))) <= 2 * p / 3 + 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda orders: (orders[0][1:], orders[1]), "one F of every chunk and microbatch"),
        (lambda orders: (orders[0] + orders[0][:1], orders[1]), "one F of every chunk and microbatch"),
        (lambda orders: (orders[1], orders[0]), "but lies on 1"),
        (lambda orders: (orders[0][::-1], orders[1]), "waits forever with"),
        (lambda orders: ((*orders[0], Task(LEND, 0, 1)), orders[1]), "between a forward, a return and a backward"),
    ],
)
def test_broken_orders_are_named(change, message: str) -> None:
    good = pipeline("1f1b", 2, 1, 4)
    with pytest.raises(UserError, match=message):
        Pipeline(good.places, 4, change(good.orders)).check()


def test_slow_messages_are_known_to_the_search() -> None:
    slow = Times(1.0, 1.0, 1.0, 0.5)
    assert finish(pipeline("zb2p", 4, 1, 8, slow), slow) <= finish(pipeline("zb2p", 4, 1, 8), slow)
    assert finish(pipeline("zb2p", 4, 1, 8, slow), slow) < finish(pipeline("1f1b", 4, 1, 8), slow)


def test_w_comes_after_x() -> None:
    order = pipeline("zb1p", 2, 1, 2).orders[0]
    assert order.index(Task("X", 0, 0)) < order.index(Task("W", 0, 0))
