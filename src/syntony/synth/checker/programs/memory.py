"""Checks the contents of slots for one memory mode: no races between lanes, and the right values.

Memory mode `in_place` overlays the input and the output slot of one chunk on one rank; `out_of_place` keeps all slots
apart. A *place* is a slot row, or the input row that an output row overlays.

Races. Walk the instructions in an order that respects happens-before. An access must happen after the last write of its
place, and a write also after every read since; by transitivity these few pairs prove all pairs. Lane order and
dependencies settle most (`Clock`). The others may be ordered through other ranks by messages: a second walk carries one
bit per doubtful earlier access along all edges. A message of an empty chunk is never sent, so data messages carry only
the bits of accesses to chunks that they hold; signals are always sent and carry all.

Values. Without races every read gets the same value in every execution, so the values of this one order are the values.
A value is a tree of additions over contributions, numbered so that equal numbers mean equal trees (`Sums`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from syntony.synth.checker.contract import Contract
from syntony.synth.checker.programs.execution import Execution
from syntony.synth.checker.programs.resolved import Resolved
from syntony.synth.checker.verdict import FaultError, Verdict, listed
from syntony.synth.model.instructions import Opcode, Space

NOTHING = -1


class Sums:
    """Trees of additions, each numbered once. Tree r < ranks is rank r's contribution itself.

    The first two operands of an addition commute bit for bit, so they are sorted. The others are added to these from
    left to right, rounded once at the end, and keep their places.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.contributors = [1 << rank for rank in range(ranks)]  # bit sets
        self.deep = [False] * ranks  # whether an operand is itself a sum
        self._operands: list[tuple[int, ...]] = [()] * ranks
        self._numbers: dict[tuple[int, ...], int] = {}

    def add(self, operands: list[int]) -> int:
        """The number of the sum, or NOTHING if two operands share a contribution."""
        a, b = operands[0], operands[1]
        key = (a, b, *operands[2:]) if a <= b else (b, a, *operands[2:])
        number = self._numbers.get(key)
        if number is None:
            whole = 0
            for operand in key:
                if whole & self.contributors[operand]:
                    return NOTHING
                whole |= self.contributors[operand]
            number = self._numbers[key] = len(self.contributors)
            self.contributors.append(whole)
            self.deep.append(any(operand >= self.ranks for operand in key))
            self._operands.append(key)
        return number

    def ranks_of(self, number: int) -> list[int]:
        """The contributing ranks."""
        return [rank for rank in range(self.ranks) if self.contributors[number] >> rank & 1]

    def text(self, number: int, limit: int = 60) -> str:
        """ "((0 + 1) + 2)", truncated if it is long."""
        text = self._text(number, limit)
        return text if len(text) <= limit else text[:limit] + " .."

    def _text(self, number: int, limit: int) -> str:
        if number < self.ranks:
            return str(number)
        if limit < 0:  # long enough; trees may be deeper than Python's recursion limit
            return ".."
        parts: list[str] = []
        for operand in self._operands[number]:
            parts.append(self._text(operand, limit))
            limit -= len(parts[-1])
            if limit < 0:
                break
        return f"({' + '.join(parts)})"


@dataclass(frozen=True)
class Contents:
    """The result of the walk: the value that each instruction produced, slot by slot, and the final value per place."""

    produced: list[list[int]]
    final: list[int]
    place: list[int]


def places(code: Resolved, in_place: bool) -> list[int]:
    """Per slot row, the row whose memory it uses."""
    place = list(range(len(code.slot_chunk)))
    if in_place:
        inputs: dict[tuple[int, int], int] = {}
        for row, (agent, space, chunk) in enumerate(code.program.slots.tolist()):
            if space == Space.input:
                inputs[agent, chunk] = row
            elif space == Space.output:
                place[row] = inputs.get((agent, chunk), row)
    return place


def run(code: Resolved, execution: Execution, sums: Sums, in_place: bool) -> Contents:
    """Walks the execution; raises FaultError at the first race or else at the first wrong access."""
    walk = _Walk(code, execution, sums, in_place)
    try:
        walk.all()
    except FaultError:
        walk.settle()  # a race explains a wrong value better than the value does
        raise
    walk.settle()
    return Contents(walk.produced, walk.value, walk.place)


