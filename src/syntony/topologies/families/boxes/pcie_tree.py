"""PCIe tree: GPUs under PCIe switches under the root complexes of the CPUs, which UPI, QPI or xGMI joins.

        gpu 0  gpu 1    gpu 2  gpu 3     gpu 4  gpu 5    gpu 6  gpu 7
           └──┬──┘         └──┬──┘          └──┬──┘         └──┬──┘     wire `bandwidth`
            pcie0.0         pcie0.1          pcie1.0         pcie1.1
               └─────── cpu0 ───┘               └────── cpu1 ─────┘     wire `uplink_bandwidth`
                          └──────────── socket ───────────┘             wire `socket_bandwidth`

Data between two GPUs takes the path through the tree: their switch, their CPU, or both CPUs. A box has up to four
sockets, each joined to every other. With several boxes, each PCIe switch also has NICs, beside its GPUs.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.base.quantity import count, rate, seconds
from syntony.topologies.families.boxes.rates import NETWORK_ALPHA, PCIE4_BANDWIDTH, PCIE_ALPHA, Wire
from syntony.topologies.families.boxes.scale_out import Nics, scale_out
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring, require
from syntony.topologies.topology import Permutation, Topology


def pcie_tree(
    sockets: int = 2,
    switches: int = 2,
    gpus: int = 2,
    boxes: int = 1,
    nics: int = 1,
    bandwidth: Fraction = PCIE4_BANDWIDTH,
    alpha: float = PCIE_ALPHA,
    uplink_bandwidth: Fraction = PCIE4_BANDWIDTH,
    uplink_alpha: float = PCIE_ALPHA,
    socket_bandwidth: Fraction = Fraction(672 * 10**8),
    socket_alpha: float = PCIE_ALPHA,
    nic_bandwidth: Fraction = Fraction(25 * 10**9),
    nic_alpha: float = NETWORK_ALPHA,
) -> Topology:
    """`boxes` of `sockets` CPUs with `switches` PCIe switches each, `gpus` GPUs and `nics` NICs under each switch.

    Symmetry: permute the GPUs under a switch, the switches under a CPU, the CPUs.
    """
    require(1 <= sockets <= 4, f"pcie-tree: sockets is {sockets}; it must be 1 to 4, so that every two are joined")
    for what, number in (("switches", switches), ("gpus", gpus), ("nics", nics)):
        require(number >= 1, f"pcie-tree: {what} is {number}; it must be at least 1")
    name = f"pcie-tree:{sockets},{switches},{gpus},{boxes}"
    wiring = Wiring(name)
    width = float(gpus)
    served = [[[wiring.rank(((s * switches + w) * (width + 0.4) + g, 0.0)) for g in range(gpus)]
               for w in range(switches)] for s in range(sockets)]  # fmt: skip
    middle = [[(s * switches + w) * (width + 0.4) + (width - 1) / 2 for w in range(switches)] for s in range(sockets)]
    under = [[wiring.switch(f"pcie{s}.{w}", (middle[s][w], -1.0)) for w in range(switches)] for s in range(sockets)]
    cpus = [wiring.switch(f"cpu{s}", (sum(middle[s]) / switches, -2.0)) for s in range(sockets)]
    for s, cpu in enumerate(cpus):
        for switch, below in zip(under[s], served[s], strict=True):
            for gpu in below:
                wiring.cable(gpu, switch, bandwidth, alpha)
            wiring.cable(switch, cpu, uplink_bandwidth, uplink_alpha)
        for other in cpus[s + 1 :]:
            wiring.cable(cpu, other, socket_bandwidth, socket_alpha)

    def subtree(s: int, w: int) -> list[int]:
        return [under[s][w], *served[s][w]]

    size = cpus[-1] + 1
    moves: list[Permutation] = swap_and_turn(size, [[gpu] for gpu in served[0][0]])
    moves += swap_and_turn(size, [subtree(0, w) for w in range(switches)])
    moves += swap_and_turn(
        size, [[cpus[s], *(node for w in range(switches) for node in subtree(s, w))] for s in range(sockets)]
    )
    box = wiring.topology(moves)
    return scale_out(
        name,
        box,
        boxes,
        Nics(
            beside=tuple((switch,) for row in under for switch in row for _ in range(nics)),
            places=tuple((x + n - (nics - 1) / 2, 1.0) for row in middle for x in row for n in range(nics)),
            inside=Wire(bandwidth, alpha),
            network=Wire(nic_bandwidth, nic_alpha),
        ),
    )


PCIE_TREE = Family(
    name="pcie-tree",
    build=pcie_tree,
    parameters=(
        Parameter("sockets", count, "CPUs of a box, 1 to 4"),
        Parameter("switches", count, "PCIe switches under a CPU"),
        Parameter("gpus", count, "GPUs under a PCIe switch"),
        Parameter("boxes", count, "boxes on one network"),
        Parameter("nics", count, "NICs under a PCIe switch, where there are several boxes"),
        Parameter("bandwidth", rate, "bytes/s between a PCIe switch and what is under it, per direction"),
        Parameter("alpha", seconds, "seconds between a PCIe switch and what is under it"),
        Parameter("uplink_bandwidth", rate, "bytes/s between a PCIe switch and its CPU, per direction"),
        Parameter("uplink_alpha", seconds, "seconds between a PCIe switch and its CPU"),
        Parameter("socket_bandwidth", rate, "bytes/s between two CPUs, per direction"),
        Parameter("socket_alpha", seconds, "seconds between two CPUs"),
        Parameter("nic_bandwidth", rate, "bytes/s of a NIC's port, per direction"),
        Parameter("nic_alpha", seconds, "seconds between a NIC and the network switch"),
    ),
    summary="GPUs under PCIe switches under CPUs, without NVLink",
    source="shape: NCCL's and RCCL's machine files; PCIe 4.0 x16; between CPUs three UPI links of 11.2 GT/s, 22.4e9 "
    "bytes/s each (Intel Xeon Scalable, 3rd generation); HDR 200 Gb/s; latencies: TACCL (NSDI'23) table 1, per link",
    example="pcie-tree",
)
