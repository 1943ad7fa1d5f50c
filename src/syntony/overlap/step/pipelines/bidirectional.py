"""Chimera: two pipelines in opposite directions over the same devices.

    device 0   F0 .. F1 .. .. u0 B0 u1 B1       F, B    microbatches of the first half: stage d on device d
    device 3   u0 .. u1 .. .. F0 b0 F1 b1       u, b    of the second half: stage d on device p - 1 - d

Every device holds two stages, d and p - 1 - d, and each stage is on two devices, which sum its gradients. If a forward
and a backward take the same time, the two pipelines interlock: each uses every other slot. A round of p microbatches
idles p - 2 slots (1f1b: 2 (p - 1)), and devices hold between p / 2 + 1 and p of them instead of 1 to p. Rounds follow
without a gap. Li and Hoefler, Chimera (SC 2021), sections 3.1 and 3.2, with two pipelines.
"""

from __future__ import annotations

from syntony.base.command import UserError
from syntony.overlap.step.pipelines.tasks import Orders, Task, Times


def chimera(devices: int, chunks: int, microbatches: int, times: Times) -> Orders:
    """Tasks by slot of one task each. Raises UserError for an odd number of devices, and for incomplete rounds."""
    if devices % 2:
        raise UserError(f"schedule chimera pairs devices; {devices} is odd")
    if microbatches % devices:
        raise UserError(
            f"schedule chimera takes rounds of {devices} microbatches, one per device; {microbatches} is not a "
            f"multiple of {devices}"
        )
    half = devices // 2
    orders = []
    for device in range(devices):
        slots: dict[int, Task] = {}
        for number in range(microbatches // 2):
            turn, place = divmod(number, half)
            begin = 2 * devices * turn + 2 * place
            for stage, microbatch in ((device, number), (devices - 1 - device, microbatches // 2 + number)):
                slots[begin + stage] = Task("F", stage, microbatch)
                slots[begin + 2 * devices - 1 - stage] = Task("B", stage, microbatch)
        orders.append(tuple(slots[slot] for slot in sorted(slots)))
    return tuple(orders)
