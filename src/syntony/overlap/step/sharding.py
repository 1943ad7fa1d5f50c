"""How the state of a layer (weights, gradients, optimizer's state) is divided among ranks.

    level    weights    gradients   optimizer's state     as `Layout.zero`, unless a policy chose for the layer
      0       whole       whole          whole
      1       whole       whole         sharded
      2       whole      sharded        sharded
      3      sharded     sharded        sharded

Shards are those of a group of ranks, a lane: `dp`; `edp` for experts that are distributed over `ep`; `ep` for a layer's
shadow, the experts that move to the tokens; `data` for layers that all replicas sum at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Parallel


@dataclass(frozen=True)
class Sharding:
    """The sharding of one layer.

    lane      the group whose ranks sum the layer's gradients
    ranks     in that group
    level     what is sharded, as in the table above, even if the group has one rank only
    replicas  that each update a part of a shard; 1: each updates all of it
    weights   bytes of the layer's weights
    """

    lane: str
    ranks: int
    level: int
    replicas: int
    weights: int

    @classmethod
    def of_all(cls, layers: Sequence[LayerSpec], layout: Parallel) -> list[Sharding]:
        """By layer, and behind them all by shadow (Graph.shadow); a layer without one has a shadow without weights."""
        nothing = LayerSpec("", 0, ())
        own = [cls.of(layer, layout) for layer in layers]
        return own + [cls.of(layer.shadow or nothing, layout, shadow=True) for layer in layers]

    @classmethod
    def of(cls, layer: LayerSpec, layout: Parallel, shadow: bool = False) -> Sharding:
        """The sharding of a layer, or of one that is the `shadow` of another."""
        lane = "ep" if shadow else "edp" if layer.expert and layout.ep > 1 else "dp"
        if lane == "dp" and layout.replicas > 1 and layer.sums in ("whole", "split"):
            lane = "data"
        level = 3 if shadow else 0 if layer.sums in ("whole", "factors") else max(layout.zero, int(bool(layer.sums)))
        spreads = layout.spread and lane == "dp" and level > 0 and layer.weights > 0
        return cls(lane, layout.groups.get(lane, 1), level, layout.replicas if spreads else 1, layer.weights)

    def divides(self, level: int) -> bool:
        """Whether what this level shards is divided among several ranks."""
        return self.level >= level and self.ranks > 1 and self.weights > 0

    @property
    def gathers(self) -> bool:
        """Whether weights are whole, and gathered after their update."""
        return self.level in (1, 2) and self.divides(1)

    @property
    def spreads(self) -> bool:
        """Whether the replicas of a shard each update a part of it."""
        return self.replicas > 1

    @property
    def parts(self) -> int:
        """The number of parts of the weights, each of which another rank updates."""
        return (self.ranks if self.level else 1) * self.replicas

    @property
    def updated(self) -> float:
        """Bytes of the weights that a rank updates."""
        return self.weights / self.parts
