"""Assembly: turns the instructions listed in a foreign file into a Program.

Foreign formats name slots and leave out what Program v1 requires:

- The contents of scratch slots. Slots that data moves between hold equal chunks; the classes of that relation are
  labelled by their input and output slots. If a file mixes chunks up, the most frequent label is taken and the checker
  names the fault.
- The depth of connections: the Program claims the least depth at which it terminates.
- Whether sums are rounded more than once: claimed only if the checker requires it.

Chunks are equal shares of their blocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from syntony.synth.checker import check_program, least_fifo_depth
from syntony.synth.model.blocks import Blocks
from syntony.synth.model.instructions import HAS_DST, HAS_SRC, INSTRUCTION_FIELDS, RECEIVES, SENDS, Opcode, Space
from syntony.synth.model.program import Program

Slot = tuple[Space, int]
Place = tuple[int, int]
"""(lane, position)."""

COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
"""The lower-case names of collectives in MSCCL and MSCCL++, without underscores."""

_Site = tuple[int, Slot]
"""(rank, slot)."""


@dataclass
class Assembly:
    """Collects instructions, rank after rank and lane after lane; `program` makes the Program of them.

    per_block  equal chunks that each block is cut into
    scratch    scratch slots of each rank
    """

    name: str
    contract: Blocks
    per_block: int
    in_place: bool
    out_of_place: bool
    scratch: list[int]
    _instructions: list[list[int]] = field(default_factory=list)
    _operands: list[Slot] = field(default_factory=list)
    _dependencies: list[Place] = field(default_factory=list)

    def add(
        self,
        rank: int,
        lane: int,
        opcode: Opcode,
        *,
        dst: Slot | None = None,
        src: Slot | None = None,
        count: int = 1,
        recv_peer: int = -1,
        send_peer: int = -1,
        channel: int = 0,
        operands: Sequence[Slot] = (),
        after: Sequence[Place] = (),
    ) -> None:
        """Adds an instruction."""
        ends = (*(dst or (0, 0)), *(src or (0, 0)))
        self._instructions.append(
            [rank, lane, opcode, *ends, count, recv_peer, send_peer, channel, len(operands), len(after), 0]
        )
        self._operands.extend(operands)
        self._dependencies.extend(after)

    def program(self) -> Program:
        """The Program, with the least claims under which the checker may accept it."""
        contract, ranks = self.contract, self.contract.ranks
        chunks = [(block, 1) for block in range(contract.blocks) for _ in range(self.per_block)]
        scratch = self._scratch_chunks()
        slots = [
            (rank, space, chunk)
            for rank in range(ranks)
            for space, held in (
                (Space.input, self._chunks(contract.input(rank))),
                (Space.output, self._chunks(contract.output(rank))),
                (Space.scratch, scratch[rank]),
            )
            for chunk in held
        ]
        program = Program(
            name=self.name,
            collective=contract.kind,
            root=contract.root,
            ranks=ranks,
            chunks=np.asarray(chunks, np.int32),
            slots=np.asarray(slots, np.int32),
            instructions=np.asarray(self._instructions, np.int32).reshape(-1, len(INSTRUCTION_FIELDS)),
            operands=np.asarray(self._operands, np.int32).reshape(-1, 2),
            dependencies=np.asarray(self._dependencies, np.int32).reshape(-1, 2),
            out_of_place=self.out_of_place,
            in_place=self.in_place,
        )
        program = program.replace(fifo_depth=least_fifo_depth(program) or 1)
        return program if check_program(program) else program.replace(rounds_per_hop=contract.sums)

    def _chunks(self, blocks: list[int]) -> list[int]:
        return [block * self.per_block + k for block in blocks for k in range(self.per_block)]

    def _chunk_of(self, rank: int, slot: Slot) -> int | None:
        """The chunk of an input or output slot; None for scratch."""
        if slot[0] == Space.scratch:
            return None
        blocks = self.contract.input(rank) if slot[0] == Space.input else self.contract.output(rank)
        return blocks[slot[1] // self.per_block] * self.per_block + slot[1] % self.per_block

    def _scratch_chunks(self) -> list[list[int]]:
        """The chunk of each scratch slot by rank: that of the data that passes through it."""
        parent: dict[_Site, _Site] = {}

        def find(site: _Site) -> _Site:
            root = site
            while parent.setdefault(root, root) != root:
                root = parent[root]
            while parent[site] != root:
                parent[site], site = root, parent[site]
            return root

        seen: list[tuple[_Site, int]] = []
        for a, b, count in self._moves():
            for k in range(count):
                one, other = ((rank, (space, index + k)) for rank, (space, index) in (a, b))
                chunk_one, chunk_other = self._chunk_of(*one), self._chunk_of(*other)
                if chunk_one is None and chunk_other is None:
                    parent[find(one)] = find(other)
                elif chunk_one is None:
                    seen.append((one, chunk_other or 0))
                elif chunk_other is None:
                    seen.append((other, chunk_one))
        labels: dict[_Site, Counter[int]] = defaultdict(Counter)
        for site, label in seen:
            labels[find(site)][label] += 1

        def chunk(rank: int, index: int) -> int:
            found = labels.get(find((rank, (Space.scratch, index))))
            return found.most_common(1)[0][0] if found else 0

        return [[chunk(rank, index) for index in range(count)] for rank, count in enumerate(self.scratch)]

    def _moves(self) -> list[tuple[_Site, _Site, int]]:
        """Pairs of places that data moves between, with how many slots."""
        moves: list[tuple[_Site, _Site, int]] = []
        sent: dict[tuple[int, int, int], list[tuple[_Site, int]]] = defaultdict(list)
        received: dict[tuple[int, int, int], list[tuple[_Site, int]]] = defaultdict(list)
        operands = iter(self._operands)
        for row in self._instructions:
            rank, _, op, dst_space, dst_index, src_space, src_index, count, recv, send, channel, terms, *_ = row
            dst: _Site = (send if op == Opcode.peer_write else rank, (Space(dst_space), dst_index))
            src: _Site = (send if op == Opcode.peer_read else rank, (Space(src_space), src_index))
            if HAS_DST[op] and HAS_SRC[op]:
                moves.append((dst, src, count))
            moves += [(dst, (rank, next(operands)), count) for _ in range(terms)]
            if op in (Opcode.signal, Opcode.wait):
                continue
            if SENDS[op]:
                sent[rank, send, channel].append((dst if HAS_DST[op] else src, count))
            if RECEIVES[op]:
                received[recv, rank, channel].append((dst if HAS_DST[op] else src, count))
        for connection, messages in sent.items():
            for (a, count_a), (b, count_b) in zip(messages, received[connection], strict=False):
                moves.append((a, b, min(count_a, count_b)))
        return moves
