"""The possible layouts of a model on a number of ranks: all factorizations into tp x cp x dp x pp, each with

    ep           the expert parallelisms that divide the experts and dp x cp
    zero         0, 1, 2, 3; 2 only with several microbatches, since it saves nothing before the last one's gradients
    schedule     of a pipeline; interleaved with all numbers of chunks; searched ones up to SEARCHED devices
    batch        sequences of a microbatch
    attention    with cp, ring, Ulysses, or both on every grid of two sizes
    grid         if tp is a square: matrices cut along one axis, or along both

What does not divide evenly is left out, as the trainer would refuse it (step/models.py). Recomputing is no choice: it
costs time, so the search turns to it where a layout does not fit without. Nor are replicas of a model that is sharded
within a box, whose update all share (`spread`), or secondary shards within one, or tokens that are sent once for all
ranks of tp (`dedup`) or of a box (`relay`): only the best layouts are looked at in these forms, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isqrt
from typing import NamedTuple

from syntony.base.command import UserError
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.model_spec import ModelSpec
from syntony.overlap.step.models import check

SEARCHED = 8
"""Largest pipeline, in devices, for which orders are searched: the search takes quadratic time."""
_MOST_CHUNKS = 8  # of a device


@dataclass(frozen=True)
class Question:
    """The model and the limits of a layout.

    sequences   of a step, over all ranks
    memory      bytes of a device available to a step
    element     bytes of a weight, a gradient and an activation
    batches     possible numbers of sequences of a microbatch
    clip        of gradients
    box         ranks that are near each other; 0: unknown
    """

    model: ModelSpec
    ranks: int
    sequences: int
    memory: float = float("inf")
    element: int = 2
    batches: tuple[int, ...] = (1, 2, 4, 8)
    clip: Clip = Clip.OFF
    box: int = 0


class Candidate(NamedTuple):
    """batch: sequences of a microbatch."""

    layout: Layout
    batch: int


def candidates(asked: Question) -> Iterator[Candidate]:
    """All candidates. Those with equal tp, cp, ep and batch, whose layers are the same, are consecutive."""
    model = asked.model
    layers = model.blocks // model.together
    for tp in _divisors(asked.ranks):
        for cp in _divisors(asked.ranks // tp):
            for form in (*_attentions(cp), *_grids(tp, cp)):
                for ep in _divisors(model.experts) if model.experts else (1,):
                    try:
                        inner = Layout(tp=tp, cp=cp, ep=ep, dp=ep, **form)  # type: ignore[arg-type]
                        check(model, inner)
                    except UserError:
                        continue
                    for batch in (size for size in asked.batches if size % inner.side == 0):
                        for pp in (size for size in _divisors(asked.ranks // tp // cp) if size <= layers):
                            yield from _under(asked, batch, {"tp": tp, "cp": cp, "pp": pp, "ep": ep, **form})


def _attentions(cp: int) -> Iterator[dict[str, object]]:
    yield {"attention": "ring"}
    if cp > 1:
        yield {"attention": "ulysses"}
        yield from ({"attention": "usp", "traders": traders} for traders in _divisors(cp)[1:-1])


def _grids(tp: int, cp: int) -> Iterator[dict[str, object]]:
    if tp > 1 and isqrt(tp) ** 2 == tp and cp == 1:
        yield {"grid": True}


def _under(asked: Question, batch: int, sizes: dict[str, object]) -> Iterator[Candidate]:
    tp, cp, pp, ep = (int(str(sizes[name])) for name in ("tp", "cp", "pp", "ep"))
    dp = asked.ranks // (tp * cp * pp)
    if asked.sequences % (dp * batch) or dp * cp % ep:
        return
    count = asked.sequences // (dp * batch)
    for schedule, loops in _schedules(asked.model, pp, count):
        for zero in (0,) if dp * cp == 1 else (0, 1, 3) if count > 1 else (0, 1, 2, 3):
            yield Candidate(
                Layout(
                    **sizes,  # type: ignore[arg-type]
                    dp=dp, zero=zero, schedule=schedule, loops=loops, microbatches=count, clip=asked.clip,
                ),
                batch,
            )  # fmt: skip


def nearer(asked: Question, one: Candidate) -> Iterator[Candidate]:
    """The same, but with a stage's weights sharded within a box, or with secondary shards there, or tokens sent to
    experts once for all ranks of tp, or of a box. It takes no less memory."""
    layout, data = one.layout, one.layout.dp * one.layout.cp
    size = asked.box // layout.tp
    if layout.zero in (1, 3) and layout.copies == 1 and 1 < size < data and data % size == 0:
        yield one._replace(layout=replace(layout, replicas=data // size, spread=True))
        if layout.zero == 3:
            yield one._replace(layout=replace(layout, secondary=size))
    if layout.dedup:
        return
    once = list[Candidate]()
    if layout.tp > 1 and layout.ep > 1 and asked.model.hidden % layout.tp == 0:
        once.append(one._replace(layout=replace(layout, dedup=True)))
    if layout.relay == 1 and 1 < size < layout.ep and layout.ep % size == 0:
        once.append(one._replace(layout=replace(layout, relay=size)))
    for form in once:
        yield from (form, *nearer(asked, form))


def _schedules(model: ModelSpec, pp: int, count: int) -> Iterator[tuple[str, int]]:
    yield "1f1b", 1
    layers = model.blocks // model.together
    if pp == 1:
        return
    if count % pp == 0:
        for loops in range(2, _MOST_CHUNKS + 1):
            if layers % (pp * loops) == 0:
                yield "interleaved", loops
    if pp <= SEARCHED:
        yield "zb1p", 1
        if 2 * pp <= layers:
            yield from (("zbv", 1), ("v_half", 1), ("v_min", 1))
    if 2 * pp <= min(count, layers):
        yield "dualpipe_v", 1


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(size for size in range(1, number + 1) if number % size == 0)
