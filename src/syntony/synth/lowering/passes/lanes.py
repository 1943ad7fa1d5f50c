"""Fewer lanes: for executors with few thread blocks.

A send-only lane and a receive-only lane are joined, first those with the same peer. Their work is then serialized, so
lanes are joined only as far as the Target's number of lanes per channel requires:

    rank 0, channel 0    send to 1 │ send to 2 │ recv from 1 │ recv from 2        four lanes
                         send to 1, recv from 1 │ send to 2 │ recv from 2        three
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from syntony.synth.lowering.passes.tape import Tape
from syntony.synth.model.program import Program
from syntony.synth.model.target import Target


def within_lanes(program: Program, target: Target) -> Program:
    """The Program within the Target's number of lanes per channel, if joining lanes achieves that; otherwise unchanged.

    For a proven Program; the result needs no deeper FIFOs.
    """
    limit = target.lanes_per_channel
    if limit is None or not Tape.takes(program):
        return program
    tape = Tape.of(program)
    into = _joins(tape, limit)
    if not into:
        return program
    joined = tape.with_steps([replace(step, lane=into.get((step.rank, step.lane), step.lane)) for step in tape.steps])
    found = joined.least_program()
    return program if found is None or found.fifo_depth > program.fifo_depth else found


def _joins(tape: Tape, limit: int) -> dict[tuple[int, int], int]:
    """(rank, receiving lane) -> the sending lane of that rank that it joins."""
    ends: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    channel: dict[tuple[int, int], int] = {}
    for step in tape.steps:
        place = (step.rank, step.lane)
        ends[place].add((step.recv_peer, step.send_peer))
        if step.receives or step.sends:
            channel[place] = step.channel
        channel.setdefault(place, 0)
    by_channel: dict[tuple[int, int], list[int]] = defaultdict(list)
    for (rank, lane), number in channel.items():
        by_channel[rank, number].append(lane)
    into: dict[tuple[int, int], int] = {}
    for (rank, _), lanes in by_channel.items():
        peers = {lane: next(iter(ends[rank, lane])) for lane in lanes if len(ends[rank, lane]) == 1}
        senders = {peer: lane for lane, (source, peer) in peers.items() if source < 0 <= peer}
        receivers = {source: lane for lane, (source, peer) in peers.items() if peer < 0 <= source}
        same = [peer for peer in receivers if peer in senders]
        pairs = [(receivers.pop(peer), senders.pop(peer)) for peer in same]
        pairs += zip(receivers.values(), senders.values(), strict=False)
        into.update(((rank, receiver), sender) for receiver, sender in pairs[: max(0, len(lanes) - limit)])
    return into
