r"""Boxes of GPUs around an NVSwitch, joined by NICs and network switches.

One box of 4 GPUs and 4 NICs, the network above it:

            network switch, or one per rail
             │    │    │    │         wire `network`
            nic  nic  nic  nic
             │    │    │    │         wire `pcie`
            gpu  gpu  gpu  gpu
              \   │    │   /          wire `nvlink`
                 nvswitch

The NVSwitch chips of a box are one node, because each GPU spreads its links evenly over them and reaches any other GPU
at full rate. A single box has neither network nor NICs.

GPU g and NIC n are joined when they are in the same **lane**: when they agree modulo the smaller of the two counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from syntony.topologies.families.boxes.rates import BoxRates
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Permutation, Topology


@dataclass(frozen=True)
class Box:
    """The nodes of one box."""

    gpus: tuple[int, ...]
    nvswitch: int
    nics: tuple[int, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        """All of them; corresponding nodes of two boxes are at equal positions."""
        return (*self.gpus, self.nvswitch, *self.nics)


@dataclass(frozen=True)
class Boxes:
    """The boxes, and how they are joined: by one crossbar for all NICs, or with `rails` by one per NIC number.

    `topology` makes boxes with one of these two networks; a family with another network calls `wire` only.
    """

    family: str
    boxes: int
    gpus: int
    nics: int
    rates: BoxRates
    rails: bool = False
    nvls: bool = False

    def topology(self, name: str) -> Topology:
        """Wires the boxes and their network. Symmetry: permute boxes, lanes, and equal devices within a lane."""
        wiring = Wiring(name)
        boxes = self.wire(wiring)
        if self.boxes == 1:
            return wiring.topology(swap_and_turn(self.gpus + 1, [[gpu] for gpu in boxes[0].gpus]))
        switches = self._network(wiring, boxes)
        size = self.boxes * len(boxes[0].nodes) + len(switches)
        exchanges = swap_and_turn(size, [box.nodes for box in boxes])
        exchanges += self._lane_symmetries(size, boxes, switches)
        return wiring.topology(exchanges)

    def wire(self, wiring: Wiring) -> list[Box]:
        """Adds the boxes, side by side, without a network. The caller adds its switches, at y = 2.5 and above."""
        for what, number in (("boxes", self.boxes), ("gpus", self.gpus), ("rails", self.nics)):
            require(number >= 1, f"{self.family}: {what} is {number}; it must be at least 1")
        require(
            max(self.gpus, self.nics) % self._lanes == 0,
            f"{self.family}: {self.gpus} GPUs cannot share {self.nics} NICs evenly; one count must divide the other",
        )
        gpus = [[wiring.rank((self.x(b, g, self.gpus), 0.0)) for g in range(self.gpus)] for b in range(self.boxes)]
        nvswitches = [self._nvswitch(wiring, b) for b in range(self.boxes)]
        for b in range(self.boxes):
            for gpu in gpus[b]:
                wiring.cable(gpu, nvswitches[b], self.rates.bandwidth, self.rates.alpha)
        if self.boxes == 1:
            return [Box(tuple(gpus[0]), nvswitches[0], ())]
        nics = [
            [wiring.nic(f"nic{b}.{n}", (self.x(b, n, self.nics), 1.0)) for n in range(self.nics)]
            for b in range(self.boxes)
        ]
        for b in range(self.boxes):
            for g, gpu in enumerate(gpus[b]):
                for nic in nics[b][g % self._lanes :: self._lanes]:
                    wiring.cable(gpu, nic, self.rates.pcie_bandwidth, self.rates.pcie_alpha)
        return [Box(tuple(gpus[b]), nvswitches[b], tuple(nics[b])) for b in range(self.boxes)]

    def x(self, box: int, i: float, of: int) -> float:
        """The x coordinate of device `i` of `of` in a row; the rows of all boxes lie side by side."""
        width = max(self.gpus, self.nics)
        return box * (width + 1.0) + (i + 0.5) * width / of

    @property
    def _lanes(self) -> int:
        return min(self.gpus, self.nics)

    def _nvswitch(self, wiring: Wiring, box: int) -> int:
        place = (self.x(box, 0, 1), -1.3)
        return wiring.switch(f"nvswitch{box}", place, multicast=self.nvls, reduces=self.nvls)

    def _network(self, wiring: Wiring, boxes: list[Box]) -> list[int]:
        width = self.boxes * (max(self.gpus, self.nics) + 1.0) - 1.0
        height = 1.0 + max(1.5, 0.14 * width)
        if not self.rails:
            switch = wiring.switch("network", (width / 2, height))
            switches = [switch] * self.nics
        else:
            switches = [wiring.switch(f"rail{n}", ((n + 0.5) * width / self.nics, height)) for n in range(self.nics)]
        for box in boxes:
            for nic, switch in zip(box.nics, switches, strict=True):
                wiring.cable(nic, switch, self.rates.nic_bandwidth, self.rates.nic_alpha)
        return list(dict.fromkeys(switches))

    def _lane_symmetries(self, size: int, boxes: list[Box], switches: list[int]) -> list[Permutation]:
        """On one crossbar, permutes the lanes of one box; on rails, those of all boxes with their switches."""
        moving = boxes if self.rails else boxes[:1]
        columns = [[box.nics[n] for box in moving] + ([switches[n]] if self.rails else []) for n in range(self.nics)]
        lanes = [
            [node for column in columns[k :: self._lanes] for node in column]
            + [gpu for box in moving for gpu in box.gpus[k :: self._lanes]]
            for k in range(self._lanes)
        ]
        return [
            *swap_and_turn(size, lanes),
            *swap_and_turn(size, columns[:: self._lanes]),
            *swap_and_turn(size, [[gpu] for gpu in boxes[0].gpus[:: self._lanes]]),
        ]
