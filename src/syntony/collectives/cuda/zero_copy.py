"""Which messages need no copy: their receiver reads them where the sender has them.

GPUs reach each other's memory, so a message can be a flag: "it lies there". That is right as long as nobody overwrites
the place before the receiver is done with it. Whether somebody may is read off the Program, by happens-before (lanes,
dependencies, messages) within one slice, as slices touch disjoint bytes:

    sender     send x ─────────────▶ ... w: x = ..        direct when every writer w of x comes before the send
                  ╲                     ▲                  or after the receive, whatever the timing
    receiver       recv y ─────────────▶╯  (by messages)

No wait is added, so no deadlock is. One step further: a scratch slot y that is only ever filled by that receive is not
filled at all where everybody who reads y can read x instead (all of them before w). A reduce of what peers have sent
then reads their buffers, and the two-shot all_reduce reads every input once.

What remains is copied through FIFOs of the Program's depth.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from syntony.synth.checker.programs.connections import match
from syntony.synth.checker.programs.execution import execute
from syntony.synth.checker.programs.memory import places
from syntony.synth.checker.programs.resolved import Resolved
from syntony.synth.checker.verdict import FaultError
from syntony.synth.model.instructions import Opcode, ProgramError, Space
from syntony.synth.model.program import Program


@dataclass(frozen=True)
class Messages:
    """How a Program's messages travel. Rows are rows of `program.instructions` and of `program.slots`."""

    code: Resolved
    direct: frozenset[int]
    """Sends whose message is read where it lies."""
    stands_for: dict[int, int]
    """Scratch slot that is never filled -> the slot, of another rank, that is read in its place."""

    def carried(self, row: int) -> int:
        """The first slot of a send's message; -1 when it is stored in none."""
        return _carried(self.code, row)


def messages(program: Program, *, in_place: bool, copy_all: bool = False) -> Messages:
    """The decision for every message, where input and output slots of a chunk are one memory (`in_place`) or two;
    `copy_all` sends everything through FIFOs.

    ProgramError for a Program whose messages do not match or that deadlocks (which its checker would say too).
    """
    code = Resolved(program)
    try:
        match(code)
        order = execute(code, program.fifo_depth).order
    except FaultError as error:
        raise ProgramError(f"program '{program.name}' cannot be compiled: {error.verdict.fault}") from None
    if copy_all:
        return Messages(code, frozenset(), {})
    return _Decision(code, order, in_place).messages()


def _carried(code: Resolved, row: int) -> int:
    opcode = code.opcode[row]
    if opcode == Opcode.send:
        return int(code.src[row])
    return int(code.dst[row]) if opcode in (Opcode.recv_copy_send, Opcode.recv_reduce_copy_send) else -1


class _Decision:
    def __init__(self, code: Resolved, order: list[int], in_place: bool) -> None:
        self.code = code
        self.place = places(code, in_place)
        self.before = _ancestors(code, order)
        self.writers: dict[int, list[int]] = defaultdict(list)  # place -> instructions
        self.readers: dict[int, list[int]] = defaultdict(list)  # slot -> instructions
        operands = code.lists(code.operand_owner, code.operand)
        for row, count in enumerate(code.count.tolist()):
            for k in range(count):
                if code.opcode[row] == Opcode.copy and self._onto_itself(row, k):
                    continue
                if code.dst[row] >= 0:
                    self.writers[self.place[int(code.dst[row]) + k]].append(row)
                for first in (int(code.src[row]), *operands[row]):
                    if first >= 0:
                        self.readers[first + k].append(row)

    def _onto_itself(self, row: int, k: int) -> bool:
        """In place, a rank's own chunk is where it belongs."""
        return self.place[int(self.code.dst[row]) + k] == self.place[int(self.code.src[row]) + k]

    def messages(self) -> Messages:
        code = self.code
        receives = [row for row in range(len(code.opcode)) if code.partner[row] >= 0]
        receives = [row for row in receives if code.opcode[row] != Opcode.wait]
        direct = frozenset(int(code.partner[row]) for row in receives if self._is_direct(row))
        sent = {
            _carried(code, row) + k for row in direct for k in range(int(code.count[row]))
        }  # slots that peers read: these must be filled
        stands_for: dict[int, int] = {}
        for row in receives:
            sender = int(code.partner[row])
            if sender in direct and code.opcode[row] == Opcode.recv and self._can_stay(row, sent):
                here, there = int(code.dst[row]), _carried(code, sender)
                stands_for.update({here + k: there + k for k in range(int(code.count[row]))})
        return Messages(code, direct, stands_for)

    def _is_direct(self, receive: int) -> bool:
        sender = int(self.code.partner[receive])
        first = _carried(self.code, sender)
        return first >= 0 and all(
            self._safe(sender, first + k, [receive]) for k in range(int(self.code.count[receive]))
        )

    def _safe(self, sender: int, slot: int, reads: list[int]) -> bool:
        """Whether all `reads` of the slot, as it was when sent, come before whoever writes it later."""
        for writer in self.writers[self.place[slot]]:
            if writer == sender or self.before[sender] >> writer & 1:
                continue
            if not all(self.before[writer] >> read & 1 for read in reads):
                return False
        return True

    def _can_stay(self, receive: int, sent: set[int]) -> bool:
        code, sender = self.code, int(self.code.partner[receive])
        there = _carried(code, sender)
        for k in range(int(code.count[receive])):
            here = int(code.dst[receive]) + k
            if code.program.slots[here, 1] != Space.scratch or self.writers[here] != [receive] or here in sent:
                return False
            readers = self.readers[here]
            if any(code.agent[reader] != code.agent[receive] for reader in readers):
                return False
            if not self._safe(sender, there + k, [receive, *readers]):
                return False
        return True


def _ancestors(code: Resolved, order: list[int]) -> list[int]:
    """Per instruction, the set (bits) of those that happen before it in every execution."""
    dependencies = code.lists(code.dependency_owner, code.dependency)
    before = [0] * len(order)
    for row in order:
        earlier = [*dependencies[row]]
        if code.position[row] > 0:
            earlier.append(row - 1)
        if code.partner[row] >= 0:
            earlier.append(int(code.partner[row]))
        known = 0
        for other in earlier:
            known |= before[other] | 1 << other
        before[row] = known
    return before
