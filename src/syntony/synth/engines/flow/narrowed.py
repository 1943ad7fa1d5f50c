"""The flow of a scatter with as little through each rank as the shortest flow within the bound allows.

A solution of the flow program is one of many. It often sends by one rank what two could share, and then lanes of the
root that share its links in equal parts carry unequal loads; the NIC behind a heavy lane gets too little at first, and
is behind at the end:

    DGX-2 x 8: a NIC for two GPUs       root ──▶ a    root ──▶ b      simulated, 1 GiB
      as the solver finds it            15 blocks     1 block         1.34 of the bound
      with at most 8 blocks a rank      8             8               1.07

The most that any rank may receive is lowered, by whole blocks, as long as flows do not grow longer.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from syntony.base.deadline import Deadline
from syntony.synth.bounds.flow_program import FlowProgram

SHORTEST = 1e-6
"""Lengths of flows that differ by this part only are equal."""
SHARE = 0.5
"""The part of the time left after which no other solution is sought."""

Floats = NDArray[np.float64]


def narrowed(program: FlowProgram, time: float, flows: Floats, deadline: Deadline) -> Floats:
    """(1, w): flows of the one source that load no wire for longer than `time`, the same length as `flows` in all."""
    wanted = program.wanted[0]
    ranks = np.flatnonzero(wanted)
    block, wires = int(wanted.max()), len(program.tails)
    received = np.bincount(program.heads, flows[0], len(program.kept))[ranks].max()
    length = (1 + SHORTEST) * float(flows.sum())
    until = Deadline(SHARE * deadline.left())
    found: dict[int, Floats] = {}

    def enough(blocks: int) -> bool:
        if not until.left():
            return False
        within = _through(program, ranks, blocks * block / time).flows(time, until.left())
        if within is None or float(within[:, :wires].sum()) > length:
            return False
        found[blocks] = within[:, :wires]
        return True

    most = ceil(received / block * (1 - SHORTEST))
    least = bisect_left(range(most), True, lo=1, key=enough)
    return found.get(least, flows)


def _through(program: FlowProgram, ranks: NDArray[np.int64], room: float) -> FlowProgram:
    """The program in which each of the ranks receives by a wire of this room, from a node to which its wires lead."""
    nodes, orbits = len(program.kept), len(program.room)
    before = np.arange(nodes)
    before[ranks] += nodes
    return replace(
        program,
        tails=np.concatenate([program.tails, before[ranks]]).astype(np.int32),
        heads=np.concatenate([before[program.heads], ranks]).astype(np.int32),
        orbit=np.concatenate([program.orbit, orbits + np.arange(len(ranks))]),
        room=np.concatenate([program.room, np.full(len(ranks), room)]),
        kept=np.concatenate([program.kept, np.isin(np.arange(nodes), ranks)]),
        wanted=np.concatenate([program.wanted, np.zeros_like(program.wanted)], axis=1),
    )
