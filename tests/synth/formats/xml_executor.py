"""Runs an MSCCL XML document with numbers: thread blocks in random order, from its elements alone.

Shares nothing with the reader. A block waits (`depid`, `deps`) until the other block's flag is past that step; only
steps with `hasdep` raise flags. A FIFO per sender, receiver and channel holds `depth` messages.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from xml.etree import ElementTree

from tests.synth.formats.launch import Launch
from tests.synth.random_executor import WrongError


def run(text: str, depth: int, rng: random.Random) -> None:
    """One random launch per way to call it; raises WrongError."""
    algo = ElementTree.fromstring(text)
    in_place = algo.get("inplace") == "1"
    if algo.get("outofplace", str(int(not in_place))) == "1":
        _Launch(algo, False, depth, rng).go()
    if in_place:
        _Launch(algo, True, depth, rng).go()


class _Launch(Launch):
    def __init__(self, algo: ElementTree.Element, in_place: bool, depth: int, rng: random.Random) -> None:
        kind, ranks = algo.attrib["coll"].replace("_", ""), int(algo.attrib["ngpus"])
        gpus = {int(gpu.attrib["id"]): gpu for gpu in algo}
        per_loop = algo.get("nchunksperloop")
        chunks = int(per_loop or max(int(gpu.get(key, 0)) for gpu in algo for key in ("i_chunks", "o_chunks")))
        width = chunks if kind in ("allreduce", "broadcast", "reduce") else chunks // ranks
        super().__init__(kind, ranks, width, in_place, rng)
        self.depth = depth
        self.fifos: dict[tuple[int, int, int], deque[list[int]]] = defaultdict(deque)
        self.flags: dict[tuple[int, int], int] = defaultdict(int)
        self.blocks: dict[tuple[int, int], tuple[ElementTree.Element, list[dict[str, str]]]] = {
            (rank, int(child.attrib["id"])): (child, [dict(step.attrib) for step in child])
            for rank in range(ranks)
            for child in gpus[rank]
            if child.tag == "tb"
        }

    def go(self) -> None:
        done = dict.fromkeys(self.blocks, 0)
        left = [key for key, (_, steps) in self.blocks.items() if steps]
        while left:
            ready = [key for key in left if self.ready(key, done[key])]
            if not ready:
                raise WrongError("deadlock")
            key = self.rng.choice(ready)
            for _ in range(self.rng.choice((1, 1, 4, 64))):
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
