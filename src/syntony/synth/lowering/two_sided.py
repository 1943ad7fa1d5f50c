"""Converts one-sided Programs to two-sided ones: the same data movement, as messages with a send and a receive.

A proven Program has no races, so every order that respects its waits moves the same values. This walks one such order
and emits its moves through `ProgramBuilder`, which finds lanes and dependencies anew:

    rank 0:  peer_write a -> rank 1's b, signal       =>     rank 0:  send a
    rank 1:  wait, reduce c = b + d                          rank 1:  recv b, reduce c = b + d

Signals and waits are dropped: messages enforce the same order. Writes into an input, which only a Program for in-place
calls may do, go to the output of that chunk or to scratch, so the result is correct in both memory modes. A slot that a
message in flight still reads is not overwritten; the new value gets another slot.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import Any

import numpy as np

from syntony.synth.model.instructions import INSTRUCTION_FIELDS, RECEIVES, SENDS, Opcode, Space
from syntony.synth.model.program import Program
from syntony.synth.model.target import Target, TargetError

_Site = tuple[int, int, int]
"""(rank, space, index): a place of the Program that is read."""
Slot = Any
"""`syntony._core.Slot`."""


def needs_two_sides(program: Program, target: Target) -> bool:
    """Whether the Target lacks the one-sided instructions or signals that the Program uses."""
    signals = np.isin(program.field("opcode"), (Opcode.signal, Opcode.wait)).any()
    return (program.one_sided and not target.one_sided) or (bool(signals) and not target.signals)


def two_sided(program: Program, target: Target) -> Program:
    """The same outcome without one-sided instructions and signals, on no more channels than the Target has.

    The Program must have passed the checker; `fit` decides whether the Target can take the result.
    """
    return _Walk(program, target).program()


class _Walk:
    def __init__(self, program: Program, target: Target) -> None:
        from syntony import _core

        self.source, self.target = program, target
        chunks = [(block, weight) for block, weight in program.chunks.tolist()]
        self.builder = _core.ProgramBuilder(program.name, program.collective, program.ranks, program.root, chunks)
        self.alias: dict[_Site, _Site] = {}
        self.chunk: dict[_Site, int] = {}
        self.outputs: dict[_Site, Slot] = {}  # site of a result -> its output slot
        self.where: dict[_Site, Slot] = {}  # site -> the slot that holds its value now
        self.own: dict[_Site, Slot] = {}  # site -> the slot for its new values
        self.flying: Counter[tuple[int, Slot]] = Counter()  # (rank, slot) -> messages in flight that read it
        self.fifos: dict[tuple[int, int, int], deque[list[Slot]]] = defaultdict(deque)
        self._lay_out()

    def _lay_out(self) -> None:
        inputs: dict[tuple[int, int], _Site] = {}
        index: Counter[tuple[int, int]] = Counter()
        for rank, space, chunk in self.source.slots.tolist():
            site = (rank, space, index[rank, space])
            index[rank, space] += 1
            self.chunk[site] = chunk
            if space == Space.input:
                inputs[rank, chunk] = site
                self.where[site] = self.builder.input(rank, chunk)
            elif space == Space.output:
                if not self.source.out_of_place:  # one memory
                    self.alias[site] = site = inputs.get((rank, chunk), site)
                self.outputs[site] = self.builder.output(rank, chunk)

    def program(self) -> Program:
        """Walks all lanes, each as far as it gets."""
        lanes: dict[tuple[int, int], deque[dict[str, Any]]] = defaultdict(deque)
        operands, dependencies = iter(self.source.operands.tolist()), iter(self.source.dependencies.tolist())
        for values in self.source.instructions.tolist():
            row: dict[str, Any] = dict(zip(INSTRUCTION_FIELDS, values, strict=True))
            row["operands"] = [next(operands) for _ in range(row["operand_count"])]
            row["after"] = [next(dependencies) for _ in range(row["dependency_count"])]
            lanes[row["agent"], row["lane"]].append(row)
        done: Counter[tuple[int, int]] = Counter()
        moved = True
        while moved:
            moved = False
            for lane, rows in lanes.items():
                while rows and self._ready(rows[0], done):
                    self._perform(rows.popleft())
                    done[lane] += 1
                    moved = True
        if any(lanes.values()):
            raise TargetError(f"program '{self.source.name}' deadlocks; only a proven one can be made two-sided")
        for site, slot in self.outputs.items():
            if self.where[site] != slot:
                self.builder.copy(site[0], slot, self.where[site])
        return self.builder.finish()

    def _ready(self, row: dict[str, Any], done: Counter[tuple[int, int]]) -> bool:
        rank = row["agent"]
        if any(done[rank, lane] <= position for lane, position in row["after"]):
            return False
        if RECEIVES[row["opcode"]] and not self.fifos[row["recv_peer"], rank, row["channel"]]:
            return False
        fifo = self.fifos[rank, row["send_peer"], row["channel"]]
        return not SENDS[row["opcode"]] or len(fifo) < self.source.fifo_depth

    def _perform(self, row: dict[str, Any]) -> None:
        op, rank, peer = Opcode(row["opcode"]), row["agent"], row["send_peer"]
        message = self.fifos[row["recv_peer"], rank, row["channel"]].popleft() if RECEIVES[op] else []
        onward: list[Slot] = []
        for k in range(0 if op in (Opcode.nop, Opcode.signal, Opcode.wait) else row["count"]):
            dst = self._site(peer if op == Opcode.peer_write else rank, row["dst_space"], row["dst_index"] + k)
            src = self._site(peer if op == Opcode.peer_read else rank, row["src_space"], row["src_index"] + k)
            match op:
                case Opcode.copy:
                    self._copy(rank, dst, self.where[src])
                case Opcode.reduce:
                    terms = [src, *(self._site(rank, space, index + k) for space, index in row["operands"])]
                    slots = [self.where[term] for term in terms]
                    self.where[dst] = slot = self._target(dst)
                    self.builder.reduce(rank, slot, slots)
                case Opcode.send:
                    onward.append(self.where[src])
                case Opcode.peer_write | Opcode.peer_read:
                    held = self.where[src]
                    self.where[dst] = slot = self._target(dst)
                    self.builder.transfer(src[0], held, dst[0], slot, row["lane"] % self.target.channels)
                case _:
                    onward.append(self._receive(op, row, message[k], dst, src))
        if SENDS[op]:
            self.fifos[rank, peer, row["channel"]].append(onward)
            self.flying.update((rank, slot) for slot in onward)

    def _receive(self, op: Opcode, row: dict[str, Any], held: Slot, dst: _Site, src: _Site) -> Slot:
        """Receives one slot of a message; returns where it is now."""
        rank, peer, channel = row["agent"], row["recv_peer"], row["channel"] % self.target.channels
        self.flying[peer, held] -= 1
        stored = op != Opcode.recv_reduce_send
        term = self.where.get(src) if op not in (Opcode.recv, Opcode.recv_copy_send) else None
        slot = self._target(dst) if stored else self.builder.scratch(rank, self.chunk[src])
        if term is None:
            self.builder.transfer(peer, held, rank, slot, channel)
        else:
            self.builder.transfer_reduce(peer, held, rank, slot, term, channel)
        if stored:
            self.where[dst] = slot
        return slot

    def _copy(self, rank: int, dst: _Site, held: Slot) -> None:
        slot = self._target(dst)
        if slot != held:
            self.builder.copy(rank, slot, held)
        self.where[dst] = slot

    def _site(self, rank: int, space: int, index: int) -> _Site:
        return self.alias.get((rank, space, index), (rank, space, index))

    def _target(self, site: _Site) -> Slot:
        """The slot for a new value of the site."""
        slot = self.outputs.get(site) or self.own.get(site)
        if slot is None or self.flying[site[0], slot]:
            slot = self.builder.scratch(site[0], self.chunk[site])
            if site not in self.outputs:
                self.own[site] = slot
        return slot
