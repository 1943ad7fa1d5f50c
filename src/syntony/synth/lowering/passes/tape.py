"""Tape: a Program as one list of steps in a possible execution order. Passes read and rewrite it.

    Program (lanes, dependencies) ──Tape.of──▶ steps of all ranks, one after another ──tape.program()──▶ Program
                                                     passes rewrite these

A Program whose ranks never race gives every read the same value in every order (checker/programs/memory.py). So the
order of the tape defines everything: a pass moves, joins and drops steps as in a sequential program, and
`ProgramBuilder.append` finds the dependencies between lanes again. Everything that needs no message comes before
everything that does: messages leave early, and related steps stay together.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from syntony.synth.checker import least_fifo_depth
from syntony.synth.model.instructions import (
    HAS_DST,
    HAS_SRC,
    INSTRUCTION_FIELDS,
    ONE_SIDED,
    RECEIVES,
    SENDS,
    Opcode,
    Space,
)
from syntony.synth.model.program import Program

Slot = tuple[int, int]
"""(space, index)."""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction. `dst` and `src` are None and peers -1 if the opcode has none."""

    rank: int
    lane: int
    opcode: Opcode
    dst: Slot | None = None
    src: Slot | None = None
    operands: tuple[Slot, ...] = ()
    count: int = 1
    recv_peer: int = -1
    send_peer: int = -1
    channel: int = 0

    @property
    def receives(self) -> bool:
        """Whether it receives a message."""
        return bool(RECEIVES[self.opcode])

    @property
    def sends(self) -> bool:
        """Whether it sends a message."""
        return bool(SENDS[self.opcode])

    @property
    def source(self) -> tuple[int, int, int]:
        """The connection that it receives from: (src, dst, channel)."""
        return self.recv_peer, self.rank, self.channel

    @property
    def target(self) -> tuple[int, int, int]:
        """The connection that it sends on."""
        return self.rank, self.send_peer, self.channel

    def read(self) -> Iterator[Slot]:
        """Every slot that it reads."""
        for first in (*([] if self.src is None else [self.src]), *self.operands):
            yield from slots_from(first, self.count)

    def written(self) -> Iterator[Slot]:
        """Every slot that it writes."""
        if self.dst is not None:
            yield from slots_from(self.dst, self.count)


def slots_from(first: Slot, count: int) -> list[Slot]:
    """`count` consecutive slots."""
    return [(first[0], first[1] + k) for k in range(count)]


@dataclass(frozen=True)
class Tape:
    """The steps, and the other fields of a Program. `scratch[rank]` are the chunks of the rank's scratch slots."""

    name: str
    collective: str
    root: int
    ranks: int
    chunks: tuple[tuple[int, int], ...]
    scratch: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]

    @staticmethod
    def takes(program: Program) -> bool:
        """Whether the Program has a tape: two-sided, without signals, correct out of place, its input unchanged."""
        opcode = program.field("opcode")
        writes_input = HAS_DST[opcode] & (program.field("dst_space") == Space.input)
        unlike = ONE_SIDED[opcode] | (opcode == Opcode.signal) | (opcode == Opcode.wait) | writes_input
        return program.out_of_place and not unlike.any()

    @staticmethod
    def of(program: Program) -> Tape:
        """The tape of a proven Program for which `takes` is true."""
        scratch: list[list[int]] = [[] for _ in range(program.ranks)]
        for rank, space, chunk in program.slots.tolist():
            if space == Space.scratch:
                scratch[rank].append(chunk)
        steps, after = _rows(program)
        order = _order(steps, after)
        return Tape(
            program.name,
            program.collective,
            program.root,
            program.ranks,
            tuple((block, weight) for block, weight in program.chunks.tolist()),
            tuple(map(tuple, scratch)),
            tuple(steps[row] for row in order if steps[row].opcode != Opcode.nop),
        )

    def program(self) -> Program:
        """The Program of the steps; lanes keep their order on the tape. Claims the FIFO depth that the tape needs."""
        from syntony import _core

        builder = _core.ProgramBuilder(self.name, self.collective, self.ranks, self.root, list(self.chunks))
        for rank, chunks in enumerate(self.scratch):
            for chunk in chunks:
                builder.scratch(rank, chunk)
        for step in self.steps:
            builder.append(
                step.rank,
                step.lane,
                step.opcode,
                step.dst or (0, 0),
                step.src or (0, 0),
                step.count,
                step.recv_peer,
                step.send_peer,
                step.channel,
                step.operands,
            )
        return builder.finish()

    def least_program(self) -> Program | None:
        """The Program at the least FIFO depth at which it terminates; None if there is none."""
        program = self.program()
        least = 1 if program.fifo_depth == 1 else least_fifo_depth(program)
        return None if least is None else program.replace(fifo_depth=least)

    def with_steps(self, steps: Sequence[Step | None]) -> Tape:
        """The same tape with other steps; None is a removed step."""
        return replace(self, steps=tuple(step for step in steps if step is not None))

    def sorted(self) -> Tape:
        """The same steps in the order that `of` would give, after passes have moved work forward."""
        return Tape.of(self.program())

    def senders(self) -> list[int]:
        """Per step, the position of the step that sends what it receives; -1 if it receives nothing."""
        flying: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        found = []
        for position, step in enumerate(self.steps):
            found.append(flying[step.source].popleft() if step.receives else -1)
            if step.sends:
                flying[step.target].append(position)
        return found


