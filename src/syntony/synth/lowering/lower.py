"""Lowering: from data movement (Schedule) to per-rank instructions (Program).

Each value that a rank comes to hold gets its own slot: the output slot of its chunk if the collective wants the value
there, otherwise a new scratch slot. Then the transfers are emitted step by step:

    copy                    ->  transfer into the new slot
    operand of a sum        ->  transfer into scratch; when all operands are there, one n-ary reduce in declared order
    the last missing one
    of two operands         ->  transfer_reduce: message + the local operand, without a stop in scratch

Steps are the stages of a pipeline: transfers of step k lag k slices behind (`skew` in program.hpp), as in the
simulation of a Schedule (simulation/moves.py). So a lane begins the next slice while this one is still steps away.

The builder finds lanes and dependencies. Switches only forward (a schedule in which one adds or copies is refused), so
a route is one message. The routes between a pair of ranks get separate channels, which preserves the Schedule's link
queues: a transfer waits only for its predecessor on its own route.
"""

from __future__ import annotations

from typing import Any

from syntony.synth.model.instructions import MAX_SKEW
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule, Transfer
from syntony.synth.model.target import Target, TargetError, fit
from syntony.synth.symmetry.groups import expand

Slot = Any
"""`syntony._core.Slot`."""


def lower(schedule: Schedule, target: Target, builder_of: Any = None) -> Program:
    """The Program of a Schedule for the Target. TargetError if the Target cannot take it, or if a switch is an
    agent.

    The Schedule must have passed the checker. `builder_of` makes the builder (default `syntony._core.ProgramBuilder`).
    """
    if builder_of is None:
        from syntony import _core

        builder_of = _core.ProgramBuilder
    if schedule.in_network:
        agent = int(max(schedule.transfers.src.max(), schedule.transfers.dst.max()))
        raise TargetError(
            f"this schedule makes switch {schedule.name_of(agent)} add or copy; Programs run on ranks only "
            "(syntony.collectives.aggregation runs sums in a software switch)"
        )
    whole = expand(schedule)
    return fit(_Lowering(whole, target, builder_of).program(), target)


class _Lowering:
    def __init__(self, schedule: Schedule, target: Target, builder_of: Any) -> None:
        self.schedule, self.target = schedule, target
        collective = schedule.collective
        chunks = [(int(b), int(w)) for b, w in zip(collective.chunks.block, collective.chunks.weight, strict=True)]
        name = " ".join(filter(None, (collective.kind, "on", schedule.topology.name, "by", schedule.engine or "hand")))
        self.builder = builder_of(name, collective.kind, collective.ranks, collective.root, chunks)
        self.chunk = schedule.values.chunk.tolist()
        self.wanted = [collective.post(chunk) for chunk in range(len(collective.chunks))]
        self.full = [len(collective.pre(chunk)) if collective.combining else 1 for chunk in range(len(chunks))]
        self.slots: dict[tuple[int, int], Slot] = {}  # (rank, value) -> its slot
        self.filled: set[tuple[int, int]] = set()  # (rank, chunk) whose output is written
        self.pending: dict[tuple[int, int], dict[int, Slot]] = {}  # (rank, sum) -> its operands that have arrived
        self.channels: dict[tuple[int, int], dict[tuple[int, ...], int]] = {}  # (src, dst) -> route -> channel

    def program(self) -> Any:
        """Emits all instructions."""
        for value, rank in enumerate(self.schedule.values.rank.tolist()):
            if rank >= 0:
                self.slots[rank, value] = self.builder.input(rank, self.chunk[value])
        for step, transfers in enumerate(self._by_step()):
            self.builder.skew(min(step, MAX_SKEW))
            for transfer in transfers:
                self._transfer(transfer)
            self._complete()
        for (rank, value), slot in list(self.slots.items()):
            if self._belongs_in_output(rank, value) and (rank, self.chunk[value]) not in self.filled:
                self.filled.add((rank, self.chunk[value]))
                self.builder.copy(rank, self.builder.output(rank, self.chunk[value]), slot)
        return self.builder.finish()

    def _by_step(self) -> list[list[Transfer]]:
        """Transfers by step; within a step, those that fill an output come last, so in-place inputs are read before."""
        steps: list[list[Transfer]] = [[] for _ in range(self.schedule.steps)]
        for transfer in self.schedule.transfers.rows():
            steps[transfer.step].append(transfer)
        for transfers in steps:
            transfers.sort(key=lambda transfer: self._belongs_in_output(transfer.dst, transfer.result))
        return steps

    def _belongs_in_output(self, rank: int, value: int) -> bool:
        chunk = self.chunk[value]
        return rank in self.wanted[chunk] and len(self.schedule.values.contributions(value)) == self.full[chunk]

    def _place(self, rank: int, value: int) -> Slot:
        chunk = self.chunk[value]
        if self._belongs_in_output(rank, value) and (rank, chunk) not in self.filled:
            self.filled.add((rank, chunk))
            return self.builder.output(rank, chunk)
        return self.builder.scratch(rank, chunk)

    def _channel(self, transfer: Transfer) -> int:
        routes = self.channels.setdefault((transfer.src, transfer.dst), {})
        return routes.setdefault(transfer.route, len(routes)) % self.target.channels

    def _transfer(self, transfer: Transfer) -> None:
        src, dst, value, result = transfer.src, transfer.dst, transfer.value, transfer.result
        source = self.slots[src, value]
        if value == result:
            slot = self.slots[dst, result] = self._place(dst, result)
            self.builder.transfer(src, source, dst, slot, self._channel(transfer))
            return
        arrived = self.pending.setdefault((dst, result), {})
        if src == dst:
            arrived[value] = source
            return
        others = [term for term in self.schedule.values.operands(result) if term != value]
        if len(others) == 1 and not arrived and (dst, others[0]) in self.slots:
            # Two operands commute bit for bit, so the message may come first.
            del self.pending[dst, result]
            slot = self.slots[dst, result] = self._place(dst, result)
            self.builder.transfer_reduce(src, source, dst, slot, self.slots[dst, others[0]], self._channel(transfer))
            return
        arrived[value] = self.builder.scratch(dst, self.chunk[value])
        self.builder.transfer(src, source, dst, arrived[value], self._channel(transfer))

    def _complete(self) -> None:
        """Emits the sums whose operands are there. Operands have smaller numbers than their sums."""
        for rank, result in sorted(self.pending, key=lambda held: held[1]):
            arrived = self.pending[rank, result]
            terms = self.schedule.values.operands(result)
            found = [arrived.get(term, self.slots.get((rank, term))) for term in terms]
            if all(slot is not None for slot in found):
                del self.pending[rank, result]
                slot = self.slots[rank, result] = self._place(rank, result)
                self.builder.reduce(rank, slot, found)
