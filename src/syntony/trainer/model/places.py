"""The places of a block's experts, which follow demand between two steps (trainer/run/following.py)."""

from __future__ import annotations

import torch
from torch import Tensor


class Places:
    """Of one block. Place p is with rank p // (experts / ranks) of the group `ep`.

    of       the place of each expert, followed by a place for choices of no expert, which stay so
    asked    rows of this rank that have chosen each expert since the last reset
    """

    def __init__(self, experts: int) -> None:
        self.of = torch.arange(experts + 1)
        self.asked = torch.zeros(experts, dtype=torch.int64)

    def found(self, chosen: Tensor) -> Tensor:
        """Replaces chosen experts by their places, and counts the choices."""
        self.asked += torch.bincount(chosen.flatten(), minlength=len(self.of))[:-1]
        return self.of[chosen]
