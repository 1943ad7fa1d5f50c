"""What contenders under torch's autograd share: microbatches forward and backward, then one update of everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from syntony.benchmarks.overlap.contenders.ours import RATE


class Autograd:
    """A contender but for its model. Tells its last loss."""

    def __init__(self, batch: Sequence[tuple[Tensor, Tensor]], parameters: Any) -> None:
        """`batch`: tokens and targets of every microbatch; `parameters`: what an optimizer takes."""
        self.batch, self.loss = batch, 0.0
        self.optimizer = torch.optim.AdamW(parameters, lr=RATE, fused=True)

    def turn(self, tokens: Tensor, targets: Tensor) -> float:
        """A microbatch forward and backward; its loss."""
        raise NotImplementedError

    def settle(self) -> None:
        """All gradients are sums."""

    def step(self) -> None:
        losses = [self.turn(*microbatch) for microbatch in self.batch]
        self.settle()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss = sum(losses) / len(losses)

    def finish(self) -> Mapping[str, Any]:
        return {"loss": self.loss}

    def close(self) -> None:
        pass
