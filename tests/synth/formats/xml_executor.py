"""Runs an MSCCL XML document with numbers: thread blocks in random order, from its elements alone.

Shares nothing with the reader. A block waits (`depid`, `deps`) until the other block's flag is past that step; only
steps with `hasdep` raise flags. A FIFO per sender, receiver and channel holds `depth` messages.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from xml.etree import ElementTree

from tests.synth.random_executor import WrongError

Cell = tuple[int, str, int]


def run(text: str, depth: int, dice: random.Random) -> None:
    """One random launch per way to call it; raises WrongError."""
    algo = ElementTree.fromstring(text)
    in_place = algo.get("inplace") == "1"
    if algo.get("outofplace", str(int(not in_place))) == "1":
        _Launch(algo, False, depth, dice).go()
    if in_place:
        _Launch(algo, True, depth, dice).go()


class _Launch:
    def __init__(self, algo: ElementTree.Element, in_place: bool, depth: int, dice: random.Random) -> None:
        self.in_place, self.depth, self.dice = in_place, depth, dice
        self.kind = algo.attrib["coll"].replace("_", "")
        self.ranks = int(algo.attrib["ngpus"])
        gpus = {int(gpu.attrib["id"]): gpu for gpu in algo}
        per_loop = algo.get("nchunksperloop")
        chunks = int(per_loop or max(int(gpu.get(key, 0)) for gpu in algo for key in ("i_chunks", "o_chunks")))
        self.width = chunks if self.kind in ("allreduce", "broadcast", "reduce") else chunks // self.ranks
        self.memory: dict[Cell, int] = {}
        self.given: dict[Cell, int] = {}
        self.fifos: dict[tuple[int, int, int], deque[list[int]]] = defaultdict(deque)
        self.flags: dict[tuple[int, int], int] = defaultdict(int)
        self.blocks: dict[tuple[int, int], tuple[ElementTree.Element, list[dict[str, str]]]] = {}
        for rank in range(self.ranks):
            if not (self.kind in ("broadcast", "scatter") and rank):
                wide = self.width * (self.ranks if self.kind in ("reducescatter", "alltoall", "scatter") else 1)
                for at in range(wide):
                    cell = self.cell(rank, "i", at)
                    self.memory[cell] = self.given[rank, "i", at] = dice.getrandbits(60)
            for child in gpus[rank]:
                if child.tag == "tb":
                    steps = [dict(step.attrib) for step in child]
                    self.blocks[rank, int(child.attrib["id"])] = child, steps

    def cell(self, rank: int, buffer: str, at: int) -> Cell:
        if self.in_place:
            if buffer == "o" and self.kind == "reducescatter":
                return rank, "i", at + self.width * rank
            if buffer == "i" and self.kind in ("allgather", "gather"):
                return rank, "o", at + self.width * rank
            if buffer == "o" and self.kind not in ("allgather", "gather"):
                return rank, "i", at
        return rank, buffer, at

    def go(self) -> None:
        done = dict.fromkeys(self.blocks, 0)
        left = [key for key, (_, steps) in self.blocks.items() if steps]
        while left:
            ready = [key for key in left if self.ready(key, done[key])]
            if not ready:
                raise WrongError("deadlock")
            key = self.dice.choice(ready)
            for _ in range(self.dice.choice((1, 1, 4, 64))):
                self.perform(key, done[key])
                done[key] += 1
                if done[key] == len(self.blocks[key][1]):
                    left.remove(key)
                    break
                if not self.ready(key, done[key]):
                    break
        if any(self.fifos.values()):
            raise WrongError("messages are left over")
        self.check()

    def ready(self, key: tuple[int, int], at: int) -> bool:
        block, steps = self.blocks[key]
        step, rank = steps[at], key[0]
        other, needed = int(step.get("depid", -1)), int(step.get("deps", -1))
        if other >= 0 and other != key[1] and self.flags[rank, other] <= needed:
            return False
        kind, chan = step["type"], max(int(block.attrib["chan"]), 0)
        if kind[0] == "r" and kind != "re" and not self.fifos[int(block.attrib["recv"]), rank, chan]:
            return False
        sends = kind == "s" or kind in ("rcs", "rrs", "rrcs")
        return not sends or len(self.fifos[rank, int(block.attrib["send"]), chan]) < self.depth

    def perform(self, key: tuple[int, int], at: int) -> None:
        block, steps = self.blocks[key]
        step, rank = steps[at], key[0]
        kind, chan, count = step["type"], max(int(block.attrib["chan"]), 0), int(step.get("cnt", 1))
        ends = {}
        for end in ("src", "dst"):
            buffer = step.get(f"{end}buf", step.get("buf", "i"))
            first = int(step.get(f"{end}off", step.get("off", 0)))
            ends[end] = [self.cell(rank, buffer, first + k) for k in range(count)]
        message: list[int] = []
        if kind[0] == "r" and kind != "re":
            message = self.fifos[int(block.attrib["recv"]), rank, chan].popleft()
            if len(message) != count:
                raise WrongError("a message of another size")
        if kind in ("s", "cpy"):
            message = [self.read(cell) for cell in ends["src"]]
        elif kind in ("rrc", "rrs", "rrcs"):
            message = [value + self.read(cell) for value, cell in zip(message, ends["src"], strict=True)]
        elif kind == "re":
            message = [self.read(a) + self.read(b) for a, b in zip(ends["dst"], ends["src"], strict=True)]
        if kind in ("r", "rcs", "rrc", "rrcs", "cpy", "re"):
            self.memory.update(zip(ends["dst"], message, strict=True))
        if kind in ("s", "rcs", "rrs", "rrcs"):
            self.fifos[rank, int(block.attrib["send"]), chan].append(message)
        if step.get("hasdep") == "1":
            self.flags[key] = at + 1

    def read(self, cell: Cell) -> int:
        if cell not in self.memory:
            raise WrongError(f"{cell} is read before it is written")
        return self.memory[cell]

    def check(self) -> None:
        wanted: dict[tuple[int, int], int] = defaultdict(int)
        w, n = self.width, self.ranks
        for (rank, _, at), value in self.given.items():
            match self.kind:
                case "allreduce" | "broadcast":
                    ends = [(peer, at) for peer in range(n)]
                case "reduce":
                    ends = [(0, at)]
                case "allgather":
                    ends = [(peer, rank * w + at) for peer in range(n)]
                case "gather":
                    ends = [(0, rank * w + at)]
                case "reducescatter" | "scatter":
                    ends = [(at // w, at % w)]
                case _:
                    ends = [(at // w, rank * w + at % w)]
            for place in ends:
                wanted[place] += value
        for (rank, at), value in wanted.items():
            if self.read(self.cell(rank, "o", at)) != value:
                raise WrongError(f"output {at} of rank {rank} is wrong")
