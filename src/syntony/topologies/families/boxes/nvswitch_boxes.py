r"""Boxes whose NVSwitch chips are nodes of their own: DGX-2 and GB200 NVL72.

DGX-2: two baseboards of eight V100. Each GPU has one NVLink to each of the six switches of its board, and each switch
eight to its partner on the other board:

      board 0   0 ... 7                      8 ... 15   board 1
                 \ | /   one NVLink each      \ | /
              switch 0.p ════ 8 NVLinks ════ switch 1.p            p = 0..5: six planes

NVL72: 72 B200, each with one NVLink to each of 18 switches; a switch is a plane of its own:

                 0  1  2 ... 71
                  \ |  |  /       one NVLink each
                  switch p        p = 0..17

A message may be split over the planes. Together they are one crossbar: `nvl72` with `planes=1` has one switch with the
bandwidth of all, for which schedules are easier to find and no slower.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, flag
from syntony.topologies.families.boxes.rates import PCIE5_BANDWIDTH, BoxRates, box_parameters, nvidia_rates
from syntony.topologies.families.boxes.scale_out import Nics, scale_out
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Topology

PCIE3_BANDWIDTH = Fraction(1575 * 10**7)

_PARTNERS = 8  # NVLinks between a DGX-2 switch and its partner
_NVL72_NVLINKS = 18

_DGX2_RATES = nvidia_rates(Fraction(25 * 10**9), PCIE3_BANDWIDTH, Fraction(125 * 10**8))
_NVL72_RATES = nvidia_rates(Fraction(50 * 10**9), PCIE5_BANDWIDTH, Fraction(50 * 10**9))


def dgx2(
    boxes: int = 1,
    rates: BoxRates = _DGX2_RATES,
) -> Topology:
    """`boxes` DGX-2: 16 GPUs, 12 NVSwitches; `bandwidth` is that of one NVLink. Eight NICs, two GPUs beside each.

    Symmetry: exchange the GPUs that share a NIC; permute such pairs within a board; exchange boards; permute planes.
    """
    name = f"dgx2:{boxes}"
    wiring = Wiring(name)
    boards = [[wiring.rank((g + 9.0 * b, 0.0)) for g in range(8)] for b in range(2)]
    switches = [
        [wiring.switch(f"nvswitch{b}.{p}", (9.0 * b + 0.5 + 1.2 * p, -3.0 - 0.75 * (p % 2))) for p in range(6)]
        for b in range(2)
    ]
    for board, planes in zip(boards, switches, strict=True):
        for gpu in board:
            for switch in planes:
                wiring.cable(gpu, switch, rates.bandwidth, rates.alpha)
    for one, other in zip(*switches, strict=True):
        wiring.cable(one, other, _PARTNERS * rates.bandwidth, rates.alpha)
    pairs = [(gpu, gpu + 1) for gpu in range(0, 16, 2)]
    size = 16 + 12
    moves = swap_and_turn(size, [[0], [1]])
    moves += swap_and_turn(size, pairs[:4])
    moves += swap_and_turn(size, [[*boards[b], *switches[b]] for b in range(2)])
    moves += swap_and_turn(size, [[switches[0][p], switches[1][p]] for p in range(6)])
    return scale_out(
        name,
        wiring.topology(moves),
        boxes,
        Nics(
            beside=tuple(pairs),
            places=tuple((gpu + 0.5 + (gpu >= 8), 1.2) for gpu in range(0, 16, 2)),
            inside=rates.pcie,
            network=rates.network,
        ),
    )


def nvl72(
    racks: int = 1,
    planes: int = _NVL72_NVLINKS,
    rates: BoxRates = _NVL72_RATES,
    nvls: bool = True,
) -> Topology:
    """`racks` of 72 GPUs with 18 NVLinks each; `bandwidth` is that of one NVLink, `planes` divides the 18.

    With fewer than 18 planes, a switch stands for several chips and its cables for as many NVLinks. A NIC per GPU.
    `nvls`: the switches copy and add messages (NVLink SHARP). Symmetry: permute GPUs with their NICs; permute planes.
    """
    require(
        planes >= 1 and _NVL72_NVLINKS % planes == 0,
        f"nvl72: planes is {planes}; it must divide the {_NVL72_NVLINKS} NVLinks of a GPU",
    )
    name = f"nvl72:{racks}"
    wiring = Wiring(name)
    gpus = [wiring.rank((g % 36 + 0.5 * (g >= 36), 0.8 * (g >= 36))) for g in range(72)]
    pitch = 36.0 / planes
    switches = [
        wiring.switch(f"nvswitch{p}", ((p + 0.5) * pitch, -6.0), multicast=nvls, reduces=nvls) for p in range(planes)
    ]
    for gpu in gpus:
        for switch in switches:
            wiring.cable(gpu, switch, _NVL72_NVLINKS // planes * rates.bandwidth, rates.alpha)
    moves = swap_and_turn(72 + planes, [[gpu] for gpu in gpus])
    moves += swap_and_turn(72 + planes, [[switch] for switch in switches])
    return scale_out(
        name,
        wiring.topology(moves),
        racks,
        Nics(
            beside=tuple((gpu,) for gpu in gpus),
            places=tuple((g % 36 + 0.5 * (g >= 36), 2.2 + 0.8 * (g >= 36)) for g in range(72)),
            inside=rates.pcie,
            network=rates.network,
        ),
    )


_PARAMETERS = box_parameters("bytes/s of one NVLink, per direction", "seconds per NVLink", "a GPU and its NIC")

DGX2 = Family(
    name="dgx2",
    build=dgx2,
    parameters=(Parameter("boxes", count, "boxes on one InfiniBand crossbar"), *_PARAMETERS),
    summary="NVIDIA DGX-2 boxes: 16 V100 under two boards of six NVSwitches",
    source="NVIDIA NVSwitch technical overview (2018): six NVLink 2 of 25e9 bytes/s per GPU and direction, eight "
    "between partner switches; DGX-2 data sheet: 8 NICs of 100 Gb/s; latencies: TACCL (NSDI'23) table 1, per link",
    example="dgx2",
)

NVL72 = Family(
    name="nvl72",
    build=nvl72,
    parameters=(
        Parameter("racks", count, "racks on one network"),
        Parameter("planes", count, "switches of a rack; divides 18, the number of its NVSwitch chips"),
        *_PARAMETERS,
        Parameter("nvls", flag, "whether the NVSwitches multicast and reduce"),
    ),
    summary="NVIDIA GB200 NVL72 racks: 72 GPUs under 18 NVSwitches",
    source="NVIDIA GB200 NVL72 data sheet: 1.8 TB/s of NVLink 5 per GPU in both directions together, over 18 links to "
    "18 switches; a ConnectX-7 of 400 Gb/s per GPU; latencies: TACCL (NSDI'23) table 1, measured on an older box",
    example="nvl72",
)
