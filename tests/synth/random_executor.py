"""Runs a Program with numbers, lanes in random order: the oracle of the mutation tests.

Written from program.hpp alone; it shares nothing with the checker. A value is a pair: an integer, whose sums are exact
and tell every wrong contribution, and a float, whose bits tell sums that were taken in different orders.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque

import numpy as np

from syntony.synth.model.instructions import INSTRUCTION_FIELDS, Opcode, Space
from syntony.synth.model.program import Program

Value = tuple[int, float]
Address = tuple[int, int, int]


class WrongError(AssertionError):
    """The Program went wrong in this run."""


def run(program: Program, in_place: bool, rng: random.Random) -> None:
    """One random execution; raises WrongError on deadlock, on reading nothing, and on wrong or unequal results."""
    _Run(program, in_place, rng).go()


class _Run:
    def __init__(self, program: Program, in_place: bool, rng: random.Random) -> None:
        self.program, self.in_place, self.rng = program, in_place, rng
        self.lanes: dict[tuple[int, int], list[dict[str, int]]] = defaultdict(list)
        self.operands: dict[int, list[Address]] = {}
        self.after: dict[int, list[tuple[int, int]]] = {}
        operands, dependencies = iter(program.operands.tolist()), iter(program.dependencies.tolist())
        for row, values in enumerate(program.instructions.tolist()):
            found = dict(zip(INSTRUCTION_FIELDS, values, strict=True)) | {"row": row}
            self.lanes[found["agent"], found["lane"]].append(found)
            self.operands[row] = [(found["agent"], *next(operands)) for _ in range(found["operand_count"])]
            self.after[row] = [tuple(next(dependencies)) for _ in range(found["dependency_count"])]
        self.done = dict.fromkeys(self.lanes, 0)
        self.fifos: dict[tuple[int, int, int], deque[list[Value | None]]] = defaultdict(deque)
        self.alias: dict[Address, Address] = {}
        self.memory: dict[Address, Value | None] = {}
        self.given: dict[tuple[int, int], Value] = {}
        self._lay_out()

    def _lay_out(self) -> None:
        inputs: dict[tuple[int, int], Address] = {}
        self.chunk: dict[Address, int] = {}
        index: dict[tuple[int, int], int] = defaultdict(int)
        for agent, space, chunk in self.program.slots.tolist():
            address = (agent, space, index[agent, space])
            index[agent, space] += 1
            self.chunk[address] = chunk
            if space == Space.input:
                inputs[agent, chunk] = address
                value = (self.rng.getrandbits(60), self.rng.uniform(-1, 1) * 10 ** self.rng.randint(-8, 8))
                self.memory[address] = self.given[agent, chunk] = value
            elif space == Space.output and self.in_place:
                self.alias[address] = inputs.get((agent, chunk), address)

    def read(self, address: Address) -> Value:
        value = self.memory.get(self.alias.get(address, address))
        if value is None:
            raise WrongError(f"{address} is read before it is written")
        return value

    def write(self, address: Address, value: Value) -> None:
        self.memory[self.alias.get(address, address)] = value

    def go(self) -> None:
        """Until all lanes have ended."""
        left = [lane for lane in self.lanes if self.lanes[lane]]
        while left:
            ready = [lane for lane in left if self._ready(lane)]
            if not ready:
                raise WrongError("deadlock")
            lane = self.rng.choice(ready)
            # Runs of random length, so that lanes get far apart.
            for _ in range(self.rng.choice((1, 1, 4, 64))):
                self._perform(self.lanes[lane][self.done[lane]])
                self.done[lane] += 1
                if self.done[lane] == len(self.lanes[lane]):
                    left.remove(lane)
                    break
                if not self._ready(lane):
                    break
        if any(self.fifos.values()):
            raise WrongError("messages are left over")
        self._check()

    def _ready(self, lane: tuple[int, int]) -> bool:
        row = self.lanes[lane][self.done[lane]]
        agent = row["agent"]
        if any(self.done[agent, other] <= position for other, position in self.after[row["row"]]):
            return False
        op = Opcode(row["opcode"]).name
        if (op.startswith("recv") or op == "wait") and not self.fifos[row["recv_peer"], agent, row["channel"]]:
            return False
        if op.endswith("send") or op == "signal":
            return len(self.fifos[agent, row["send_peer"], row["channel"]]) < self.program.fifo_depth
        return True

    def _perform(self, row: dict[str, int]) -> None:
        op, agent, count = Opcode(row["opcode"]).name, row["agent"], row["count"]
        dst_at = row["send_peer"] if op == "peer_write" else agent
        src_at = row["send_peer"] if op == "peer_read" else agent
        dst = [(dst_at, row["dst_space"], row["dst_index"] + k) for k in range(count)]
        src = [(src_at, row["src_space"], row["src_index"] + k) for k in range(count)]
        message: list[Value | None] = []
        if op.startswith("recv") or op == "wait":
            message = self.fifos[row["recv_peer"], agent, row["channel"]].popleft()
            if (op == "wait") != (message == []) or (message and len(message) != count):
                raise WrongError("a message of another kind or size")
        match op:
            case "nop" | "wait":
                return
            case "signal":
                self.fifos[agent, row["send_peer"], row["channel"]].append([])
                return
            case "copy" | "peer_read" | "peer_write" | "send":
                values = [self.read(at) for at in src]
            case "reduce":
                values = [self.read(at) for at in src]
                for _, space, first in self.operands[row["row"]]:
                    terms = [self.read((agent, space, first + k)) for k in range(count)]
                    values = [_sum(a, b) for a, b in zip(values, terms, strict=True)]
            case "recv" | "recv_copy_send":
                values = [value for value in message if value is not None]
            case _:
                values = [_sum(value, self.read(at)) for value, at in zip(message, src, strict=True) if value]
        if op not in ("send", "recv_reduce_send"):
            for at, value in zip(dst, values, strict=True):
                self.write(at, value)
        if op.endswith("send"):
            self.fifos[agent, row["send_peer"], row["channel"]].append(list(values))

    def _check(self) -> None:
        """Outputs are the exact sums (or the one contribution), and equal to the bit on all ranks."""
        sums: dict[int, int] = defaultdict(int)
        for (_, chunk), (number, _) in self.given.items():
            sums[chunk] += number
        first: dict[int, float] = {}
        for address, chunk in self.chunk.items():
            if address[1] != Space.output:
                continue
            number, real = self.read(address)
            if number != sums[chunk]:
                raise WrongError(f"{address} holds a wrong sum of chunk {chunk}")
            if np.float64(first.setdefault(chunk, real)).tobytes() != np.float64(real).tobytes():
                raise WrongError(f"chunk {chunk} is not equal to the bit on all ranks")
        if not self.in_place:
            for address, chunk in self.chunk.items():
                if address[1] == Space.input and self.memory[address] != self.given[address[0], chunk]:
                    raise WrongError(f"{address}, the user's input, was overwritten")


def _sum(a: Value, b: Value) -> Value:
    return a[0] + b[0], a[1] + b[1]
