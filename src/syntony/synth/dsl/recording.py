"""Recording: records what a hand-written algorithm does, step by step, while its function runs.

The function gets a Recording, names places in it, and moves what they hold:

    rank 0  input [0 1 2 3]   output [. . . .]   scratch [..]      a.input(rank=0, chunk=2)   a chunk that is there
    rank 1  input [0 1 2 3]   output [. . . .]   scratch [..]      a.output(rank=1, chunk=2)  where one belongs

For every slot the Recording knows which contributions it holds and which line put them there. So an error is reported
at the line that causes it; an error visible only at the end (incomplete outputs) at the line that last wrote there.

A Chunk is a value at a rank, with methods that move it:

    x = a.input(rank=0)         what rank 0 starts with
    y = x.copy(to=1)            the same at rank 1
    z = y.reduce(to=2)          with rank 2's own contribution added, at rank 2
    w = z.add(u, v)             z + u + v where z is, rounded once

Each method returns the new chunk; the old one stays valid until something overwrites it. Without `into`, a whole result
goes to the output of the rank that wants it, everything else to new scratch.

Chunks and instances. A block is cut into `instances` equal parts, and a part into `chunks`. The function runs once per
instance, sees only that part and has separate lanes (MSCCLang's `instances`: Cowan et al., "MSCCLang: Microsoft
Collective Communication Language", ASPLOS 2023, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syntony.base.wording import counted
from syntony.synth.dsl.lines import DslError, here, refused
from syntony.synth.dsl.stages import in_stages
from syntony.synth.lowering.passes.tape import Slot, Step, Tape
from syntony.synth.model.collective import Collective
from syntony.synth.model.instructions import MAX_CHANNELS, Opcode, Space

Ends = tuple[str, int, int]
"""The use of a rank's lane: (`send` | `recv` | `local`, peer, the user's lane)."""


@dataclass
class Held:
    """The contents of a slot: contributions of these ranks (bits), the line that wrote it, and the number of writes."""

    chunk: int
    ranks: int = 0
    version: int = 0
    line: str = ""


class Recording:
    """Passed to the algorithm's function, which reads `ranks`, `chunks`, `root`, and gets chunks with `input`."""

    def __init__(self, collective: Collective, chunks: int, instances: int) -> None:
        self.collective = collective
        self.ranks = collective.ranks
        self.root = collective.root
        self.chunks = chunks
        """Chunks per block that the function sees."""
        self.instances = instances
        self.instance = 0
        self.closed = False
        """Whether the function has ended; its chunks can no longer move."""
        self.steps: list[Step] = []
        self.lines: list[str] = []
        """The line that recorded each step."""
        self.held: list[dict[Slot, Held]] = [{} for _ in range(self.ranks)]
        self.scratch_chunks: list[list[int]] = [[] for _ in range(self.ranks)]
        self._lanes: list[dict[Ends, int]] = [{} for _ in range(self.ranks)]
        self._slot_of: list[dict[tuple[int, int], Slot]] = [{} for _ in range(self.ranks)]  # (space, chunk) ->
        self._lay_out()

    def _lay_out(self) -> None:
        size = [0] * (2 * self.ranks)
        self._whole: list[int] = []
        for chunk in range(len(self.collective.chunks)):
            starts, ends = self.collective.pre(chunk), self.collective.post(chunk)
            self._whole.append(sum(1 << rank for rank in starts))
            for space, members in ((Space.input, starts), (Space.output, ends)):
                for rank in members:
                    slot = (int(space), size[2 * rank + space])
                    size[2 * rank + space] += 1
                    self._slot_of[rank][space, chunk] = slot
                    own = 1 << rank if space == Space.input else 0
                    self.held[rank][slot] = Held(chunk, own, line="the start")
        self._size = size

    # --- places ---------------------------------------------------------------------------------------------------

    def input(self, rank: int, block: int = 0, chunk: int | None = None, count: int | None = None) -> Chunk:
        """The initial data of `rank`: `count` chunks of the `block`-th block of its input, from `chunk` on.

        Without `chunk`, the whole block; with it, `count` is 1 by default. A range may extend into the next block.
        """
        return self._place(Space.input, rank, block, chunk, count)

    def output(self, rank: int, block: int = 0, chunk: int | None = None, count: int | None = None) -> Chunk:
        """Places in the output of `rank`, named as in `input`: as a destination, or for what they hold by now."""
        return self._place(Space.output, rank, block, chunk, count)

    def scratch(self, like: Chunk, rank: int | None = None) -> Chunk:
        """New scratch places, as large as `like`, at `rank` (default: where `like` is)."""
        self.check_mine(like)
        at = like.rank if rank is None else self.check_rank(rank)
        return Chunk(self, at, tuple(self._new_scratch(at, chunk) for chunk in like.chunk_ids))

    def _place(self, space: Space, rank: int, block: int, chunk: int | None, count: int | None) -> Chunk:
        self.check_rank(rank)
        blocks = self._size[2 * rank + space] // (self.chunks * self.instances)
        kind = self.collective.kind
        if not blocks:
            raise refused(f"rank {rank} has no {space.name} in a {kind} with root {self.root}")
        if not 0 <= block < blocks:
            raise refused(f"the {space.name} of rank {rank} has no block {block}; it has {counted(blocks, 'block')}")
        first = 0 if chunk is None else chunk
        count = count if count is not None else self.chunks if chunk is None else 1
        last = block * self.chunks + first + count
        if count < 1 or not 0 <= first < self.chunks or last > blocks * self.chunks:
            asked = f"chunk {first}" if count == 1 else f"{counted(count, 'chunk')} from chunk {first}"
            raise refused(
                f"block {block} of the {space.name} of rank {rank} does not have {asked}; "
                f"a block has {counted(self.chunks, 'chunk')}"
            )
        seen = range(block * self.chunks + first, last)
        return Chunk(self, rank, tuple((int(space), self._index(position)) for position in seen))

    def _index(self, position: int) -> int:
        """The position in the buffer of the position-th chunk that this instance sees."""
        block, chunk = divmod(position, self.chunks)
        return (block * self.instances + self.instance) * self.chunks + chunk

    def own(self, rank: int, like: Chunk) -> Chunk:
        """The contribution of `rank` itself to the chunks of `like`."""
        slots = [self._slot_of[rank].get((Space.input, chunk)) for chunk in like.chunk_ids]
        found = tuple(slot for slot in slots if slot is not None)
        if len(found) < len(slots):
            raise refused(f"rank {rank} does not start with chunk {like.chunk_ids[slots.index(None)]}")
        return Chunk(self, rank, found)

    def place_for(self, rank: int, chunk: int, ranks: int) -> Slot:
        """Where a rank stores what arrives: its output if whole, wanted and not yet there; otherwise new scratch."""
        slot = self._slot_of[rank].get((Space.output, chunk))
        if slot is not None and ranks == self._whole[chunk] != self.held[rank][slot].ranks:
            return slot
        return self._new_scratch(rank, chunk)

    def _new_scratch(self, rank: int, chunk: int) -> Slot:
        slot = (int(Space.scratch), len(self.scratch_chunks[rank]))
        self.scratch_chunks[rank].append(chunk)
        self.held[rank][slot] = Held(chunk)
        return slot

    # --- what is refused --------------------------------------------------------------------------------------------

    def check_rank(self, rank: int) -> int:
        """The rank, if it exists."""
        if not isinstance(rank, int) or not 0 <= rank < self.ranks:
            raise refused(f"there is no rank {rank!r}; ranks are 0..{self.ranks - 1}")
        return rank

    def check_lane(self, lane: int) -> int:
        """The lane, as a channel of this instance."""
        most = MAX_CHANNELS // self.instances
        if not isinstance(lane, int) or not 0 <= lane < most:
            raise refused(f"there is no lane {lane!r}; lanes are 0..{most - 1}")
        return lane * self.instances + self.instance

    def check_mine(self, chunk: object) -> None:
        """Rejects objects that are not chunks, and chunks of another run."""
        if not isinstance(chunk, Chunk):
            raise refused(f"{chunk!r} is not a chunk; take one with input(..), or keep what copy(..) returned")
        if chunk.recording is not self or self.closed:
            raise refused(f"{chunk} belongs to another algorithm, or to another run of this one")

    def check_there(self, chunk: Chunk) -> None:
        """Rejects a chunk that is not (or no longer) where it was."""
        self.check_mine(chunk)
        for slot, version in zip(chunk.slots, chunk.versions, strict=True):
            held = self.held[chunk.rank][slot]
            if held.version != version:
                raise refused(f"{chunk} is gone: {held.line} put something else there; use what that line returned")
            if not held.ranks:
                raise refused(f"{chunk} holds nothing yet")

    def check_into(self, into: Chunk, chunk_ids: Sequence[int], rank: int) -> None:
        """Rejects a destination that cannot take these chunks."""
        self.check_mine(into)
        if into.rank != rank:
            raise refused(f"{into} is not at rank {rank}")
        if into.slots[0][0] == Space.input:
            raise refused(f"{into} belongs to the caller; write output(..) or scratch(..)")
        if into.chunk_ids != tuple(chunk_ids):
            raise refused(f"{into} is for chunk {into.chunk_ids}, not for chunk {tuple(chunk_ids)}")

    # --- steps ----------------------------------------------------------------------------------------------------

    def write(self, rank: int, slots: Sequence[Slot], ranks: Sequence[int]) -> Chunk:
        """Records that the slots now hold these contributions, written by the current line."""
        line = here()
        for slot, contributions in zip(slots, ranks, strict=True):
            held = self.held[rank][slot]
            held.ranks, held.version, held.line = contributions, held.version + 1, line
        return Chunk(self, rank, tuple(slots))

    def local(self, rank: int, lane: int, opcode: Opcode, dst: Sequence[Slot], terms: Sequence[Sequence[Slot]]) -> None:
        """A copy or a reduce of several sources, in runs of adjacent slots."""
        for first, count in _runs(dst, *terms):
            src, *operands = (term[first] for term in terms)
            ends = ("local", 0, lane)
            self._step(rank, ends, opcode, dst=dst[first], src=src, operands=tuple(operands), count=count)

    def message(
        self, chunk: Chunk, to: int, lane: int, dst: Sequence[Slot], operand: Sequence[Slot] | None = None
    ) -> None:
        """Messages from a chunk into slots of another rank, summed with `operand` there; one per run of slots."""
        for first, count in _runs(chunk.slots, dst, operand or dst):
            send, recv = ("send", to, lane), ("recv", chunk.rank, lane)
            opcode = Opcode.recv if operand is None else Opcode.recv_reduce
            src = None if operand is None else operand[first]
            self._step(chunk.rank, send, Opcode.send, src=chunk.slots[first], count=count, send_peer=to, channel=lane)
            self._step(to, recv, opcode, dst=dst[first], src=src, count=count, recv_peer=chunk.rank, channel=lane)

    def _step(
        self,
        rank: int,
        ends: Ends,
        opcode: Opcode,
        *,
        dst: Slot | None = None,
        src: Slot | None = None,
        operands: tuple[Slot, ...] = (),
        count: int = 1,
        recv_peer: int = -1,
        send_peer: int = -1,
        channel: int = 0,
    ) -> None:
        lane = self._lanes[rank].setdefault(ends, len(self._lanes[rank]))
        self.steps.append(Step(rank, lane, opcode, dst, src, operands, count, recv_peer, send_peer, channel))
        self.lines.append(here())

    # --- the end --------------------------------------------------------------------------------------------------

    def tape(self, name: str, defined: str) -> Tape:
        """The recorded steps; DslError if an output is incomplete. `defined` is the line of the algorithm."""
        unwritten: list[str] = []
        for rank, slots in enumerate(self.held):
            for slot, held in sorted(slots.items()):
                if slot[0] == Space.output:
                    self._check_output(rank, slot, held, unwritten)
        if unwritten:
            more = f" (nor {len(unwritten) - 1} more)" if len(unwritten) > 1 else ""
            raise refused(f"{name} never writes {unwritten[0]}{more}", defined)
        order = in_stages(self.steps, self._alias)
        self.steps, self.lines = [self.steps[at] for at in order], [self.lines[at] for at in order]
        table = self.collective.chunks
        chunks = tuple((int(b), int(w)) for b, w in zip(table.block, table.weight, strict=True))
        scratch = tuple(map(tuple, self.scratch_chunks))
        return Tape(
            f"{name} {self.collective.kind}",
            self.collective.kind,
            self.root,
            self.ranks,
            chunks,
            scratch,
            tuple(self.steps),
        )

    def _check_output(self, rank: int, slot: Slot, held: Held, unwritten: list[str]) -> None:
        where = f"output chunk {slot[1]} of rank {rank}"
        if not held.ranks:
            unwritten.append(where)
        elif held.ranks != self._whole[held.chunk]:
            missing = bits(self._whole[held.chunk] & ~held.ranks)
            raise refused(f"{where} ends without what {_ranks(missing)} contributed", held.line)

    def error_at(self, rank: int | None, lane: int | None, position: int | None, fault: str) -> DslError:
        """The error for a fault of the finished Program, at the line that recorded the instruction."""
        lanes: dict[tuple[int, int], int] = {}  # the Program numbers a rank's lanes in order of appearance
        at = -1
        for step, line in zip(self.steps, self.lines, strict=True):
            number = lanes.setdefault((step.rank, step.lane), sum(of == step.rank for of, _ in lanes))
            at += (step.rank, number) == (rank, lane)
            if at == position and (step.rank, number) == (rank, lane):
                return refused(fault, line)
        return refused(fault)

    def _alias(self, rank: int, slot: Slot) -> Slot:
        """The slot that represents the memory: in place, an input is the output of its chunk."""
        return self._slot_of[rank].get((Space.output, self.held[rank][slot].chunk), slot) if slot[0] == 0 else slot


