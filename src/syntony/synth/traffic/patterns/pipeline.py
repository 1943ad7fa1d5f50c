"""Pipelines: stages that pass on micro-batches, activations forwards and gradients backwards.

    stage 0   f0 f1 f2          ..  b0 b1 b2
    stage 1      f0 f1 f2  b0 b1 b2              each arrow from row to row is one message of `size` bytes

Point-to-point traffic of GPipe (Huang et al., NeurIPS'19, section 2.3): all micro-batches forwards, then all backwards.
"""

from __future__ import annotations

import numpy as np

from syntony.synth.traffic.messages import Messages, one_after_another


def pipeline(members: int, size: float, microbatches: int) -> Messages:
    """`size` bytes per micro-batch from each stage to the next, and as many back."""
    forwards = _one_way(members, size, microbatches)
    backwards = Messages.make(
        members,
        members - 1 - forwards.src,
        members - 1 - forwards.dst,
        forwards.bytes,
        (np.repeat(np.arange(len(forwards)), np.diff(forwards.offset)), forwards.after),
    )
    return one_after_another([forwards, backwards])


def _one_way(members: int, size: float, microbatches: int) -> Messages:
    stage = np.tile(np.arange(members - 1), microbatches)
    later = np.flatnonzero(stage > 0)
    return Messages.make(members, stage, stage + 1, size, (later, later - 1))
