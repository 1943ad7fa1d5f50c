"""The layouts that a model can have on so many ranks: every way to write the ranks as tp x cp x dp x pp, and per way

    ep           the expert parallelisms that divide the experts and dp x cp
    zero         0, 1, 2, 3; 2 where a step has one microbatch, as it saves nothing before the last one's gradients
    schedule     of a pipeline; interleaved with all numbers of chunks, those that are searched up to SEARCHED devices
    batch        sequences of a microbatch
    attention    with cp, ring, Ulysses, or both on every grid of two sizes

What does not divide evenly is left out, as the trainer would refuse it (step/models.py). Recomputing is no choice: it
costs time, so the search turns to it where a layout does not fit without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from syntony.base.command import UserError
from syntony.overlap.step.layout import Attention, Clip, Layout
from syntony.overlap.step.models import ModelSpec, check

SEARCHED = 8
"""Devices of a pipeline, up to which orders are searched: the search takes time with their square."""
_MOST_CHUNKS = 8  # of a device


@dataclass(frozen=True)
class Question:
    """What is to be laid out.

    sequences   of a step, of all ranks
    memory      bytes of a device that a step may take
    element     bytes of a weight, a gradient and an activation
    batches     sequences that a microbatch may have
    clip        of gradients
    """

    model: ModelSpec
    ranks: int
    sequences: int
    memory: float = float("inf")
    element: int = 2
    batches: tuple[int, ...] = (1, 2, 4, 8)
    clip: Clip = Clip.OFF


class Candidate(NamedTuple):
    """batch: sequences of a microbatch."""

    layout: Layout
    batch: int


def candidates(asked: Question) -> Iterator[Candidate]:
    """All of them. Those of equal tp, cp, ep and batch, whose layers are the same, come in a row."""
    model = asked.model
    layers = model.blocks // model.together
    for tp in _divisors(asked.ranks):
        for cp in _divisors(asked.ranks // tp):
            for attention, traders in _attentions(cp):
                for ep in _divisors(model.experts) if model.experts else (1,):
                    try:
                        check(model, Layout(tp=tp, cp=cp, ep=ep, dp=ep, attention=attention, traders=traders))
                    except UserError:
                        continue
                    for batch in asked.batches:
                        for pp in (size for size in _divisors(asked.ranks // tp // cp) if size <= layers):
                            sizes: dict[str, object] = {"tp": tp, "cp": cp, "pp": pp, "ep": ep}
                            sizes |= {"attention": attention, "traders": traders}
                            yield from _under(asked, batch, sizes)


def _attentions(cp: int) -> Iterator[tuple[Attention, int]]:
    yield "ring", 1
    if cp > 1:
        yield "ulysses", 1
        yield from (("usp", traders) for traders in _divisors(cp)[1:-1])


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
