"""A Program as rounds, for groups that only offer messages (`batch_isend_irecv`).

    round 0   local: copies and sums     then all of this round's messages at once, in both directions
    round 1   local: ..                  ..
    ..
    last      local: ..                  no messages

The number of rounds is the least that the Program's values and places allow: every message goes in the first round in
which its data is ready and its destination is free. Accesses to a place keep their order in one legal run of the
Program; lanes, channels and slices are ignored. All messages of a round between two ranks are merged into one.

A message to be summed is received into a scratch slot of its own. The rounds are again a Program (`program`), with one
lane per rank, so the checker proves them like any other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from syntony.synth.model.instructions import INSTRUCTION_FIELDS, Opcode, ProgramError, Space
from syntony.synth.model.program import Program

Place = tuple[int, int]
"""Space and index, on some rank."""


@dataclass
class RankRound:
    """One rank's part of a round: first `local`, in order, then the messages.

    local  (destination, its terms): a copy of one term, or the sum of several in this order
    sends  (rank, places): one message each, with the places one after another
    recvs  (rank, places): likewise
    """

    local: list[tuple[Place, tuple[Place, ...]]] = field(default_factory=list)
    sends: list[tuple[int, tuple[Place, ...]]] = field(default_factory=list)
    recvs: list[tuple[int, tuple[Place, ...]]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Rounds:
    """`slots[rank][space]` are the chunks of the slots; `rounds[rank]` has the same length for all ranks."""

    source: Program
    in_place: bool
    slots: tuple[tuple[tuple[int, ...], ...], ...]
    rounds: tuple[tuple[RankRound, ...], ...]

    @property
    def launches(self) -> int:
        """Rounds with messages."""
        return sum(any(rank[number].sends for rank in self.rounds) for number in range(len(self.rounds[0])))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, the format of the executor (collectives/p2p/steps.py) and of exported files."""
        return {
            "name": self.source.name,
            "collective": self.source.collective,
            "root": self.source.root,
            "ranks": self.source.ranks,
            "in_place": self.in_place,
            "chunks": self.source.chunks.tolist(),
            "slots": [[list(space) for space in rank] for rank in self.slots],
            "rounds": [
                [
                    {
                        "local": [[list(to), [list(term) for term in terms]] for to, terms in one.local],
                        "sends": [[peer, [list(place) for place in places]] for peer, places in one.sends],
                        "recvs": [[peer, [list(place) for place in places]] for peer, places in one.recvs],
                    }
                    for one in rank
                ]
                for rank in self.rounds
            ],
        }

    def program(self) -> Program:
        """The rounds as a Program with one lane per rank, for the checker."""
        rows: list[list[int]] = []
        operands: list[Place] = []
        depth = 1
        for rank, rounds in enumerate(self.rounds):
            for one in rounds:
                rows += self._local_rows(rank, one, operands)
                for peer, places in one.sends:
                    depth = max(depth, len(places))
                    rows += [_row(rank, Opcode.send, src=place, send_peer=peer) for place in places]
                for peer, places in one.recvs:
                    rows += [_row(rank, Opcode.recv, dst=place, recv_peer=peer) for place in places]
        slots = [
            (rank, space, chunk)
            for rank, spaces in enumerate(self.slots)
            for space, chunks in enumerate(spaces)
            for chunk in chunks
        ]
        source = self.source
        return Program(
            name=f"{source.name} in rounds",
            collective=source.collective,
            root=source.root,
            ranks=source.ranks,
            chunks=source.chunks,
            slots=np.asarray(slots, np.int32).reshape(-1, 3),
            instructions=np.asarray(rows, np.int32).reshape(-1, len(INSTRUCTION_FIELDS)),
            operands=np.asarray(operands, np.int32).reshape(-1, 2),
            dependencies=np.zeros((0, 2), np.int32),
            fifo_depth=depth,
            out_of_place=not self.in_place,
            in_place=self.in_place,
            rounds_per_hop=source.rounds_per_hop,
        )

    def _local_rows(self, rank: int, one: RankRound, operands: list[Place]) -> Iterator[list[int]]:
        for to, (first, *others) in one.local:
            operands += others
            opcode = Opcode.reduce if others else Opcode.copy
            yield _row(rank, opcode, dst=to, src=first, operand_count=len(others))


