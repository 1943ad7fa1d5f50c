"""Runs an MSCCL++ plan with numbers: threads of thread blocks in random order, from its JSON alone.

Shares nothing with the reader. Elements 2k and 2k + 1 are slot k; a thread block has two threads, which share the
elements of an operation: those on packets and those that reduce deal them in one way, the others in any. Only `nop` and
`barrier` make threads of a block wait for each other. Port channels and pipelines of several rounds are not played.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.synth.formats.launch import Cell, Launch
from tests.synth.random_executor import WrongError

THREADS = 2
Task = Iterator[Any]
"""A thread: yields conditions to wait for (callables), or None between steps."""

_DEALT = ("re", "res", "rre", "rres")


def run(plan: dict[str, Any], rng: random.Random) -> None:
    """One random launch; raises WrongError on deadlock, on reading nothing, on wrong results and on left signals."""
    _Launch(plan, rng).go()


class _Launch(Launch):
    def __init__(self, plan: dict[str, Any], rng: random.Random) -> None:
        self.plan, self.gpus = plan, plan["gpus"]
        kind, ranks = plan["collective"].replace("_", ""), len(self.gpus)
        width = max(gpu["input_chunks"] or gpu["output_chunks"] for gpu in self.gpus)
        width //= ranks if kind in ("reducescatter", "alltoall", "scatter") else 1
        super().__init__(kind, ranks, 2 * width, plan["inplace"], rng)
        self.packets: dict[Cell, int] = {}
        self.signals: Counter[tuple[int, int, int]] = Counter()  # (from, to, number)
        self.arrived: Counter[tuple[Any, ...]] = Counter()
        self.semaphores = {
            (rank, number): semaphore["init_value"]
            for rank, gpu in enumerate(self.gpus)
            for number, semaphore in enumerate(gpu.get("semaphores") or [])
        }

    def go(self) -> None:
        tasks: list[Task] = []
        for rank, gpu in enumerate(self.gpus):
            for block in gpu["threadblocks"]:
                deal = random.Random(self.rng.getrandbits(32))
                ops = [inner for op in block["ops"] for inner in (op["ops"] if op["name"] == "pipeline" else [op])]
                shifts = [deal.randrange(THREADS) for _ in ops]
                tasks += [self.thread(rank, block, ops, shifts, number) for number in range(THREADS)]
        waiting: dict[int, Any] = dict.fromkeys(range(len(tasks)))
        while waiting:
            ready = [at for at, condition in waiting.items() if condition is None or condition()]
            if not ready:
                raise WrongError("deadlock")
            at = self.rng.choice(ready)
            for _ in range(self.rng.choice((1, 1, 3, 40))):
                waiting[at] = next(tasks[at], "end")
                if waiting[at] == "end":
                    del waiting[at]
                    break
                if waiting[at] is not None and not waiting[at]():
                    break
        if any(self.signals.values()):
            raise WrongError("signals are left over")
        self.check()

    # --- a thread -------------------------------------------------------------------------------------------------

    def thread(self, rank: int, block: dict[str, Any], ops: list[dict[str, Any]], shifts: list[int], me: int) -> Task:
        turn = 0
        for op, shift in zip(ops, shifts, strict=True):
            name = op["name"]
            if name == "nop" or name == "barrier":
                place: tuple[Any, ...] = (rank, "block", block["id"], turn)
                number = THREADS
                turn += 1
                if name == "barrier":
                    place = (rank, "gpu", op["barrier_id"], self.turn_of(rank, block["id"], op, me))
                    number = THREADS * op["num_threadblocks"]
                self.arrived[place] += 1
                yield lambda place=place, number=number: self.arrived[place] >= number
            elif name in ("signal", "rlxsignal", "wait", "rlxwait"):
                for at, (peer, index) in enumerate(self.channels(rank, block, op)):
                    if at % THREADS != me:
                        continue
                    if name.endswith("signal"):
                        self.signals[rank, peer, index] += 1
                        yield None
                    else:
                        yield lambda key=(peer, rank, index): self.signals[key] > 0
                        self.signals[peer, rank, index] -= 1
            elif name == "sem_release":
                for at, number in enumerate(op["semaphore_ids"]):
                    if at % THREADS == me:
                        self.semaphores[rank, number] += 1
                        yield None
            elif name == "sem_acquire":
                for at, number in enumerate(op["semaphore_ids"]):
                    if at % THREADS == me:
                        yield lambda key=(rank, number): self.semaphores[key] > 0
                        self.semaphores[rank, number] -= 1
            else:
                yield from self.data(rank, block, op, shift, me)

    def turn_of(self, rank: int, block: int, op: dict[str, Any], me: int) -> int:
        key = (rank, "turn", block, op["barrier_id"], me)
        self.arrived[key] += 1
        return self.arrived[key]

    def channels(self, rank: int, block: dict[str, Any], op: dict[str, Any]) -> list[tuple[int, int]]:
        """(peer, how many channels to that peer come before) of each channel of the operation."""
        own = [i for row in block["channels"] if row["channel_type"] == "memory" for i in row["channel_ids"]]
        peers = [
            p for row in self.gpus[rank]["channels"] if row["channel_type"] == "memory" for p in row["connected_to"]
        ]
        return [(peers[own[i]], peers[: own[i]].count(peers[own[i]])) for i in op["channel_ids"]]

    def data(self, rank: int, block: dict[str, Any], op: dict[str, Any], shift: int, me: int) -> Task:
        name = op["name"]
        size = op["src_buff"][0]["size"]
        dealt = 0 if name in _DEALT or name.endswith("pkt") else shift
        for element in range(2 * size):
            if (element + dealt) % THREADS != me:
                continue
            ends = {
                end: [self.end(rank, block, piece, element) for piece in op[f"{end}_buff"]] for end in ("src", "dst")
            }
            src, dst = ends["src"], ends["dst"]
            if name in ("put", "get", "copy"):
                for one, other in zip(src, dst, strict=True):
                    self.memory[other] = self.read(one)
                    yield None
            elif name in _DEALT:
                total = sum(self.read(cell) for cell in src)
                for cell in dst:
                    self.memory[cell] = total
            elif name == "glres":
                ((_, buffer, at),) = src
                total = sum(self.read((peer, buffer, at)) for peer in self.group(rank))
                for peer in self.group(rank):
                    self.memory[peer, dst[0][1], dst[0][2]] = total
            else:
                yield from self.packet(name, src, dst)
            yield None

    def packet(self, name: str, src: list[Cell], dst: list[Cell]) -> Task:
        sums = name in ("repkt", "respkt", "recpkt", "recspkt")
        packets = src[1:] if sums else src if name in ("upkt", "rppkt") else []
        for cell in packets:
            yield lambda cell=cell: cell in self.packets
        if name == "ppkt":
            for one, other in zip(src, dst, strict=True):
                self.fill(other, self.read(one))
            return
        total = sum(self.packets[cell] for cell in packets) + sum(self.read(c) for c in src if c not in packets)
        plain = dst[:1] if sums or name == "upkt" else []
        for cell in plain:
            self.memory[cell] = total
        for cell in dst[len(plain) :]:
            self.fill(cell, total)

    def fill(self, cell: Cell, value: int) -> None:
        if cell in self.packets:
            raise WrongError(f"packets at {cell} are written twice")
        self.packets[cell] = value

    def group(self, rank: int) -> list[int]:
        (row,) = (row for row in self.gpus[rank]["channels"] if row["channel_type"] == "switch")
        found: list[int] = row["rank_groups"][0]["ranks"]
        return found

    def end(self, rank: int, block: dict[str, Any], piece: dict[str, Any], element: int) -> Cell:
        at = 2 * piece["index"] + element
        if "switch_channel_id" in piece:
            (row,) = (row for row in self.gpus[rank]["channels"] if row["channel_type"] == "switch")
            return rank, row["buff"], at
        if "buffer_id" in piece:
            ids = [i for row in block["remote_buffer_refs"] for i in row["remote_buffer_ids"]]
            remote = self.gpus[rank]["remote_buffers"][ids[piece["buffer_id"]]]
            return self.cell(remote["rank"], remote["type"], at)
        return self.cell(rank, piece["type"], at)
