"""A Schedule's columns as the checker reads them: validity of values and transfers, and how faults name them.

Everything is done by column, since schedules have millions of transfers; only sums are processed one by one, since
contributors are bit sets with one bit per rank.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syntony.synth.checker.contract import Contract
from syntony.synth.checker.verdict import FaultError, Verdict, listed
from syntony.synth.model.schedule import Schedule

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Columns:
    """A Schedule's columns, int64.

    able       the switches that are agents: agent ranks + k is the k-th
    chunk      the chunk of each value
    rank       per value the rank whose contribution it is; -1: a sum
    tree       per value a number; equal numbers mean bitwise equal sums
    depth      nesting depth of sums in each value
    whole      whether each value has all contributions
    operands   of each sum, from left to right
    value, result, src, dst, step     per transfer
    reduction  per transfer whether it is one
    """

    def __init__(self, schedule: Schedule) -> None:
        """Raises FaultError if a value or transfer is invalid."""
        self.schedule = schedule
        collective, moved = schedule.collective, schedule.transfers
        self.contract = Contract(collective.kind, collective.ranks, collective.root)
        self.ranks = collective.ranks
        self.able = [node for node in schedule.topology.nodes if node.multicast or node.reduces]
        self.agents = self.ranks + len(self.able)
        self.block = collective.chunks.block.astype(np.int64)
        self.chunk = schedule.values.chunk.astype(np.int64)
        self.rank = schedule.values.rank.astype(np.int64)
        self.value, self.result = moved.value.astype(np.int64), moved.result.astype(np.int64)
        self.src, self.dst = moved.src.astype(np.int64), moved.dst.astype(np.int64)
        self.step = moved.step.astype(np.int64)
        self.reduction: Mask = self.value != self.result
        self.steps = int(self.step.max(initial=-1)) + 1
        self.operands: dict[int, tuple[int, ...]] = {}
        self._contributors: list[int] = []  # bit sets of ranks, if there are sums
        self._check_values()
        self._check_transfers()

    # --- words --------------------------------------------------------------------------------------------------

    def at(self, transfer: int, message: str, rank: int | None = None) -> FaultError:
        """A fault of a transfer."""
        step, src = int(self.step[transfer]), int(self.src[transfer])
        chunk = int(self.chunk[self.value[transfer]])
        ends = f"{self.name(src)} -> {self.name(int(self.dst[transfer]))}"
        fault = f"step {step}, transfer {transfer} (chunk {chunk}, {ends}): {message}"
        agent = src if rank is None else rank
        return FaultError(Verdict(False, fault, agent=agent, step=step, transfer=transfer, chunk=chunk))

    def name(self, agent: int) -> str:
        """The agent's name in messages."""
        return f"rank {agent}" if agent < self.ranks else f"switch {self.able[agent - self.ranks].name}"

    def describe(self, value: int) -> str:
        """The value's name in messages."""
        name = f"chunk {self.chunk[value]}"
        if not self.contract.sums:
            return name
        return f"{name} summed over ranks {listed(ranks_of(self.contributors(value)))}"

    def contributors(self, value: int) -> int:
        """Bit set of the ranks whose contributions are in the value."""
        return self._contributors[value] if self._contributors else 1 << int(self.rank[value])

    def all_contributors(self, chunk: int) -> int:
        """Bit set of the ranks whose contributions the chunk must have in the end."""
        return sum(1 << rank for rank in self.contract.sources(int(self.block[chunk])))

    # --- values -------------------------------------------------------------------------------------------------

    def _check_values(self) -> None:
        """Contributions start where the collective says; sums add earlier values of one chunk, nothing twice."""
        offset, operand = self.schedule.values.offset.tolist(), self.schedule.values.operand.tolist()
        fit = len(self.rank) == len(self.chunk) == len(offset) - 1 and offset[0] == 0 and offset[-1] == len(operand)
        if not fit or offset != sorted(offset):
            raise FaultError(Verdict(False, "the columns of the value table do not fit together"))
        unknown = (self.chunk < 0) | (self.chunk >= len(self.block))
        if unknown.any():
            raise self._refused(int(unknown.argmax()), f"the collective has chunks 0..{len(self.block) - 1}")
        given = self.rank >= 0
        first, past = self.contract.source_span(self.block[self.chunk])
        foreign = given & ((self.rank >= self.ranks) | (self.rank < first) | (self.rank >= past))
        if foreign.any():
            value = int(foreign.argmax())
            raise self._refused(value, f"rank {self.rank[value]} does not start with this chunk")
        cut = given & (np.diff(offset) > 0)
        if cut.any():
            raise self._refused(int(cut.argmax()), "a contribution has no operands")
        self.tree = np.unique(self.chunk * self.ranks + np.where(given, self.rank, 0), return_inverse=True)[1]
        self.depth = np.zeros(len(self.chunk), np.int64)
        self.whole: Mask = given & (past - first == 1)
        if not given.all():
            self._read_sums(offset, operand)

    def _read_sums(self, offset: list[int], operand: list[int]) -> None:
        rank, chunk, tree, depth = (column.tolist() for column in (self.rank, self.chunk, self.tree, self.depth))
        contributors = self._contributors = [1 << max(number, 0) for number in rank]
        numbers: dict[tuple[int, ...], int] = {}
        for value in range(len(rank)):
            if rank[value] >= 0:
                continue
            terms = tuple(operand[offset[value] : offset[value + 1]])
            if not self.contract.sums:
                raise self._refused(value, f"{self.contract.kind} sums nothing")
            if len(terms) < 2:
                raise self._refused(value, "a sum has at least two operands")
            added = 0
            for term in terms:
                if not 0 <= term < value or chunk[term] != chunk[value]:
                    raise self._refused(value, f"operand {term} is not an earlier value of the same chunk")
                twice = added & contributors[term]
                if twice:
                    raise self._refused(value, f"the contribution of rank {ranks_of(twice)[0]} is summed twice")
                added |= contributors[term]
            self.operands[value] = terms
            contributors[value] = added
            depth[value] = 1 + max(depth[term] for term in terms)
            # The first two commute: a + b and b + a have the same bits.
            trees = [tree[term] for term in terms]
            tree[value] = len(rank) + numbers.setdefault((*sorted(trees[:2]), *trees[2:]), len(numbers))
        self.tree, self.depth = np.asarray(tree, np.int64), np.asarray(depth, np.int64)
        needed = (1 << self.ranks) - 1  # every collective that sums needs all ranks' contributions
        self.whole = np.asarray([bits == needed for bits in contributors], np.bool_)

    def _refused(self, value: int, message: str) -> FaultError:
        chunk = int(self.chunk[value])
        return FaultError(Verdict(False, f"value {value} (chunk {chunk}): {message}", chunk=chunk))

    # --- transfers ----------------------------------------------------------------------------------------------

    def _check_transfers(self) -> None:
        """Numbers in range; a reduction's value is an operand of its result."""
        for name, numbers, limit in (
            ("value", self.value, len(self.chunk)),
            ("result", self.result, len(self.chunk)),
            ("source rank", self.src, self.agents),
            ("destination rank", self.dst, self.agents),
        ):
            outside = (numbers < 0) | (numbers >= limit)
            if outside.any():
                t = int(outside.argmax())
                message = f"step {self.step[t]}, transfer {t}: {name} {numbers[t]} is not in 0..{limit - 1}"
                raise FaultError(Verdict(False, message, step=int(self.step[t]), transfer=t))
        if self.step.min(initial=0) < 0:
            t = int((self.step < 0).argmax())
            raise self.at(t, f"step {self.step[t]} is negative")
        for t in np.flatnonzero(self.reduction).tolist():
            value, result = int(self.value[t]), int(self.result[t])
            if value not in self.operands.get(result, ()):
                raise self.at(t, f"its value {value} is not an operand of its result, value {result}")
        idle = ~self.reduction & (self.src == self.dst)
        if idle.any():
            t = int(idle.argmax())
            raise self.at(t, f"a {'rank' if self.src[t] < self.ranks else 'switch'} sends a copy to itself")


def ranks_of(bits: int) -> list[int]:
    """The ranks of a bit set, ascending."""
    return [rank for rank in range(bits.bit_length()) if bits >> rank & 1]
