"""Stages: the order in which the steps of a hand-written algorithm are done.

People write one chunk's journey after another's; ranks should not travel so. The stage of a message is how many
messages must come before it; steps go stage by stage, and within a stage as they were written.

    written   0->1 1->2 2->3    1->2 2->3 3->0     rank 1 would send its own chunk after the first one has passed
    stages    0->1 1->2 | 1->2 2->3 | 2->3 3->0    every rank sends at once

What may not change places keeps its order: reads and writes of one memory, and messages of one lane that are of one
stage. (MSCCLang orders its instructions by the same depth: Cowan et al., ASPLOS 2023, section 4.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from syntony.synth.lowering.passes.tape import Slot, Step


def in_stages(steps: Sequence[Step], memory: Callable[[int, Slot], Slot]) -> list[int]:
    """The positions of the steps in their new order. A receive stands right after its send, here as there.

    `memory` gives one name to slots of a rank that may be the same memory.
    """
    there: dict[tuple[int, Slot], int] = defaultdict(int)  # from which stage on the memory holds what was written last
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