class _Walk:
    def __init__(self, code: Resolved, execution: Execution, sums: Sums, in_place: bool) -> None:
        self.code, self.execution, self.sums = code, execution, sums
        self.mode = "in place" if in_place else "out of place"
        self.place = places(code, in_place)
        self.value = [NOTHING] * len(self.place)
        self.protected = [False] * len(self.place)
        for row, (agent, space, _) in enumerate(code.program.slots.tolist()):
            if space == Space.input:
                self.value[row] = agent
                self.protected[row] = not in_place  # a Program only for in-place calls may overwrite the buffer
        self.writer = [NOTHING] * len(self.place)
        self.readers: list[list[int]] = [[] for _ in self.place]
        self.produced: list[list[int]] = [[] for _ in code.opcode]
        self.lane: list[int] = code.lane.tolist()
        self.position: list[int] = code.position.tolist()
        self.doubtful: list[tuple[int, int, int]] = []  # earlier row, later row, place

    def all(self) -> None:
        """Every instruction in order."""
        code = self.code
        opcode, count, partner = code.opcode.tolist(), code.count.tolist(), code.partner.tolist()
        dst, src = code.dst.tolist(), code.src.tolist()
        operands = code.lists(code.operand_owner, code.operand)
        quiet = (Opcode.nop, Opcode.signal, Opcode.wait)
        for row in self.execution.order:
            if opcode[row] in quiet:
                continue
            message = self.produced[partner[row]] if partner[row] >= 0 else None
            if count[row] > 1:
                self._check_overlap(row, dst[row], (src[row], *operands[row]), count[row])
            result = self.produced[row]
            for k in range(count[row]):
                if src[row] < 0:  # recv, recv_copy_send
                    assert message is not None
                    value = message[k]
                else:
                    value = self._read(row, src[row] + k)
                    if message is not None:
                        value = self._add(row, [message[k], value], src[row] + k)
                    elif operands[row]:
                        terms = [value, *(self._read(row, operand + k) for operand in operands[row])]
                        value = self._add(row, terms, src[row] + k)
                result.append(value)
                if dst[row] >= 0 and not (opcode[row] == Opcode.copy and self._same(dst[row] + k, src[row] + k)):
                    self._write(row, dst[row] + k, value)

    def _same(self, slot: int, other: int) -> bool:
        """Copying a place onto itself does nothing (in place, the own chunk is already where it belongs)."""
        return self.place[slot] == self.place[other]

    def _read(self, row: int, slot: int) -> int:
        place = self.place[slot]
        writer = self.writer[place]
        if writer >= 0 and not self._ordered(writer, row):
            self.doubtful.append((writer, row, place))
        value = self.value[place]
        if value < 0:
            raise self._fault(row, slot, f"reads {self.code.slot(slot)} before anything is written there")
        self.readers[place].append(row)
        return value

    def _write(self, row: int, slot: int, value: int) -> None:
        place = self.place[slot]
        if self.protected[place]:
            raise self._fault(
                row, slot, f"writes {self.code.slot(slot)}, which is the user's; write an output or scratch slot"
            )
        writer, readers = self.writer[place], self.readers[place]
        if readers:
            for reader in readers:
                if reader != row and not self._ordered(reader, row):
                    self.doubtful.append((reader, row, place))
            self.readers[place] = []
        if writer >= 0 and writer != row and not self._ordered(writer, row):
            self.doubtful.append((writer, row, place))
        self.writer[place] = row
        self.value[place] = value

    def _ordered(self, earlier: int, later: int) -> bool:
        lane = self.lane[earlier]
        if lane == self.lane[later]:
            return True
        return self.execution.clocks[later].get(lane, -1) >= self.position[earlier]

    def _add(self, row: int, terms: list[int], slot: int) -> int:
        total = self.sums.add(terms)
        if total != NOTHING:
            return total
        seen = 0
        for term in terms:
            twice = seen & self.sums.contributors[term]
            if twice:
                rank = (twice & -twice).bit_length() - 1
                break
            seen |= self.sums.contributors[term]
        chunk = self.code.slot_chunk[slot]
        raise self._fault(row, slot, f"sums the contribution of rank {rank} to chunk {chunk} twice")

    def _check_overlap(self, row: int, dst: int, sources: tuple[int, ...], count: int) -> None:
        """Slot k may be written over source k but over no other: kernels take equal pointers, not partial overlap."""
        if dst < 0:
            return
        written = {self.place[dst + k]: k for k in range(count)}
        for source in sources:
            for k in range(count):
                if source >= 0 and written.get(self.place[source + k], k) != k:
                    raise self._fault(row, source + k, f"overwrites {self.code.slot(source + k)} while reading it")

    def _fault(self, row: int, slot: int, message: str) -> FaultError:
        return self.code.fault(row, f"{message} ({self.mode})", int(self.code.slot_chunk[slot]))

    def settle(self) -> None:
        """Checks the doubtful pairs for an order by messages; raises FaultError for the first without one."""
        if not self.doubtful:
            return
        code = self.code
        bits: dict[tuple[int, int], int] = {}  # (earlier row, chunk) -> its bit
        starts: dict[int, int] = defaultdict(int)  # row -> bits that start there
        of_chunk: dict[int, int] = defaultdict(int)  # chunk -> its bits
        checks: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for earlier, later, place in self.doubtful:
            chunk = int(code.slot_chunk[place])
            bit = bits.setdefault((earlier, chunk), 1 << len(bits))
            starts[earlier] |= bit
            of_chunk[chunk] |= bit
            checks[later].append((bit, earlier, place))
        reached = [0] * len(code.opcode)
        dependencies = code.lists(code.dependency_owner, code.dependency)
        last_of_lane = [0] * len(code.lane_first)
        for row in self.execution.order:
            mask = last_of_lane[self.lane[row]]
            for dependency in dependencies[row]:
                mask |= reached[dependency]
            sender = int(code.partner[row])
            if sender >= 0 and reached[sender]:
                mask |= reached[sender] & self._carried(sender, of_chunk)
            for bit, earlier, place in checks.get(row, ()):
                if not mask & bit:
                    raise self._race(earlier, row, place)
            reached[row] = last_of_lane[self.lane[row]] = mask | starts.get(row, 0)

    def _carried(self, sender: int, of_chunk: dict[int, int]) -> int:
        code = self.code
        if code.opcode[sender] == Opcode.signal:
            return -1
        slot = code.src[sender] if code.dst[sender] < 0 or code.opcode[sender] == Opcode.send else code.dst[sender]
        carried = 0
        for k in range(int(code.count[sender])):
            carried |= of_chunk.get(int(code.slot_chunk[slot + k]), 0)
        return carried

    def _race(self, earlier: int, later: int, place: int) -> FaultError:
        where = self.code.program.where(earlier)
        return self._fault(
            later,
            place,
            f"races with {where} for {self.code.slot(place)}: nothing orders the two; one must depend on the other",
        )


