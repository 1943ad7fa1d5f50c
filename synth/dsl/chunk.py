"""Chunk: a value that lies at a rank, and the verbs that move it.

    x = a.input(rank=0)         what rank 0 starts with
    y = x.copy(to=1)            the same at rank 1
    z = y.reduce(to=2)          with rank 2's own contribution added, at rank 2
    w = z.add(u, v)             z + u + v where z is, rounded once

Each verb returns the new chunk; the old one stays good until something is written over it. Where nothing is said
(`into`), a whole result goes to the output of the rank that wants it, everything else to new scratch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from synth.counted import counted
from synth.dsl.lines import refused
from synth.program import Opcode, Space

if TYPE_CHECKING:
    from synth.dsl.recording import Recording
    from synth.optimize.tape import Slot


class Chunk:
    """One or more chunks at one rank, as they were when this was made. Made by a Recording and by the verbs."""

    def __init__(self, recording: Recording, rank: int, slots: tuple[Slot, ...]) -> None:
        held = [recording.held[rank][slot] for slot in slots]
        self.recording = recording
        self.rank = rank
        self.slots = slots
        self.versions = tuple(one.version for one in held)
        self.chunk_ids = tuple(one.chunk for one in held)
        self.contributions = tuple(one.ranks for one in held)
        """Per chunk, whose contributions are in it (bits)."""

    def __len__(self) -> int:
        return len(self.slots)

    def __str__(self) -> str:
        space, first = self.slots[0]
        last = f"..{self.slots[-1][1]}" if len(self) > 1 else ""
        return f"{Space(space).name}[{first}{last}] of rank {self.rank}"

    def split(self, parts: int) -> list[Chunk]:
        """The same chunks as `parts` ranges of equal length, where they are."""
        self.recording.check_there(self)
        length, rest = divmod(len(self), parts) if parts > 0 else (0, 1)
        if rest or not length:
            raise refused(f"{self} cannot be split into {parts} equal parts; it has {counted(len(self), 'chunk')}")
        return [Chunk(self.recording, self.rank, self.slots[at : at + length]) for at in range(0, len(self), length)]

    def copy(self, to: int | None = None, into: Chunk | None = None, lane: int = 0) -> Chunk:
        """Copies it to rank `to` (default: where `into` is, or here). Messages of one lane keep their order."""
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
        """Sends it to rank `to` and adds what that rank itself contributes."""
        self.recording.check_there(self)
        own = self.recording.own(self.recording.check_rank(to), self)
        return own.add(self, into=into, lane=lane)

    def add(self, *others: Chunk, into: Chunk | None = None, lane: int = 0) -> Chunk:
        """This chunk + the others, in this order and rounded once, where this chunk is; others are sent there."""
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
        """Per chunk whose contributions the sum has; refuses what must not be summed."""
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
