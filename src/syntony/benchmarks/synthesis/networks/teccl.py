r"""The machines of TE-CCL's released experiments, link by link, as its artifact has them.

    dgx2   16 GPUs on one switch (125e9 bytes/s, 0.35e-6 s a link); between boxes GPU 2k+1 sends to GPU 2k of the
           other over a link of its own (12.5e9, 2.6e-6)
    ndv2   8 GPUs wired as a DGX-1 (50e9 over a pair of NVLinks, 25e9 over one; 0.7e-6). GPU 0 sends to other boxes,
           GPU 1 receives: of two boxes over a link between the two (12.5e9, 1.3e-6), of more through a switch (12.5e9
           and 1.3e-6 on either side)

Sources: microsoft/TE-CCL, teccl/topologies/dgx2.py and ndv2.py.
Symmetry: the boxes may change places; the pairs of GPUs of a DGX-2 may too, in both boxes alike.
"""

from __future__ import annotations

from fractions import Fraction

from syntony.topologies.families.boxes.dgx1 import dgx1
from syntony.topologies.graph.symmetry import swap_and_turn
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.topology import Topology

GB = 10**9
_INFINIBAND = Fraction(125, 10) * GB


def dgx2_boxes(switch_copies: bool = False) -> Topology:
    """Two DGX-2. `switch_copies`: as the artifact's experiments were run (`switch_copy` of its sample inputs)."""
    wiring = Wiring("teccl-dgx2:2")
    boxes = [[wiring.rank((g + 17.0 * b, 0.0)) for g in range(16)] for b in range(2)]
    switches = [wiring.switch(f"nvswitch{b}", (17.0 * b + 7.5, -3.0), multicast=switch_copies) for b in range(2)]
    for box, switch in zip(boxes, switches, strict=True):
        for gpu in box:
            wiring.cable(gpu, switch, Fraction(125 * GB), 0.35e-6)
    for here, there in (boxes, boxes[::-1]):
        for pair in range(8):
            wiring.link(here[2 * pair + 1], there[2 * pair], _INFINIBAND, 2.6e-6)
    size = 34
    pairs = [[box[2 * k + i] for box in boxes for i in range(2)] for k in range(8)]
    moves = swap_and_turn(size, pairs)
    moves += swap_and_turn(size, [[*box, switch] for box, switch in zip(boxes, switches, strict=True)])
    return wiring.topology(moves)


def ndv2_boxes(count: int, switch_copies: bool = False) -> Topology:
    """`count` NDv2, two or more."""
    wiring = Wiring(f"teccl-ndv2:{count}")
    box = dgx1()
    boxes = []
    for b in range(count):
        places = [node.place or (0.0, 0.0) for node in box.nodes]
        boxes.append([wiring.rank((x + 5.0 * b, y)) for x, y in places])
    for ranks in boxes:
        for link in box.links:
            wiring.link(ranks[link.src], ranks[link.dst], link.bandwidth, link.alpha)
    columns = [list(ranks) for ranks in boxes]
    size = 8 * count
    if count == 2:
        for here, there in (boxes, boxes[::-1]):
            wiring.link(here[0], there[1], _INFINIBAND, 1.3e-6)
    else:
        switch = wiring.switch("infiniband", (2.5 * count, -2.0), multicast=switch_copies)
        size += 1
        for ranks in boxes:
            wiring.link(ranks[0], switch, _INFINIBAND, 1.3e-6)
            wiring.link(switch, ranks[1], _INFINIBAND, 1.3e-6)
    return wiring.topology(swap_and_turn(size, columns))
