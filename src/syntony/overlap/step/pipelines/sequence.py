"""Pipelines that cut sequences: a causal model's pieces of one sequence follow each other as microbatches do.

    terapipe, 2 slices    0  F0a F0b F1a F1b .. .. .. .. B1b B1a B0b B0a
                          1      F0a F0b F1a F1b B1b B1a B0b B0a
    seq1f1b, 2 slices     0  F0a F0b F1a .. B0b F1b B0a .. B1b .. B1a
                          1      F0a F0b B0b F1a B0a F1b B1b B1a

A piece attends to its own tokens and to keys and values of earlier pieces, which its device has. So forwards go from
the first piece to the last, backwards from the last to the first. k slices divide the bubble by k: with m microbatches,
(p - 1) / (k m + p - 1) of the time is idle. Here pieces have the same number of tokens.

Li et al., TeraPipe (ICML 2021), section 3; Sun et al., Seq1F1B (2024), section 3: devices hold the activations of
(p - d + k - 1) / k microbatches, those of 1f1b p - d. Pieces of equal work instead of length are not implemented.
"""

from __future__ import annotations

from syntony.overlap.step.pipelines.tasks import Orders, Task, Times


def _backwards(device: int, slices: int, units: int) -> list[Task]:
    """Sequence by sequence, the last piece first."""
    return [Task("B", device, unit - unit % slices + slices - 1 - unit % slices) for unit in range(units)]


def terapipe(devices: int, slices: int, units: int, times: Times) -> Orders:
    """All forwards, then all backwards."""
    return tuple(
        (*(Task("F", device, unit) for unit in range(units)), *reversed([Task("B", device, u) for u in range(units)]))
        for device in range(devices)
    )


def seq1f1b(devices: int, slices: int, units: int, times: Times) -> Orders:
    """One forward and one backward of a piece in turn, once a whole sequence has arrived at the last device."""
    orders = []
    for device in range(devices):
        ahead = min(units, devices - device - 1 + slices - 1)
        forwards, backwards = [Task("F", device, unit) for unit in range(units)], _backwards(device, slices, units)
        order = forwards[:ahead]
        for pair in zip(forwards[ahead:], backwards, strict=False):
            order += pair
        orders.append((*order, *backwards[units - ahead :]))
    return tuple(orders)
