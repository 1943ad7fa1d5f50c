"""The mesh: the ranks as one tensor, and a torch group for every lane.

    ranks = arange(world).view(pp, dp, cp, tp)        tp innermost: neighbours share the fastest wires

    lane       ranks that meet on it                                      what for
    tp         along tp                                                   pieces of one matrix
    row        neighbours in tp, where it is a grid               blocks of one row of an activation
    column     ranks at the same place of those rows              blocks of one column of a matrix
    cp         along cp                                                   pieces of one sequence
    outer      ranks at the same position of double rings         keys and values that go to the next inner ring
    pp         along pp                                                   stages of the model
    dp         along dp and cp ("data ranks"), a block of them if there   the same weights, different tokens
               are replicas
    replicas   data ranks at the same place of their blocks               copies of one sharded model
    islands    data ranks at the same place of their islands, if these    exchanges of what islands have learned
               train apart (Layout.apart): all other lanes are then
               within an island
    near       neighbours in `dp`                                         secondary shards of weights
    ep         blocks of `ep` neighbouring data ranks                     different experts
    edp        data ranks at the same place of those blocks               copies of the same experts

    If a layer is on two devices of a pipeline (Layout.copies), both are data ranks, neighbours in `dp`.

A lane with one rank has no group. Two lanes never share a group, so that none waits behind another's messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch.distributed as dist

from syntony import _torch
from syntony.base.command import UserError
from syntony.overlap.step.layout import Parallel
from syntony.overlap.step.ranks import members


@dataclass(frozen=True)
class Mesh:
    """The grid of ranks, seen by one of them."""

    layout: Parallel
    rank: int = 0

    @property
    def world(self) -> int:
        return self.layout.ranks

    def under(self, layout: Parallel | None) -> Mesh:
        """The same ranks, with as many replicas as a plan's layout; None: unchanged."""
        return self if layout is None else replace(self, layout=layout)

    @cached_property
    def place(self) -> Mapping[str, int]:
        """This rank's coordinate on every axis; `data` counts data ranks of an island."""
        return self.place_of(self.rank)

    def place_of(self, rank: int) -> Mapping[str, int]:
        """A rank's coordinates. Of a layer's two devices in a pipeline (Layout.copies), the one in the first half comes
        first as a data rank."""
        layout, rest = self.layout, rank
        place: dict[str, int] = {}
        for axis in ("tp", "cp", "dp", "pp"):
            rest, place[axis] = divmod(rest, getattr(layout, axis))
        place["column"], place["row"] = divmod(place["tp"], layout.side) if layout.grid else (0, 0)
        place["rows"] = place["tp"] if layout.rotate else place["column"]  # which part of a microbatch's sequences
        place["data"] = (place["dp"] * layout.cp + place["cp"]) * layout.copies
        place["data"] += layout.copies > 1 and 2 * place["pp"] >= layout.pp
        islands = layout.sizes["islands"]
        place["islands"], place["data"] = divmod(place["data"], layout.dp * layout.cp * layout.copies // islands)
        place["near"] = place["data"] % self.size("near")
        place["edp"], place["ep"] = divmod(place["data"], layout.ep)
        place["replicas"], place["within"] = divmod(place["data"], self.size("dp"))
        return place

    def size(self, lane: str) -> int:
        """The number of ranks on a lane."""
        return self.layout.sizes[lane]

    def members(self, lane: str) -> list[list[int]]:
        """The ranks of every group of a lane, each in the order of its axis."""
        groups: list[list[int]] = members(self.layout, lane).reshape(-1, self.size(lane)).tolist()
        return groups

    def groups(
        self,
        lanes: tuple[str, ...],
        timeout: timedelta,
        backend: str | None = None,
        urgency: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, dist.ProcessGroup]:
        """A torch group per lane that this rank shares with others. Collective: all ranks name the same lanes.

        backend    None: the default group's
        urgency    `high`, `normal` or `low` by lane, if the backend is Syntony's
        A suffix behind a dot makes a separate lane with the same members (`dp.gather`).
        """
        if self.world != dist.get_world_size():
            wanted = " x ".join(f"{axis} {getattr(self.layout, axis)}" for axis in ("pp", "dp", "cp", "tp"))
            raise UserError(f"[parallel] asks for {self.world} ranks ({wanted}), but there are {dist.get_world_size()}")
        found: dict[str, dist.ProcessGroup] = {}
        backend = backend or dist.get_backend()
        for lane in lanes:
            axis = lane.split(".")[0]
            if self.size(axis) == 1:
                continue
            options = None
            if backend == "syntony" and axis in urgency:
                options = _torch.SyntonyBackend.Options(timeout)
                options.priority = urgency[axis]
            for ranks in self.members(axis):
                # A layer's two devices are adjacent among its data ranks: torch would sort a group's ranks.
                order: dict[str, Any] = {} if ranks == sorted(ranks) else {"sort_ranks": False}
                group = dist.new_group(ranks, timeout, backend, options, group_desc=lane, **order)
                if self.rank in ranks:
                    found[lane] = group
        return found