class Chunk:
    """One or more chunks at one rank, as they were when this was made, by a Recording or by the methods below."""

    def __init__(self, recording: Recording, rank: int, slots: tuple[Slot, ...]) -> None:
        held = [recording.held[rank][slot] for slot in slots]
        self.recording = recording
        self.rank = rank
        self.slots = slots
        self.versions = tuple(one.version for one in held)
        self.chunk_ids = tuple(one.chunk for one in held)
        self.contributions = tuple(one.ranks for one in held)
        """Per chunk, the contributions that it contains (bits)."""

    def __len__(self) -> int:
        return len(self.slots)

    def __str__(self) -> str:
        space, first = self.slots[0]
        last = f"..{self.slots[-1][1]}" if len(self) > 1 else ""
        return f"{Space(space).name}[{first}{last}] of rank {self.rank}"

    def split(self, parts: int) -> list[Chunk]:
        """Splits the chunks into `parts` ranges of equal length, without moving them."""
        self.recording.check_there(self)
        length, rest = divmod(len(self), parts) if parts > 0 else (0, 1)
        if rest or not length:
            raise refused(f"{self} cannot be split into {parts} equal parts; it has {counted(len(self), 'chunk')}")
        return [Chunk(self.recording, self.rank, self.slots[at : at + length]) for at in range(0, len(self), length)]

    def copy(self, to: int | None = None, into: Chunk | None = None, lane: int = 0) -> Chunk:
        """Copies it to rank `to` (default: the rank of `into`, or this one). Messages of one lane keep their order."""
        log = self.recording
        log.check_there(self)
        rank = log.check_rank(to) if to is not None else into.rank if isinstance(into, Chunk) else self.rank
        channel = log.check_lane(lane)
        dst = self._destination(rank, into, self.contributions)
        if rank == self.rank:
            if set(dst) & set(self.slots):
                raise refused(f"{self} is there already")
            log.local(rank, channel, Opcode.copy, dst, [self.slots])
        else:
            log.message(self, rank, channel, dst)
        return log.write(rank, dst, self.contributions)

    def reduce(self, to: int, into: Chunk | None = None, lane: int = 0) -> Chunk:
        """Sends it to rank `to` and adds that rank's own contribution."""
        self.recording.check_there(self)
        own = self.recording.own(self.recording.check_rank(to), self)
        return own.add(self, into=into, lane=lane)

    def add(self, *others: Chunk, into: Chunk | None = None, lane: int = 0) -> Chunk:
        """This chunk + the others, in this order and rounded once, at this chunk's rank; the others are sent there."""
        log = self.recording
        if not others:
            raise refused("add needs something to add")
        for term in (self, *others):
            log.check_there(term)
        channel = log.check_lane(lane)
        total = self._sums(others)
        dst = self._destination(self.rank, into, total)
        far = [other for other in others if other.rank != self.rank]
        if len(others) == len(far) == 1:
            log.message(others[0], self.rank, channel, dst, self.slots)
            return log.write(self.rank, dst, total)
        near = [other if other.rank == self.rank else other._kept(self.rank, channel) for other in others]
        log.local(self.rank, channel, Opcode.reduce, dst, [term.slots for term in (self, *near)])
        return log.write(self.rank, dst, total)

    def _kept(self, rank: int, channel: int) -> Chunk:
        """A copy in new scratch of another rank."""
        place = self.recording.scratch(self, rank)
        self.recording.message(self, rank, channel, place.slots)
        return self.recording.write(rank, place.slots, self.contributions)

    def _sums(self, others: tuple[Chunk, ...]) -> tuple[int, ...]:
        """Per chunk, the contributions in the sum; rejects invalid sums."""
        kind = self.recording.collective.kind
        if not self.recording.collective.combining:
            raise refused(f"{kind} sums nothing; copy instead")
        total = list(self.contributions)
        for other in others:
            if other.chunk_ids != self.chunk_ids:
                raise refused(f"{other} is chunk {other.chunk_ids}, {self} is chunk {self.chunk_ids}; only equals add")
            for k, ranks in enumerate(other.contributions):
                twice = total[k] & ranks
                if twice:
                    rank = (twice & -twice).bit_length() - 1
                    raise refused(f"{other} and {self} both have the contribution of rank {rank}; it would count twice")
                total[k] |= ranks
        return tuple(total)

    def _destination(self, rank: int, into: Chunk | None, contributions: tuple[int, ...]) -> tuple[Slot, ...]:
        log = self.recording
        if into is None:
            pairs = zip(self.chunk_ids, contributions, strict=True)
            return tuple(log.place_for(rank, chunk, ranks) for chunk, ranks in pairs)
        log.check_into(into, self.chunk_ids, rank)
        return into.slots


def bits(mask: int) -> list[int]:
    """The ranks whose bits are set."""
    return [rank for rank in range(mask.bit_length()) if mask >> rank & 1]


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _runs(*rows: Sequence[Slot]) -> list[tuple[int, int]]:
    """(first, count) of the runs in which the slots of every row are adjacent."""
    runs: list[tuple[int, int]] = []
    for at in range(len(rows[0])):
        follows = at > 0 and all(row[at] == (row[at - 1][0], row[at - 1][1] + 1) for row in rows)
        runs[-1:] = [(runs[-1][0], runs[-1][1] + 1)] if follows else [*runs[-1:], (at, 1)]
    return runs
