"""Stages: the execution order of the steps of a hand-written algorithm.

Authors write the journey of one chunk after another, but ranks should not execute in that order. The stage of a message
is the number of messages that must precede it; steps run stage by stage, and within a stage in the written order.

    written   0->1 1->2 2->3    1->2 2->3 3->0     rank 1 would send its own chunk after the first one has passed
    stages    0->1 1->2 | 1->2 2->3 | 2->3 3->0    every rank sends at once

Steps that must not be reordered keep their order: accesses to the same memory, and messages of one lane in one stage.
(MSCCLang orders its instructions by the same depth: Cowan et al., ASPLOS 2023, section 4.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from syntony.synth.lowering.passes.tape import Slot, Step


def in_stages(steps: Sequence[Step], memory: Callable[[int, Slot], Slot]) -> list[int]:
    """The positions of the steps in their new order. A receive stays directly behind its send.

    `memory` maps slots of a rank that may be the same memory to one name.
    """
    there: dict[tuple[int, Slot], int] = defaultdict(int)  # first stage in which the memory holds its last value
    busy: dict[tuple[int, Slot], int] = defaultdict(int)  # the last stage that reads it
    stages: list[int] = []
    at = 0
    while at < len(steps):
        together = steps[at : at + 2] if steps[at].sends else steps[at : at + 1]
        reads = [(step.rank, memory(step.rank, slot)) for step in together for slot in step.read()]
        writes = [(step.rank, memory(step.rank, slot)) for step in together for slot in step.written()]
        stage = max([*(there[place] for place in reads), *(max(there[place], busy[place]) for place in writes)])
        for place in reads:
            busy[place] = max(busy[place], stage)
        for place in writes:
            there[place] = stage + (len(together) == 2)
            busy[place] = stage
        stages += [stage] * len(together)
        at += len(together)
    return sorted(range(len(steps)), key=stages.__getitem__)
