"""Reads MSCCL XML, which Microsoft's MSCCL, Azure's msccl-scheduler and AMD's RCCL run, as a Program.

    <algo name ngpus nchunksperloop coll inplace outofplace ..>       the Program
      <gpu id i_chunks o_chunks s_chunks>                             an agent and its slots
        <copy i_off o_off/>                                           a copy before everything else (TACCL, TE-CCL)
        <tb id send recv chan>                                        a lane with one peer per direction
          <step s type srcbuf srcoff dstbuf dstoff cnt depid deps hasdep/>      an instruction

Newer msccl-tools write `<op step ..>` with `buf`/`off` if one end is enough, and leave out default values.

Some things are translated rather than copied:

- `nop` carries a second dependency for the step after it; it becomes a dependency there, unless others wait for it.
- Consecutive `re` into one slot become one n-ary `reduce`, which rounds once. The file does not define the order of
  that sum (its executor's kernels differ); we take the order of the ranks that the operands came from, so that ranks
  that sum the same operands get the same bits.
- `depid`/`deps` waits for a counter that only steps with `hasdep="1"` advance; so it waits for the first such step at
  or after the one named.
- What the file does not contain (the contents of scratch, the depth of FIFOs) is derived (`assembly.py`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from syntony.base.command import UserError
from syntony.base.files.xml_document import Element, read
from syntony.synth.formats.assembly import COLLECTIVES, Assembly, Place, Slot
from syntony.synth.model.blocks import Blocks
from syntony.synth.model.instructions import HAS_DST, HAS_SRC, RECEIVES, SENDS, Opcode, ProgramError, Space
from syntony.synth.model.program import Program

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


class MscclError(UserError):
    """A well-formed file whose program can never work."""


@dataclass
class _Step:
    """A step that becomes an instruction."""

    element: Element
    opcode: Opcode
    dst: Slot | None
    src: Slot | None
    count: int
    waits: list[Place]
    announces: bool
    operands: list[Slot] = field(default_factory=list)
    names: list[Place] = field(default_factory=list)  # the (tb, step) that it represents
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
    """The Program of an MSCCL XML file; XmlError if malformed, MscclError if it can never work."""
    root = read(path)
    try:
        return _Reader(root).program()
    except ProgramError as error:
        raise MscclError(f"{path}: {error}") from None


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
        self.contract = Blocks(kind, self.ranks)
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
        """nchunksperloop: the chunks of the larger buffer. If it is left out, it follows from the slots used."""
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
        scratch = [gpu.scratch for gpu in self.gpus]
        assembly = Assembly(self.name, self.contract, self.per_block, self.in_place, self.out_of_place, scratch)
        for rank, gpu in enumerate(self.gpus):
            for block in gpu.blocks.values():
                block.steps = _fuse_reductions(_fold_nops(block.steps))
            _order_operands(rank, gpu)
            _emit(assembly, rank, gpu)
        return assembly.program()


def _emit(assembly: Assembly, rank: int, gpu: _Gpu) -> None:
    lane = 0
    for position, (dst, src) in enumerate(gpu.copies):
        assembly.add(rank, lane, Opcode.copy, dst=dst, src=src)
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
            assembly.add(
                rank,
                lane + at,
                step.opcode,
                dst=step.dst,
                src=step.src,
                count=step.count,
                recv_peer=block.recv if RECEIVES[step.opcode] else -1,
                send_peer=block.send if SENDS[step.opcode] else -1,
                channel=block.channel if RECEIVES[step.opcode] or SENDS[step.opcode] else 0,
                operands=step.operands,
                after=after,
            )


def _limited(element: Element, name: str, least: int, most: int, default: int | None = None) -> int:
    """An integer attribute between limits that keep memory in bounds."""
    value = element.integer(name, default, least)
    if value > most:
        element.refuse(f'{name}="{value}" is more than {most}')
    return value


def _read_step(element: Element, sizes: dict[Space, int]) -> _Step:
    kind = element.text("type")
    opcode = STEP_TYPES.get(kind)
    if kind == "ra":
        element.refuse('type="ra" adds a residual that no collective has; it is not supported')
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

    Waits for earlier steps of the same block are dropped, since the block's order implies them.
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
    """Moves the waits of a `nop` to the step after it, unless another step waits for the nop."""
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
    """Joins consecutive additions into one slot, if no step waits in between."""
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
    """Orders the operands of fused reductions by the ranks that they come from, if these are known."""
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
