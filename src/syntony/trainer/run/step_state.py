"""What one run of a step keeps until its end; its tables, which stay, are in compiled_step.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from syntony.overlap.step.op_key import OpKey
from syntony.trainer.model.crossing import Crossing
from syntony.trainer.model.flash import Pieces
from syntony.trainer.parallel.data_parallel.leaf import Leaf
from syntony.trainer.run.memory.dropped import Dropped
from syntony.trainer.run.memory.kept import Kept
from syntony.trainer.run.memory.lent import Lent
from syntony.trainer.run.turns import Turns


@dataclass
class StepState:
    """The state of one run of a step.

    batch        its microbatches
    between      tensors that wait for a segment, by direction, layer, microbatch and segment
    leaving      those that wait for communication, by recorded op
    kept         of segments that ran, for their backward, by part
    leaves       gradients in progress, by layer and microbatch
    gathered     weights, by gather and layer
    losses       by microbatch
    sequences    what pieces of sequences keep for later ones, by layer, segment and microbatch before it was cut
    arrived      by layer: microbatches whose gradients are summed
    done         compute ops
    withheld     layers with all gradients, and what else their sums wait for
    waiting      of gathers and returns that have not begun, what they wait for
    dropped      outputs of transfers that will be repeated
    lent         activations that are away, or those of another device that are here
    turns        shards of weights that rotate, and their gradients
    verified     the last step's norm was checked; `void`: it was too large, and this step's gradients are of undone
                 weights
    """

    batch: Sequence[tuple[Tensor, Tensor]]
    waiting: dict[OpKey, set[OpKey]]
    between: dict[tuple[str, int, int, int], Crossing] = field(default_factory=dict)
    leaving: dict[OpKey, Crossing] = field(default_factory=dict)
    kept: dict[tuple[int, int, int], dict[int, Kept]] = field(default_factory=dict)
    leaves: dict[tuple[int, int], Leaf] = field(default_factory=dict)
    gathered: dict[OpKey, dict[int, Tensor]] = field(default_factory=dict)
    losses: dict[int, list[Tensor]] = field(default_factory=dict)
    sequences: dict[tuple[int, int, int], dict[str, Pieces]] = field(default_factory=dict)
    arrived: Counter[int] = field(default_factory=Counter)
    done: set[OpKey] = field(default_factory=set)
    withheld: dict[int, set[OpKey]] = field(default_factory=dict)
    dropped: Dropped = field(default_factory=Dropped)
    lent: Lent = field(default_factory=Lent)
    turns: Turns = field(default_factory=Turns)
    verified: bool = False
    void: bool = False
