"""Where a block's experts are: places that follow demand, between two steps (trainer/run/following.py)."""

from __future__ import annotations

import torch
from torch import Tensor


class Places:
    """Of one block. Place p is with rank p // (experts / ranks) of the group `ep`.

    of       the place of each expert, and behind them that of nobody's choices, which stay nobody's
    asked    rows of this rank that have asked for each expert since one last forgot them
    """

    def __init__(self, experts: int) -> None:
        self.of = torch.arange(experts + 1)
        self.asked = torch.zeros(experts, dtype=torch.int64)

    def found(self, chosen: Tensor) -> Tensor:
        """Places instead of the experts that were chosen, which are counted."""
        self.asked += torch.bincount(chosen.flatten(), minlength=len(self.of))[:-1]
        return self.of[chosen]