def check_outputs(code: Resolved, contents: Contents, sums: Sums, contract: Contract, in_place: bool) -> None:
    """Every output slot holds its chunk's whole result, and all copies of it the same bits."""
    mode = "in place" if in_place else "out of place"
    writer = _last_writers(code, contents.place)
    first: dict[int, tuple[int, int]] = {}  # chunk -> (rank, tree)
    for row, (agent, space, chunk) in enumerate(code.program.slots.tolist()):
        if space != Space.output:
            continue
        value = contents.final[contents.place[row]]
        wanted = contract.contributors(int(code.program.chunks[chunk, 0]))
        found = set(sums.ranks_of(value)) if value >= 0 else set()
        at = writer.get(contents.place[row])
        if found != wanted:
            raise _wrong_output(code, row, at, found, set(wanted), mode)
        if sums.deep[value] and not code.program.rounds_per_hop:
            message = (
                f"{code.slot(row)} is summed as {sums.text(value)}, which rounds sums of sums again, "
                "yet the program does not say rounds_per_hop"
            )
            raise _output_fault(code, row, at, message)
        rank, tree = first.setdefault(chunk, (agent, value))
        if tree != value:
            message = (
                f"{code.slot(row)} is summed as {sums.text(value)}, rank {rank} sums it as {sums.text(tree)}: "
                f"floating-point results would differ between the ranks ({mode})"
            )
            raise _output_fault(code, row, at, message)


def _last_writers(code: Resolved, place: list[int]) -> dict[int, int]:
    """Per place, the last instruction row in the table that writes it: the one to name if its value is wrong."""
    writers: dict[int, int] = {}
    for row in np.flatnonzero(code.dst >= 0).tolist():
        for k in range(int(code.count[row])):
            writers[place[int(code.dst[row]) + k]] = row
    return writers


def _wrong_output(code: Resolved, row: int, at: int | None, found: set[int], wanted: set[int], mode: str) -> FaultError:
    if not found:
        message = f"{code.slot(row)} is never written ({mode})"
    elif missing := sorted(wanted - found):
        plural = "rank" if len(missing) == 1 else "ranks"
        message = f"{code.slot(row)} ends without the contribution of {plural} {listed(missing)} ({mode})"
    else:
        message = f"{code.slot(row)} ends with data of ranks {listed(sorted(found - wanted))} ({mode})"
    return _output_fault(code, row, at, message)


def _output_fault(code: Resolved, row: int, at: int | None, message: str) -> FaultError:
    chunk = int(code.slot_chunk[row])
    if at is not None:
        return code.fault(at, message, chunk)
    agent = int(code.program.slots[row, 0])
    return FaultError(Verdict(valid=False, fault=f"rank {agent}: {message}", agent=agent, chunk=chunk))
