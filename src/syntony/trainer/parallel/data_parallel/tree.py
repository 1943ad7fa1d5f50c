"""Sums in one canonical association: a pairwise tree over the global microbatch index.

    level 2          .-- 0 --.            node (level, i) = node (level - 1, 2i) + node (level - 1, 2i + 1);
    level 1       .- 0 -. .- 1 -.         a missing one is left out
    level 0       0     1 2     3 ..

A data rank has an aligned run of 2^k microbatches, so its own sum is a node, and summing over ranks in the same way
(overlap/run/plan_runner.py) gives the root that one process would have computed: bit for bit the same gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Tree:
    """The sum of `leaves` buffers that arrive in any order; if in order, at most log2(leaves) + 1 are held at once.

    Sums are made in place, in the left buffer: so the total ends in the buffer of leaf 0, which `home` provides.
    """

    def __init__(self, leaves: int, home: Callable[[], Tensor]) -> None:
        self.leaves, self._home = leaves, home
        self._spare: list[Tensor] = []
        self._nodes: dict[tuple[int, int], Tensor] = {}

    def leaf(self, index: int) -> Tensor:
        """A buffer with undefined content for the gradient of microbatch `index`."""
        if index == 0:
            return self._home()
        return self._spare.pop() if self._spare else torch.zeros_like(self._home())

    def add(self, index: int, leaf: Tensor) -> None:
        """Takes the buffer of microbatch `index`, and makes all sums that are complete."""
        level, node = 0, leaf
        while (width := -(-self.leaves >> level)) > 1:
            sister = index ^ 1
            if sister < width:
                other = self._nodes.pop((level, sister), None)
                if other is None:
                    self._nodes[level, index] = node
                    return
                left, right = (other, node) if index & 1 else (node, other)
                node = left.add_(right)
                self._spare.append(right)
            level, index = level + 1, index >> 1
        self._nodes[level, index] = node

    def take(self, keep_spare: bool) -> Tensor:
        """The sum of all leaves; empties the tree."""
        if len(self._nodes) != 1:
            raise RuntimeError(f"{len(self._nodes)} sums of {self.leaves} microbatches are left apart")
        if not keep_spare:
            self._spare.clear()
        return self._nodes.popitem()[1]
