"""Tensors between two segments that are produced in some parts and consumed in others.

made     [    0    ][    1    ]        chunks of a microbatch, as a policy has cut the ops (`fwd.3.0.1/0`)
taken    [         0          ]        the rows of a batch, or whatever else can be cut there
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from syntony.trainer.model.layer import Transfer

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Load:
    """The output of a segment.

    x       the tensor to communicate; or the one assembled from what has arrived
    rest    tensors that stay on the rank, or (backward) their gradients
    kept    `rest` of the forward pass, the same tuple there; backward, what the transfer needs of it
    """

    x: Tensor
    rest: Tensors
    kept: Tensors


@dataclass
class Crossing:
    """One place between segments, for one microbatch and direction. `rule`: of its communication point."""

    rule: Transfer
    made: int = 0
    found: dict[int, Callable[[], Load]] = field(default_factory=dict)
    taken: int = 0
    whole: Load | None = None

    def put(self, index: int, count: int, load: Callable[[], Load]) -> None:
        """Part `index` of `count` is ready, or will be when `load` is called."""
        self.made = count
        self.found[index] = load

    def has(self, index: int, count: int) -> bool:
        """Whether part `index` of `count` can be taken."""
        return index in self.found if count == self.made else self.whole is not None or len(self.found) == self.made

    def take(self, index: int, count: int) -> Load:
        """Part `index` of `count`."""
        self.taken += 1
        if count == self.made:
            return self.found.pop(index)()
        if self.whole is None:
            loads = [self.found[number]() for number in range(self.made)]
            self.found.clear()
            self.whole = loads[0] if self.made == 1 else self._joined(loads)
        if count == 1:
            return self.whole
        x, rest, kept = self.whole.x, self.whole.rest, self.whole.kept
        mine = self.rule.cut_kept(kept, index, count)
        stays = mine if rest is kept else self.rule.cut_rest(rest, kept, index, count)
        return Load(self.rule.cut(x, kept, index, count), stays, mine)

    def _joined(self, loads: list[Load]) -> Load:
        x = self.rule.join([load.x for load in loads], [load.kept for load in loads])
        parts = [load.kept for load in loads]
        kept = self.rule.join_kept(parts)
        if all(load.rest is load.kept for load in loads):
            return Load(x, kept, kept)
        return Load(x, self.rule.join_rest([load.rest for load in loads], parts), kept)
