"""Cuts long lanes into pieces, for executors whose lanes can hold few instructions.

    lane 0:  a b c d e f            lane 0:  a b c      lane 1:  d e f, d after c

A connection has one sending and one receiving lane, so its messages get a channel per pair of pieces that exchange any.
Messages are in order, so both ends agree on the message at which the channel changes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import count, pairwise

import numpy as np

from syntony.synth.model.instructions import INSTRUCTION_FIELDS, RECEIVES, SENDS
from syntony.synth.model.program import Program

_COLUMN = {name: at for at, name in enumerate(INSTRUCTION_FIELDS)}


def cut_lanes(program: Program, limit: int) -> Program:
    """The same Program with at most `limit` instructions per lane; the argument itself if no lane is longer."""
    if program.position.max(initial=0) < limit:
        return program
    rows = program.instructions.copy()
    agents, lanes = program.field("agent").tolist(), program.field("lane").tolist()
    positions = program.position.tolist()
    # Pieces keep the order of lanes, so the tables keep the order of rows.
    piece: dict[tuple[int, int, int], int] = {}
    for agent, lane, position in zip(agents, lanes, positions, strict=True):
        if position % limit == 0:
            known = [number for (rank, _, _), number in piece.items() if rank == agent]
            piece[agent, lane, position // limit] = max(known, default=-1) + 1
    owner = [piece[key] for key in zip(agents, lanes, (p // limit for p in positions), strict=True)]
    rows[:, _COLUMN["lane"]] = owner
    rows[:, _COLUMN["channel"]] = _channels(program, owner)
    counts = program.field("dependency_count").tolist()
    found = iter(program.dependencies.tolist())
    dependencies: list[tuple[int, int]] = []
    for row, (agent, lane, position) in enumerate(zip(agents, lanes, positions, strict=True)):
        after = [next(found) for _ in range(counts[row])]
        moved = [(piece[agent, other, at // limit], at % limit) for other, at in after]
        if position and position % limit == 0:
            moved.append((piece[agent, lane, position // limit - 1], limit - 1))
        rows[row, _COLUMN["dependency_count"]] = len(moved)
        dependencies += moved
    return program.replace(instructions=rows, dependencies=np.asarray(dependencies, np.int32).reshape(-1, 2))


def _channels(program: Program, owner: list[int]) -> list[int]:
    """The channel of each instruction, when lane `owner[row]` performs it: the least that no other pieces use.

    An instruction that receives and sends has one channel for both, so a channel goes on from message to message.
    """
    opcode, channel = program.field("opcode").tolist(), program.field("channel").tolist()
    agents = program.field("agent").tolist()
    peers = program.field("recv_peer").tolist(), program.field("send_peer").tolist()
    sent: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
    for row, op in enumerate(opcode):
        if SENDS[op]:
            sent[agents[row], peers[1][row], channel[row]].append(row)
    before: dict[int, int] = {}  # a receiver -> its sender
    for row, op in enumerate(opcode):
        if RECEIVES[op]:
            before[row] = sent[peers[0][row], agents[row], channel[row]].popleft()
    after = {sender: receiver for receiver, sender in before.items()}
    used: dict[tuple[int, int, int], tuple[int, int]] = {}  # connection -> the pieces that talk on it
    chosen = [0] * len(opcode)
    for first in (row for row, op in enumerate(opcode) if SENDS[op] and not RECEIVES[op]):
        chain = [first]  # the rows that one channel passes through
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        hops = [((agents[a], agents[b]), (owner[a], owner[b])) for a, b in pairwise(chain)]
        number = next(c for c in count() if all(used.get((*ends, c), pieces) == pieces for ends, pieces in hops))
        used |= {(*ends, number): pieces for ends, pieces in hops}
        for row in chain:
            chosen[row] = number
    return chosen
