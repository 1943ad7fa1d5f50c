"""MSCCL XML in: what Microsoft's MSCCL, Azure's msccl-scheduler and AMD's RCCL run, as a Program.

    <algo name ngpus nchunksperloop coll inplace outofplace ..>       the Program
      <gpu id i_chunks o_chunks s_chunks>                             an agent and its slots
        <copy i_off o_off/>                                           a copy before everything else (TACCL, TE-CCL)
        <tb id send recv chan>                                        a lane with one peer per direction
          <step s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep/>      an instruction

Newer msccl-tools write `<op step ..>` with `buf`/`off` where one end says it all, and leave out what is default.

What is translated rather than copied:

- `nop` carries a second dependency for the step after it; it becomes a dependency there, unless others wait for it.
- Consecutive `re` into one slot become one n-ary `reduce`, which rounds once. The file leaves open in which order that
  sum is taken (its executor's kernels differ); we take it in the order of the ranks that the operands came from, so
  that ranks that sum the same operands get the same bits.
- `depid`/`deps` waits for a counter that only steps with `hasdep="1"` advance; so it waits for the first such step at
  or after the one named.
- Chunks are equal shares. A scratch chunk is as large as what is put there, found by following the data.
- The file does not say how much its FIFOs hold; the Program claims the least depth at which it ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from synth.checker import check_program, least_fifo_depth
from synth.checker.contract import Contract
from synth.program import HAS_DST, HAS_SRC, RECEIVES, SENDS, Opcode, Program, Space
from topologies.command import UserError
from topologies.xml_document import Element, read

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
STEP_TYPES = {
    "s": Opcode.send,
    "r": Opcode.recv,
    "rcs": Opcode.recv_copy_send,
    "rrc": Opcode.recv_reduce,
    "rrs": Opcode.recv_reduce_send,
    "rrcs": Opcode.recv_reduce_copy_send,
    "cpy": Opcode.copy,
    "re": Opcode.reduce,
    "nop": Opcode.nop,
}
_MAX_RANKS, _MAX_CHUNKS = 1 << 12, 1 << 20
BUFFERS = {"i": Space.input, "o": Space.output, "s": Space.scratch}

Slot = tuple[Space, int]
Place = tuple[int, int]
"""(lane, position), or (tb id, step) while reading."""


class MscclError(UserError):
    """A readable file whose program cannot work, whatever executes it."""


@dataclass
class _Step:
    """One step on its way to becoming an instruction."""

    element: Element
    opcode: Opcode
    dst: Slot | None
    src: Slot | None
    count: int
    waits: list[Place]
    announces: bool
    operands: list[Slot] = field(default_factory=list)
    names: list[Place] = field(default_factory=list)  # the (tb, step) that it stands for
    wanted: bool = False  # whether another block waits for it


@dataclass
class _Block:
    """One `<tb>`."""

    send: int
    recv: int
    channel: int
    steps: list[_Step]


@dataclass
class _Gpu:
    blocks: dict[int, _Block]
    scratch: int
    copies: list[tuple[Slot, Slot]]


def read_msccl_xml(path: Path) -> Program:
    """The Program of an MSCCL XML file; XmlError when malformed, MscclError when it can never work."""
    root = read(path)
    return _Reader(root).program()


class _Reader:
    def __init__(self, root: Element) -> None:
        self.root = root
        if root.tag != "algo":
            root.refuse("an MSCCL schedule begins with <algo>")
        self.name = root.text("name")
        self.ranks = _limited(root, "ngpus", 1, _MAX_RANKS)
        coll = root.text("coll")
        kind = COLLECTIVES.get(coll.replace("_", "").lower())
        if kind is None:
            root.refuse(f'coll="{coll}" is not supported; supported are {", ".join(COLLECTIVES)}')
        self.contract = Contract(kind, self.ranks)
        self.kind = kind
        self.in_place = self._flag("inplace", None)
        self.out_of_place = self._flag("outofplace", not self.in_place)
        if not (self.in_place or self.out_of_place):
            root.refuse('inplace="0" and outofplace="0" leave no way to call it; one must be 1')
        self.per_block = self._chunks_per_block()
        self.gpus = self._gpus()

    def _flag(self, name: str, default: bool | None) -> bool:
        value = self.root.integer(name, None if default is None else int(default))
        if value not in (0, 1):
            self.root.refuse(f'{name}="{value}" must be 0 or 1')
        return value == 1

    def _chunks_per_block(self) -> int:
        """nchunksperloop is the larger buffer's chunks; where it is left out, the slots that are used say it."""
        gpus = [child for child in self.root.children if child.tag == "gpu"]
        sizes = [gpu.integer(name, 0, least=0) for gpu in gpus for name in ("i_chunks", "o_chunks")]
        chunks = _limited(self.root, "nchunksperloop", 1, _MAX_CHUNKS, max(sizes, default=0))
        parts = 1 if self.contract.blocks == 1 else self.ranks
        if chunks % parts:
            self.root.refuse(f'nchunksperloop="{chunks}" must be a multiple of ngpus="{self.ranks}" for {self.kind}')
        return chunks // parts

    # --- reading ------------------------------------------------------------------------------------------------

    def _gpus(self) -> list[_Gpu]:
        gpus: dict[int, _Gpu] = {}
        for element in self.root.only("gpu"):
            rank = element.integer("id", least=0)
            if rank >= self.ranks or rank in gpus:
                element.refuse(f'id="{rank}" must be a rank 0..{self.ranks - 1} that occurs once')
            gpus[rank] = self._gpu(element, rank)
        missing = sorted(set(range(self.ranks)) - set(gpus))
        if missing:
            self.root.refuse(f'ngpus="{self.ranks}", but there is no <gpu id="{missing[0]}">')
        return [gpus[rank] for rank in range(self.ranks)]

    def _gpu(self, element: Element, rank: int) -> _Gpu:
        for name, blocks in (("i_chunks", self.contract.input(rank)), ("o_chunks", self.contract.output(rank))):
            chunks = element.integer(name, 0, least=0)
            wanted = len(blocks) * self.per_block
            if chunks > 0 and chunks != wanted and wanted > 0:
                element.refuse(f'{name}="{chunks}" must be {wanted} for {self.kind} (or 0 when it is in place)')
        sizes = {
            Space.input: len(self.contract.input(rank)) * self.per_block,
            Space.output: len(self.contract.output(rank)) * self.per_block,
            Space.scratch: _limited(element, "s_chunks", 0, _MAX_CHUNKS, 0),
        }
        gpu = _Gpu({}, sizes[Space.scratch], [])
        for child in element.only("tb", "copy"):
            if child.tag == "copy":
                dst, src = (
                    (Space.output, child.integer("o_off", least=0)),
                    (Space.input, child.integer("i_off", least=0)),
                )
                for space, offset in (dst, src):
                    _check_slots(child, space, offset, 1, sizes)
                gpu.copies.append((dst, src))
                continue
            number = child.integer("id", least=0)
            if number in gpu.blocks:
                child.refuse(f'id="{number}" occurs twice in <gpu id="{rank}">')
            gpu.blocks[number] = self._block(child, rank, number, sizes)
        _settle_dependencies(element, gpu)
        return gpu

    def _block(self, element: Element, rank: int, number: int, sizes: dict[Space, int]) -> _Block:
        peers = {}
        for name in ("send", "recv"):
            peers[name] = peer = element.integer(name, least=-1)
            if peer >= self.ranks or peer == rank:
                element.refuse(f'{name}="{peer}" must be another rank 0..{self.ranks - 1}, or -1 for none')
        channel = element.integer("chan", least=-1)
        if channel >= 1 << 16:
            element.refuse(f'chan="{channel}" must be below {1 << 16}')
        block = _Block(peers["send"], peers["recv"], max(channel, 0), [])
        for position, child in enumerate(element.only("step", "op")):
            at = child.integer("s" if child.tag == "step" else "step", position)
            if at != position:
                child.refuse(f"is number {at}, but stands at place {position}; steps are numbered 0, 1, .. in order")
            step = _read_step(child, sizes)
            for name, used in (("send", SENDS), ("recv", RECEIVES)):
                if used[step.opcode] and peers[name] < 0:
                    child.refuse(
                        f'type="{child.text("type")}" needs a peer, but its <tb id="{number}"> has {name}="-1"'
                    )
            step.names.append((number, position))
            block.steps.append(step)
        return block

    # --- building -----------------------------------------------------------------------------------------------

    def program(self) -> Program:
        """The Program, at its least FIFO depth."""
        instructions: list[list[int]] = []
        operands: list[Slot] = []
        dependencies: list[Place] = []
        for rank, gpu in enumerate(self.gpus):
            for block in gpu.blocks.values():
                block.steps = _fuse_reductions(_fold_nops(block.steps))
            _order_operands(rank, gpu)
            self._emit(rank, gpu, instructions, operands, dependencies)
        chunks = [(block, 1) for block in range(self.contract.blocks) for _ in range(self.per_block)]
        scratch = _scratch_chunks(self, instructions, operands)
        slots = [
            (rank, space, chunk)
            for rank in range(self.ranks)
            for space, held in (
                (Space.input, self._chunks(self.contract.input(rank))),
                (Space.output, self._chunks(self.contract.output(rank))),
                (Space.scratch, scratch[rank]),
            )
            for chunk in held
        ]
        program = Program(
            name=self.name,
            collective=self.kind,
            root=0,
            ranks=self.ranks,
            chunks=np.asarray(chunks, np.int32),
            slots=np.asarray(slots, np.int32),
            instructions=np.asarray(instructions, np.int32).reshape(-1, 13),
            operands=np.asarray(operands, np.int32).reshape(-1, 2),
            dependencies=np.asarray(dependencies, np.int32).reshape(-1, 2),
            out_of_place=self.out_of_place,
            in_place=self.in_place,
        )
        program = replace(program, fifo_depth=least_fifo_depth(program) or 1)
        return program if check_program(program) else replace(program, rounds_per_hop=self.contract.sums)

    def _chunks(self, blocks: list[int]) -> list[int]:
        return [block * self.per_block + k for block in blocks for k in range(self.per_block)]

    def chunk_of(self, rank: int, slot: Slot) -> int | None:
        """The chunk of an input or output slot; None for scratch."""
        if slot[0] == Space.scratch:
            return None
        blocks = self.contract.input(rank) if slot[0] == Space.input else self.contract.output(rank)
        return blocks[slot[1] // self.per_block] * self.per_block + slot[1] % self.per_block

    def _emit(
        self, rank: int, gpu: _Gpu, instructions: list[list[int]], operands: list[Slot], dependencies: list[Place]
    ) -> None:
        lane = 0
        for position, (dst, src) in enumerate(gpu.copies):
            instructions.append([rank, lane, Opcode.copy, *dst, *src, 1, -1, -1, 0, 0, 0])
            lane += position == len(gpu.copies) - 1
        lanes = [number for number in sorted(gpu.blocks) if gpu.blocks[number].steps]
        places = {
            name: (lane + at, position)
            for at, number in enumerate(lanes)
            for position, step in enumerate(gpu.blocks[number].steps)
            for name in step.names
        }
        for at, number in enumerate(lanes):
            block = gpu.blocks[number]
            for position, step in enumerate(block.steps):
                after = sorted({places[name] for name in step.waits})
                if position == 0 and gpu.copies:
                    after.append((0, len(gpu.copies) - 1))
                instructions.append(
                    [
                        *(rank, lane + at, step.opcode, *(step.dst or (0, 0)), *(step.src or (0, 0)), step.count),
                        block.recv if RECEIVES[step.opcode] else -1,
                        block.send if SENDS[step.opcode] else -1,
                        block.channel if RECEIVES[step.opcode] or SENDS[step.opcode] else 0,
                        *(len(step.operands), len(after)),
                    ]
                )
                operands.extend(step.operands)
                dependencies.extend(after)


def _limited(element: Element, name: str, least: int, most: int, default: int | None = None) -> int:
    """An integer attribute between limits that keep memory in bounds."""
    value = element.integer(name, default, least)
    if value > most:
        element.refuse(f'{name}="{value}" is more than {most}')
    return value


def _read_step(element: Element, sizes: dict[Space, int]) -> _Step:
    kind = element.text("type")
    opcode = STEP_TYPES.get(kind)
    if opcode is None:
        element.refuse(f'type="{kind}" is not known; known are {", ".join(STEP_TYPES)}')
    count = element.integer("cnt", 1, least=0)
    needs_dst, needs_src = bool(HAS_DST[opcode]), bool(HAS_SRC[opcode])
    if opcode != Opcode.nop and count < 1:
        element.refuse(f'cnt="{count}" must be at least 1')
    slots: dict[str, Slot | None] = {"dst": None, "src": None}
    for end, needed in (("dst", needs_dst), ("src", needs_src)):
        if not needed:
            continue
        short = f"{end}buf" not in element.attributes and "buf" in element.attributes
        buffer = element.text("buf" if short else f"{end}buf")
        if buffer not in BUFFERS:
            element.refuse(f'{end}buf="{buffer}" is not i (input), o (output) or s (scratch)')
        offset = element.integer("off" if short else f"{end}off", least=0)
        _check_slots(element, BUFFERS[buffer], offset, count, sizes)
        slots[end] = (BUFFERS[buffer], offset)
    tb, step = element.integer("depid", -1, least=-1), element.integer("deps", -1, least=-1)
    if (tb < 0) != (step < 0):
        element.refuse(f'depid="{tb}" and deps="{step}" must both name a step, or both be -1')
    read = _Step(
        element,
        opcode,
        slots["dst"],
        slots["src"],
        max(count, 1),
        [(tb, step)] if tb >= 0 else [],
        element.integer("hasdep", 0) == 1,
    )
    if opcode == Opcode.reduce:  # dst = dst + src
        assert read.dst is not None
        assert read.src is not None
        read.src, read.operands = read.dst, [read.src]
    return read


def _check_slots(element: Element, space: Space, offset: int, count: int, sizes: dict[Space, int]) -> None:
    if offset + count > sizes[space]:
        buffer = {"input": "i", "output": "o", "scratch": "s"}[space.name]
        element.refuse(f"uses {buffer}[{offset}..{offset + count - 1}], but buffer {buffer} has {sizes[space]} chunks")


def _settle_dependencies(element: Element, gpu: _Gpu) -> None:
    """Replaces each wait by the step that will end it, and marks that step as wanted.

    Waits for earlier steps of the own block are dropped: the block's order says as much.
    """
    for number, block in gpu.blocks.items():
        for position, step in enumerate(block.steps):
            if not step.waits:
                continue
            ((tb, wanted),) = step.waits
            target = gpu.blocks.get(tb)
            if target is None or wanted >= len(target.steps):
                step.element.refuse(f'depid="{tb}" deps="{wanted}" names a step that <{element.tag}> does not have')
            if tb == number:
                if wanted >= position:
                    step.element.refuse(f'deps="{wanted}" of its own <tb> is not before it')
                step.waits = []
                continue
            ends = next((i for i in range(wanted, len(target.steps)) if target.steps[i].announces), None)
            if ends is None:
                raise MscclError(
                    f"{step.element.file}:{step.element.line}: <{step.element.tag}>: it waits forever for step "
                    f'{wanted} of <tb id="{tb}">: no step from there on has hasdep="1"'
                )
            step.waits = [(tb, ends)]
            target.steps[ends].wanted = True


def _fold_nops(steps: list[_Step]) -> list[_Step]:
    """Moves the waits of a `nop` to the step after it, where nobody waits for the nop itself."""
    kept: list[_Step] = []
    waits: list[Place] = []
    for at, step in enumerate(steps):
        step.waits = waits + step.waits
        waits = []
        if step.opcode == Opcode.nop and not step.wanted and at + 1 < len(steps):
            waits = step.waits
        else:
            kept.append(step)
    return kept


def _fuse_reductions(steps: list[_Step]) -> list[_Step]:
    """Joins consecutive additions into one slot, where nothing waits in between."""
    kept: list[_Step] = []
    for step in steps:
        last = kept[-1] if kept else None
        if (
            last is not None
            and step.opcode == last.opcode == Opcode.reduce
            and (step.dst, step.count) == (last.dst, last.count)
            and not step.waits
            and not last.wanted
            and step.dst not in step.operands
        ):
            last.operands += step.operands
            last.names += step.names
            last.wanted = step.wanted
        else:
            kept.append(step)
    return kept


def _order_operands(rank: int, gpu: _Gpu) -> None:
    """Takes the operands of fused reductions in the order of the ranks that they come from, where that is known."""
    origin: dict[Slot, set[int]] = defaultdict(set)
    for block in gpu.blocks.values():
        for step in block.steps:
            if step.opcode == Opcode.recv and step.dst is not None:
                for k in range(step.count):
                    origin[step.dst[0], step.dst[1] + k].add(block.recv)
    for block in gpu.blocks.values():
        for step in block.steps:
            if step.opcode != Opcode.reduce or len(step.operands) < 2 or step.src is None:
                continue
            terms = [step.src, *step.operands]
            origins = [origin.get(term, {rank}) for term in terms]
            keys = [min(found) for found in origins]
            if all(len(found) == 1 for found in origins) and len(set(keys)) == len(keys):
                terms = [term for _, term in sorted(zip(keys, terms, strict=True))]
                step.src, step.operands = terms[0], terms[1:]


def _scratch_chunks(reader: _Reader, instructions: list[list[int]], operands: list[Slot]) -> list[list[int]]:
    """Per rank, the chunk of each scratch slot: that of the data which goes through it.

    Slots that data moves between have equal chunks; the classes of that relation are labelled by the input and output
    slots in them. Where a file mixes chunks up, the most frequent label is taken and the checker names the fault.
    """
    parent: dict[tuple[int, Slot], tuple[int, Slot]] = {}

    def find(slot: tuple[int, Slot]) -> tuple[int, Slot]:
        root = slot
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[slot] != root:
            parent[slot], slot = root, parent[slot]
        return root

    labels: dict[tuple[int, Slot], Counter[int]] = defaultdict(Counter)
    seen: list[tuple[tuple[int, Slot], int]] = []

    def same(a: tuple[int, Slot], b: tuple[int, Slot], count: int) -> None:
        for k in range(count):
            one, other = ((rank, (space, index + k)) for rank, (space, index) in (a, b))
            chunk_one, chunk_other = reader.chunk_of(*one), reader.chunk_of(*other)
            if chunk_one is None and chunk_other is None:
                parent[find(one)] = find(other)
            elif chunk_one is None:
                seen.append((one, chunk_other or 0))
            elif chunk_other is None:
                seen.append((other, chunk_one))

    sent: dict[tuple[int, int, int], list[tuple[tuple[int, Slot], int]]] = defaultdict(list)
    received: dict[tuple[int, int, int], list[tuple[tuple[int, Slot], int]]] = defaultdict(list)
    next_operand = 0
    for rank, _, op, dst_space, dst_index, src_space, src_index, count, recv, send, channel, terms, _ in instructions:
        dst, src = (rank, (Space(dst_space), dst_index)), (rank, (Space(src_space), src_index))
        if HAS_DST[op] and HAS_SRC[op]:
            same(dst, src, count)
        for operand in operands[next_operand : next_operand + terms]:
            same(dst, (rank, operand), count)
        next_operand += terms
        if SENDS[op]:
            sent[rank, send, channel].append((dst if HAS_DST[op] else src, count))
        if RECEIVES[op]:
            received[recv, rank, channel].append((dst if HAS_DST[op] else src, count))
    for connection, messages in sent.items():
        for (a, count_a), (b, count_b) in zip(messages, received[connection], strict=False):
            same(a, b, min(count_a, count_b))
    for slot, label in seen:
        labels[find(slot)][label] += 1

    def chunk(rank: int, index: int) -> int:
        found = labels.get(find((rank, (Space.scratch, index))))
        return found.most_common(1)[0][0] if found else 0

    return [[chunk(rank, index) for index in range(gpu.scratch)] for rank, gpu in enumerate(reader.gpus)]