def _rows(program: Program) -> tuple[list[Step], list[list[int]]]:
    """The instructions as steps, and the rows that each waits for: its dependencies and its predecessor on its lane."""
    first: dict[tuple[int, int], int] = {}
    rows = program.instructions.tolist()
    for row, (rank, lane, *_) in enumerate(rows):
        first.setdefault((rank, lane), row)
    operands, dependencies = iter(program.operands.tolist()), iter(program.dependencies.tolist())
    steps: list[Step] = []
    after: list[list[int]] = []
    for row, values in enumerate(rows):
        field = dict(zip(INSTRUCTION_FIELDS, values, strict=True))
        opcode = Opcode(field["opcode"])
        rank, lane = field["agent"], field["lane"]
        terms = tuple((space, index) for space, index in (next(operands) for _ in range(field["operand_count"])))
        steps.append(
            Step(
                rank,
                lane,
                opcode,
                (field["dst_space"], field["dst_index"]) if HAS_DST[opcode] else None,
                (field["src_space"], field["src_index"]) if HAS_SRC[opcode] else None,
                terms,
                field["count"],
                field["recv_peer"] if RECEIVES[opcode] else -1,
                field["send_peer"] if SENDS[opcode] else -1,
                field["channel"] if RECEIVES[opcode] or SENDS[opcode] else 0,
            )
        )
        waits = [
            first[rank, other] + at for other, at in (next(dependencies) for _ in range(field["dependency_count"]))
        ]
        if row > first[rank, lane]:
            waits.append(row - 1)
        after.append(waits)
    return steps, after


def _order(steps: list[Step], after: list[list[int]]) -> list[int]:
    """Rows in an order that respects `after` and messages; receives only if nothing else is left to do."""
    missing = [len(waits) for waits in after]
    followers: list[list[int]] = [[] for _ in steps]
    for row, waits in enumerate(after):
        for earlier in waits:
            followers[earlier].append(row)
    sent: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)  # rows in lane order, which is FIFO order
    for row, step in enumerate(steps):
        if step.sends:
            sent[step.target].append(row)
    for row, step in enumerate(steps):
        if step.receives:
            followers[sent[step.source].popleft()].append(row)
            missing[row] += 1
    eager = deque(row for row, left in enumerate(missing) if not left)
    lazy: deque[int] = deque()
    order: list[int] = []
    while eager or lazy:
        row = (eager or lazy).popleft()
        order.append(row)
        for follower in followers[row]:
            missing[follower] -= 1
            if not missing[follower]:
                (lazy if steps[follower].receives else eager).append(follower)
    if len(order) < len(steps):
        raise ValueError("a program whose steps wait for each other in a circle has no tape")
    return order