def _row(rank: int, opcode: Opcode, dst: Place = (0, 0), src: Place = (0, 0), **more: int) -> list[int]:
    values = {"agent": rank, "opcode": int(opcode), "count": 1, "recv_peer": -1, "send_peer": -1}
    values |= {"dst_space": dst[0], "dst_index": dst[1], "src_space": src[0], "src_index": src[1]} | more
    return [values.get(name, 0) for name in INSTRUCTION_FIELDS]


def rounds_of(program: Program, *, in_place: bool) -> Rounds:
    """The rounds of a proven two-sided Program; `in_place`: input and output of a chunk are the same memory.

    Raises ProgramError if the Program is not correct in that mode, or one-sided.
    """
    if not (program.in_place if in_place else program.out_of_place):
        raise ProgramError(f"program '{program.name}' is right {'out of' if in_place else 'in'} place only")
    if program.one_sided:
        raise ProgramError(f"program '{program.name}' reads or writes its peers' memory; only messages can be rounds")
    return _Rounds(program, in_place).made()


@dataclass
class _Cell:
    """The first rounds in which a place can be read, written by a local step, and received into."""

    ready: int = 0
    writable: int = 0
    receivable: int = 0


@dataclass(eq=False)
class _Sent:
    """A slot of a message: its place at the sender, and the first round in which it is ready."""

    rank: int
    place: Place
    ready: int


class _Rounds:
    def __init__(self, program: Program, in_place: bool) -> None:
        self.program, self.in_place = program, in_place
        self.slots: list[list[list[int]]] = [[[], [], []] for _ in range(program.ranks)]
        for agent, space, chunk in program.slots.tolist():
            self.slots[agent][space].append(chunk)
        self.cells: dict[tuple[int, Place], _Cell] = defaultdict(_Cell)
        self.alias: dict[tuple[int, Place], Place] = {}
        if in_place:
            for agent, (inputs, outputs, _) in enumerate(self.slots):
                at = {chunk: (int(Space.input), index) for index, chunk in enumerate(inputs)}
                for index, chunk in enumerate(outputs):
                    if chunk in at:
                        self.alias[agent, (int(Space.output), index)] = at[chunk]
        self.local: dict[tuple[int, int], list[tuple[Place, tuple[Place, ...]]]] = defaultdict(list)
        self.messages: dict[tuple[int, int, int], list[tuple[Place, Place]]] = defaultdict(list)
        self.fifos: dict[tuple[int, int, int], deque[list[_Sent]]] = defaultdict(deque)
        self.under_way: dict[tuple[int, Place], list[_Sent]] = defaultdict(list)

    def made(self) -> Rounds:
        for agent, row, operands in _one_run(self.program):
            self._perform(agent, row, operands)
        last = max((number for *_, number in self.messages), default=-1) + 1
        last = max([last, *(number for _, number in self.local)])
        made = []
        for rank in range(self.program.ranks):
            rounds = [RankRound(local=self.local[rank, number]) for number in range(last + 1)]
            made.append(rounds)
        for (src, dst, number), pairs in sorted(self.messages.items()):
            made[src][number].sends.append((dst, tuple(one for one, _ in pairs)))
            made[dst][number].recvs.append((src, tuple(other for _, other in pairs)))
        slots = tuple(tuple(tuple(space) for space in rank) for rank in self.slots)
        return Rounds(self.program, self.in_place, slots, tuple(tuple(rounds) for rounds in made))

    def _real(self, agent: int, place: Place) -> Place:
        return self.alias.get((agent, place), place)

    def _cell(self, agent: int, place: Place) -> _Cell:
        return self.cells[agent, self._real(agent, place)]

    def _scratch(self, agent: int, chunk: int) -> Place:
        self.slots[agent][Space.scratch].append(chunk)
        return int(Space.scratch), len(self.slots[agent][Space.scratch]) - 1

    def _perform(self, agent: int, row: dict[str, int], operands: list[Place]) -> None:
        op, channel = Opcode(row["opcode"]).name, row["channel"]
        at = [
            ((row["dst_space"], row["dst_index"] + offset), (row["src_space"], row["src_index"] + offset))
            for offset in range(row["count"])
        ]
        arrived: list[Place] = []
        if op in ("signal", "wait", "nop"):
            return
        if op.startswith("recv"):
            message = self.fifos[row["recv_peer"], agent, channel].popleft()
            for (dst, src), sent in zip(at, message, strict=True):
                keeps = op in ("recv", "recv_copy_send")
                own = src if "reduce" in op else dst
                to = dst if keeps else self._scratch(agent, self.slots[agent][own[0]][own[1]])
                self._receive(sent, agent, to)
                arrived.append(to)
        if op in ("copy", "reduce"):
            for offset, (dst, src) in enumerate(at):
                self._step(agent, dst, (src, *((space, index + offset) for space, index in operands)))
        stored = arrived
        if "reduce" in op and op != "reduce":
            stored = []
            for (dst, src), message_at in zip(at, arrived, strict=True):
                to = message_at if op == "recv_reduce_send" else dst
                self._step(agent, to, (message_at, src))
                stored.append(to)
        if op.endswith("send"):
            places = [src for _, src in at] if op == "send" else stored
            message = [_Sent(agent, place, self._cell(agent, place).ready) for place in places]
            self.fifos[agent, row["send_peer"], channel].append(message)
            for sent in message:
                self.under_way[agent, self._real(agent, sent.place)].append(sent)

    def _written(self, agent: int, place: Place) -> None:
        """Before a place is overwritten: messages with its data and no round yet are sent from a copy."""
        waiting = self.under_way.pop((agent, self._real(agent, place)), [])
        if waiting:
            copy = self._scratch(agent, self.slots[agent][place[0]][place[1]])
            self._step(agent, copy, (place,))
            for sent in waiting:
                sent.place, sent.ready = copy, self._cell(agent, copy).ready

    def _step(self, agent: int, to: Place, terms: tuple[Place, ...]) -> None:
        self._written(agent, to)
        cell = self._cell(agent, to)
        number = max(cell.writable, *(self._cell(agent, term).ready for term in terms))
        for term in terms:
            read = self._cell(agent, term)
            read.writable, read.receivable = max(read.writable, number), max(read.receivable, number)
        cell.ready = number
        cell.writable, cell.receivable = max(cell.writable, number), max(cell.receivable, number)
        self.local[agent, number].append((to, terms))

    def _receive(self, sent: _Sent, agent: int, to: Place) -> None:
        self._written(agent, to)
        waiting = self.under_way.get((sent.rank, self._real(sent.rank, sent.place)), [])
        if sent in waiting:
            waiting.remove(sent)
        cell, source = self._cell(agent, to), self._cell(sent.rank, sent.place)
        number = max(sent.ready, cell.receivable)
        source.writable, source.receivable = max(source.writable, number + 1), max(source.receivable, number + 1)
        cell.ready = cell.writable = cell.receivable = number + 1
        self.messages[sent.rank, agent, number].append((sent.place, to))


