"""Fusion: data received only to be sent on is forwarded at once.

    recv lane:  recv_reduce scratch[0] = message + input[0]   ┐
    send lane:  send scratch[0]                               ┴▶  recv_reduce_send message + input[0]

    recv          + send of what it stored  ->  recv_copy_send           (MSCCL: rcs)
    recv_reduce   + send                    ->  recv_reduce_copy_send    (rrcs), or, if nobody else ever reads it,
                                            ->  recv_reduce_send         (rrs), which needs no slot

The two lanes become one, since only one lane may feed a connection. To avoid new waits, lanes are joined only if the
sending lane waits for nothing but that receiving lane: the other data that it sends is there from the start.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from syntony.synth.lowering.passes.tape import Slot, Step, Tape
from syntony.synth.model.instructions import Opcode, Space

Lane = tuple[int, int]
"""(rank, lane)."""


def fused(tape: Tape) -> Tape:
    """Receives and sends joined as above; receives keep their positions, sends move forward to them."""
    relay, kept, ready = _relays(tape)
    lanes = _lane_pairs(tape, relay, ready)
    steps: list[Step | None] = list(tape.steps)
    last_sent: dict[Lane, int] = defaultdict(lambda: -1)  # sending lane -> current position of its last step
    for position, step in enumerate(tape.steps):
        lane = (step.rank, step.lane)
        if lane not in lanes:
            continue
        received = relay.get(position, -1)
        into = lanes[lane]
        joins = received >= 0 and (step.rank, tape.steps[received].lane) == into and last_sent[lane] < received
        if not joins:
            last_sent[lane] = position
            steps[position] = replace(step, lane=into[1])
            continue
        last_sent[lane] = received
        steps[position] = None
        steps[received] = _joined(tape.steps[received], step, kept[received])
    return tape.with_steps(steps)


def _joined(receive: Step, send: Step, kept: bool) -> Step:
    if receive.opcode == Opcode.recv:
        return replace(receive, opcode=Opcode.recv_copy_send, send_peer=send.send_peer)
    if not kept:
        return replace(receive, opcode=Opcode.recv_reduce_send, dst=None, send_peer=send.send_peer)
    return replace(receive, opcode=Opcode.recv_reduce_copy_send, send_peer=send.send_peer)


def _relays(tape: Tape) -> tuple[dict[int, int], dict[int, bool], dict[int, bool]]:
    """Per send, the receive that stored exactly what it sends; per receive, whether what it stored is needed beyond one
    read; per send, whether everything that it reads is input."""
    writer: dict[tuple[int, Slot], int] = {}
    relay: dict[int, int] = {}
    readers: Counter[int] = Counter()
    ready: dict[int, bool] = {}
    for position, step in enumerate(tape.steps):
        writers = [writer.get((step.rank, slot), -1) for slot in step.read()]
        readers.update(set(writers))
        if step.opcode == Opcode.send:
            ready[position] = all(found < 0 for found in writers)
            first = tape.steps[writers[0]]
            if (
                len(set(writers)) == 1
                and writers[0] >= 0
                and first.opcode in (Opcode.recv, Opcode.recv_reduce)
                and (first.dst, first.count, first.channel) == (step.src, step.count, step.channel)
            ):
                relay[position] = writers[0]
        for slot in step.written():
            writer[step.rank, slot] = position
    results = {position for (_, slot), position in writer.items() if slot[0] == Space.output}
    return relay, {position: position in results or readers[position] > 1 for position in relay.values()}, ready


def _lane_pairs(tape: Tape, relay: dict[int, int], ready: dict[int, bool]) -> dict[Lane, Lane]:
    """Sending lane -> the receiving lane that it joins; pairs that share most come first."""
    shared: Counter[tuple[Lane, Lane]] = Counter()
    sources: dict[Lane, set[Lane]] = defaultdict(set)
    plain: dict[Lane, set[Opcode]] = defaultdict(set)
    for position, step in enumerate(tape.steps):
        lane = (step.rank, step.lane)
        plain[lane].add(step.opcode)
        if position in relay:
            source = (step.rank, tape.steps[relay[position]].lane)
            shared[lane, source] += 1
            sources[lane].add(source)
        elif not ready.get(position, False):
            sources[lane].add((-1, -1))  # it waits for something else
    found: dict[Lane, Lane] = {}
    for (lane, source), _ in shared.most_common():
        sends_only = plain[lane] == {Opcode.send}
        receives_only = plain[source] <= {Opcode.recv, Opcode.recv_reduce}
        if sources[lane] == {source} and sends_only and receives_only and source not in found.values():
            found[lane] = source
    return found
