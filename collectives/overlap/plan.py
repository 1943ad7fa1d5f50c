"""A Plan: what every device's lanes do, in which order, with how many bytes in flight. Simulated and run as it stands.

It is text (JSON, one Op a line), so that people can read it and ranks can agree on it: `Plan.hash` is compared before
step 0, and a rank with another plan is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from collectives.overlap.graph import Graph
from collectives.overlap.layout import Clip as Clip

Lane = tuple[int, str]  # device, and its lane's name


@dataclass(frozen=True)
class Plan:
    """One step, decided.

    policy   its name, with the knobs it was made with
    graph    the step after the policy's passes
    orders   per device and lane the names of its Ops, first to last; every Op is in exactly one
    windows  bytes that may be in flight on a lane; a lane that is not here has no limit
    clip     how gradients are clipped
    """

    policy: str
    graph: Graph
    orders: Mapping[Lane, tuple[str, ...]]
    windows: Mapping[str, int] = field(default_factory=dict)
    knobs: Mapping[str, object] = field(default_factory=dict)
    clip: Clip = Clip.OFF

    @cached_property
    def parts(self) -> Mapping[str, tuple[str, ...]]:
        """By Op of the recorded step: the planned Ops that stand for it, in the order of their lane."""
        found: dict[str, list[str]] = {}
        for order in self.orders.values():
            for name in order:
                for source in self.graph[name].sources:
                    found.setdefault(source, []).append(name)
        return {source: tuple(names) for source, names in found.items()}