def _one_run(program: Program) -> Iterator[tuple[int, dict[str, int], list[Place]]]:
    """The instructions in the order of one run; a receiver comes as soon as it can, so sends are placed early."""
    lanes: dict[tuple[int, int], list[dict[str, int]]] = defaultdict(list)
    operands: dict[int, list[Place]] = {}
    after: dict[int, list[tuple[int, int]]] = {}
    terms, orders = iter(program.operands.tolist()), iter(program.dependencies.tolist())
    for number, values in enumerate(program.instructions.tolist()):
        row = dict(zip(INSTRUCTION_FIELDS, values, strict=True)) | {"row": number}
        lanes[row["agent"], row["lane"]].append(row)
        operands[number] = [tuple(next(terms)) for _ in range(row["operand_count"])]
        after[number] = [tuple(next(orders)) for _ in range(row["dependency_count"])]
    done = dict.fromkeys(lanes, 0)
    queued: dict[tuple[int, int, int], int] = defaultdict(int)
    while True:
        moved = False
        for (agent, lane), rows in lanes.items():
            while done[agent, lane] < len(rows):
                row = rows[done[agent, lane]]
                op = Opcode(row["opcode"]).name
                if any(done[agent, other] <= position for other, position in after[row["row"]]):
                    break
                if op.startswith("recv") or op == "wait":
                    if not queued[row["recv_peer"], agent, row["channel"]]:
                        break
                    queued[row["recv_peer"], agent, row["channel"]] -= 1
                if op.endswith("send") or op == "signal":
                    queued[agent, row["send_peer"], row["channel"]] += 1
                yield agent, row, operands[row["row"]]
                done[agent, lane] += 1
                moved = True
        if all(done[lane] == len(rows) for lane, rows in lanes.items()):
            return
        if not moved:
            raise ProgramError(f"program '{program.name}' does not come to an end")
