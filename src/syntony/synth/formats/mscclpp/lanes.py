"""Lanes while an MSCCL++ plan is read, and the rules for operations of one thread block.

The threads of a block are not synchronized between two `nop`s (__syncthreads). So without a `nop` in between, an
operation must not touch what another one writes, a signal (release) must not follow data or a wait, and data must not
follow a wait (acquire).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from syntony.synth.formats.assembly import Slot
from syntony.synth.formats.mscclpp.plan import Op, Piece
from syntony.synth.model.instructions import Opcode, Space

Site = tuple[int, Slot]
PACKETS = 1 << 24
"""Scratch indices of packets begin here while an MSCCL++ plan is read; temporary slots begin at twice this."""


@dataclass
class Row:
    opcode: Opcode
    dst: Slot | None = None
    src: Slot | None = None
    count: int = 1
    recv_peer: int = -1
    send_peer: int = -1
    channel: int = 0
    operands: Sequence[Slot] = ()
    after: list[Place] = field(default_factory=list)


@dataclass(eq=False)
class Lane:
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> Place:
        self.rows.append(row)
        return self, len(self.rows) - 1

    def last(self) -> list[Place]:
        """The index of its last row, if there is one."""
        return [(self, len(self.rows) - 1)] if self.rows else []


CLOSING = ("nop", "wait", "rlxwait", "rlxsignal")
DEALT_ALIKE = {
    "packets": ("ppkt", "rppkt", "upkt", "cpkt", "repkt", "respkt", "recpkt", "recspkt"),
    "vectors": ("re", "res", "rre", "rres"),
}

Place = tuple[Lane, int]
Share = tuple[str, int, int] | None
"""The kind of operation, and index and count of the piece, that assign elements to threads; None: unknown."""


@dataclass
class Apart:
    """What the threads of one block did since the last `nop`, in any order.

    Per site, by which kind of operation on which piece: two of one kind on one piece go through it in the same way,
    so that each element has one thread, and are in order.
    """

    reads: dict[Site, Share] = field(default_factory=dict)
    writes: dict[Site, Share] = field(default_factory=dict)
    data: bool = False
    waited: bool = False
    began: bool = False
    """Whether the block has touched data or waited at all."""
    closing: bool = False
    """Whether it is done with data; only waits may follow."""

    def nop(self) -> None:
        self.reads, self.writes, self.data, self.waited = {}, {}, False, False

    def touch(self, op: Op, reads: Iterable[Piece], writes: Iterable[Piece]) -> None:
        """Records an operation on data; refuses it if it is not ordered after what it needs."""
        if self.waited:
            op.refuse("data is touched after a wait without a nop in between: other threads do not wait")
        kind = next((kind for kind, names in DEALT_ALIKE.items() if op.name in names), None)
        read, written = (
            {site: (kind, piece.index, piece.count) if kind else None for piece in pieces for site in sites_of(piece)}
            for pieces in (reads, writes)
        )
        for before, now in ((self.writes, read), (self.writes, written), (self.reads, written)):
            for site in before.keys() & now.keys():
                if before[site] is None or before[site] != now[site]:
                    rank, (space, index) = site
                    op.refuse(
                        f"touches {space.name}[{index}] of rank {rank} in one go with an operation before it; "
                        "a nop must stand between"
                    )
        self.reads |= read
        self.writes |= written
        self.data = self.began = True


def slot_of(piece: Piece) -> Slot:
    return piece.space, piece.index


def packet_of(piece: Piece) -> Slot:
    return piece.space, piece.index + PACKETS


def sites_of(piece: Piece) -> list[Site]:
    return [(piece.rank, (piece.space, piece.index + k)) for k in range(piece.count)]


def same_size(op: Op, pieces: Sequence[Piece]) -> None:
    if len({piece.count for piece in pieces}) > 1:
        op.refuse("moves pieces of different sizes; they must be equal")


def local(op: Op, rank: int, pieces: Iterable[Piece]) -> None:
    if any(piece.rank != rank or piece.group for piece in pieces):
        op.refuse("takes a remote buffer where it needs one of its own rank")


def remote(op: Op, rank: int, pieces: Iterable[Piece]) -> None:
    if any(piece.rank == rank for piece in pieces):
        op.refuse("takes a buffer of its own rank where it needs a remote one")


def in_scratch(op: Op, pieces: Iterable[Piece]) -> None:
    if any(piece.space != Space.scratch for piece in pieces):
        op.refuse("keeps packets outside of scratch; packets live in scratch")
