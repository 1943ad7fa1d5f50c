"""Named machines: the performance of their devices, and communication costs between and inside their boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syntony.base.arguments import pairs
from syntony.base.command import UserError
from syntony.base.quantity import seconds
from syntony.base.wording import unknown

if TYPE_CHECKING:
    from syntony.overlap.step.cost import Cost, Wire
    from syntony.overlap.step.layout import Layout


@dataclass(frozen=True)
class Machine:
    """Performance of a device, if only its name is known.

    flops    operations per second; on GPUs half of the data sheet's dense 16-bit peak, on ours measured on one core
    memory   bytes per second
    box      bytes per second to a rank of the same box, in each direction, and `network` to all others
    ranks    in a box
    alpha    seconds per message
    holds    bytes of memory
    """

    flops: float
    memory: float
    box: float
    network: float
    ranks: float
    alpha: float
    holds: float

    @property
    def update(self) -> float:
        """Seconds to update a byte of weights."""
        return _UPDATE / self.memory


MACHINES: Mapping[str, Machine] = {
    "cpu": Machine(80e9, 8e9, 2e9, 25e6, 1, 1e-3, 16e9),  # hosts on 200 Mbit/s, as the lab emulates them
    "a100": Machine(156e12, 1.5e12, 300e9, 25e9, 8, 5e-6, 80e9),  # NVIDIA DGX A100: NVLink 3, HDR InfiniBand
    "h100": Machine(495e12, 3.3e12, 450e9, 50e9, 8, 5e-6, 80e9),  # NVIDIA DGX H100: NVLink 4, NDR InfiniBand
}
_UPDATE = 14.0  # bytes that Adam reads and writes in fp32 per byte of 16-bit weights: 28 of 2


def machine_of(text: str) -> Machine:
    """`h100:network=25e9`. Raises UserError."""
    name, _, changes = text.partition(":")
    if name not in MACHINES:
        raise UserError(f"--machine {text}: {unknown('machine', name, MACHINES)}")
    machine = MACHINES[name]
    for key, value in pairs(changes, f"--machine {text}").items():
        if not hasattr(machine, key):
            raise UserError(f"--machine {text}: {unknown('key', key, vars(machine))}")
        try:
            number = seconds(value)
        except ValueError:
            number = 0.0
        if number <= 0 and not (key == "alpha" and value == "0"):
            raise UserError(f"--machine {text}: {key} is {value!r}; it must be a positive number such as 25e9")
        machine = Machine(**{**vars(machine), key: number})
    return machine


def cost_of(machine: Machine, layout: Layout) -> Cost:
    """The costs of a layout's Ops on the machine."""
    from syntony.overlap.step.cost import Cost

    return Cost(machine.flops, wires_of_layout(machine, layout), machine.update)


def wires_of_layout(machine: Machine, layout: Layout, on: str | None = None, size: int = 1 << 20) -> dict[str, Wire]:
    """By lane: rings between or inside the machine's boxes; or the times on the wires of a topology for `size`."""
    from syntony.overlap.step.ranks import members

    if on:
        from syntony.overlap.predict.wires import wires_of
        from syntony.topologies.parse import parse

        return dict(wires_of(parse(on), layout, size).wires)
    found = {}
    for lane in layout.groups:
        groups = members(layout, lane)
        boxes = groups // machine.ranks
        found[lane] = _ring(machine, groups.shape[-1], bool((boxes == boxes[..., :1]).all()))
    return found


def _ring(machine: Machine, ranks: int, inside: bool) -> Wire:
    from syntony.overlap.step.cost import ring_wire

    return ring_wire(ranks, *((machine.box, machine.alpha, "box") if inside else (machine.network, machine.alpha)))
