"""MSCCL++ execution plans as Programs: what the operations do, in Program v1's instructions.

    copy                        copy
    put, get                    peer_write, peer_read
    re, res                     reduce, and peer_write of the result
    rre, rres                   peer_read into temporary scratch, reduce, and peer_write of the result
    glres                       the same with all ranks of a switch's group, summed in the order of the ranks
    signal, wait, rlx*          signal, wait
    ppkt, rppkt, *spkt          packets carry flags, so that who reads them waits: send, and a lane that receives
    upkt, cpkt, re(c)pkt        copy and reduce, after the packets that they read
    put, pws, signal on ports   the proxy does them when it gets there: a lane of its own; flush waits for that lane
    barrier, sem_*              nop with dependencies
    nop                         __syncthreads: nothing here, but what needs one and has none is refused
    pipeline                    its operations once: its rounds are the slices of a Program

Threads of a block run apart between two `nop`s: an operation that touches what another one since the last `nop` writes
is refused, as is a signal (release, barrier) after data, or data after a wait (acquire), without a `nop` in between.
A packet's flag is one per launch, so packets written twice to one place are refused too. Relaxed signals order no data:
they are taken where there is none to order, before a thread block's first operation and after its last. What a Program
cannot say (gstore, gstorepkt) is refused by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from synth.formats.assembly import Assembly, Slot
from synth.formats.mscclpp_plan import SCRATCH_BYTES, Op, Piece, Plan, plan_from_dict
from synth.program import Opcode, Program, Space

_Site = tuple[int, Slot]
_PACKETS = 1 << 24
"""Scratch indices of packets begin here while a plan is read; temporary slots begin at twice this."""


def read_mscclpp(data: object, where: str) -> Program:
    """The Program of a parsed execution plan; FileError when it is malformed or says what a Program cannot."""
    return _Translator(plan_from_dict(data, where)).program()


@dataclass
class _Row:
    opcode: Opcode
    dst: Slot | None = None
    src: Slot | None = None
    count: int = 1
    recv_peer: int = -1
    send_peer: int = -1
    channel: int = 0
    operands: Sequence[Slot] = ()
    after: list[_Place] = field(default_factory=list)


@dataclass(eq=False)
class _Lane:
    rows: list[_Row] = field(default_factory=list)

    def add(self, row: _Row) -> _Place:
        self.rows.append(row)
        return self, len(self.rows) - 1

    def last(self) -> list[_Place]:
        """The place of its last row, where there is one."""
        return [(self, len(self.rows) - 1)] if self.rows else []


_CLOSING = ("nop", "wait", "rlxwait", "rlxsignal")
_DEALT_ALIKE = {
    "packets": ("ppkt", "rppkt", "upkt", "cpkt", "repkt", "respkt", "recpkt", "recspkt"),
    "vectors": ("re", "res", "rre", "rres"),
}

_Place = tuple[_Lane, int]
_Share = tuple[str, int, int] | None
"""The kind of operation, and index and count of the piece, that deal elements to threads; None: nobody knows."""


class _Orders(Enum):
    """What a signal orders, of what its thread block did before: `nothing` where there is nothing to order."""

    data = 0
    nothing = 1
    too_little = 2


@dataclass
class _Apart:
    """What the threads of one block did since the last `nop`, in any order.

    Per site, by which kind of operation on which piece: two of one kind on one piece go through it in the same way,
    so that each element has one thread, and are in order.
    """

    reads: dict[_Site, _Share] = field(default_factory=dict)
    writes: dict[_Site, _Share] = field(default_factory=dict)
    data: bool = False
    waited: bool = False
    began: bool = False
    """Whether the block has touched data or waited at all."""
    closing: bool = False
    """Whether it will not any more, but for waits."""

    def nop(self) -> None:
        self.reads, self.writes, self.data, self.waited = {}, {}, False, False


class _Translator:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lanes: list[list[_Lane]] = [[] for _ in plan.gpus]
        self.temporary = [2 * _PACKETS] * len(plan.gpus)
        self.ports: dict[tuple[int, int, int], tuple[_Lane, int]] = {}  # (rank, peer, number) -> lane, thread block
        self.flagged: dict[_Site, _Place] = {}  # packet slot -> who fills it
        self.packet_lanes: dict[tuple[int, int, int], tuple[_Lane, int]] = {}  # (rank, block, peer) -> lane, channel
        self.packet_reads: list[tuple[Op, _Row, list[_Site]]] = []
        self.releases: dict[tuple[int, int], list[tuple[int, list[_Place]]]] = defaultdict(list)
        self.acquires: dict[tuple[int, int], list[tuple[int, Op, _Row]]] = defaultdict(list)
        self.barriers: dict[tuple[int, int], dict[int, list[tuple[Op, _Place, _Row]]]] = defaultdict(dict)
        # Per connection, message after message: what the signal orders; whether what the wait sees matters.
        self.signals: dict[tuple[int, int, int], list[_Orders]] = defaultdict(list)
        self.waits: dict[tuple[int, int, int], list[tuple[Op, bool]]] = defaultdict(list)
        self.wires = defaultdict[tuple[int, int], int](int)  # (rank, peer) -> channels in use between them
        for rank, gpu in enumerate(plan.gpus):
            for block in gpu.blocks:
                for op in block:
                    for channel in op.channels:
                        pair = (min(rank, channel.peer), max(rank, channel.peer))
                        self.wires[pair] = max(self.wires[pair], 2 * channel.number + channel.port + 1)

    # --- walking ------------------------------------------------------------------------------------------------

    def program(self) -> Program:
        """The Program; FileError for what it cannot say."""
        units = {op.unit for gpu in self.plan.gpus for block in gpu.blocks for op in block if op.name != "nop"}
        if len(units) > 1:
            op = next(op for gpu in self.plan.gpus for block in gpu.blocks for op in block if op.unit)
            op.refuse("only some thread blocks are pipelines, or of different unit_size; they must all be alike")
        for rank, gpu in enumerate(self.plan.gpus):
            for number, block in enumerate(gpu.blocks):
                lane, apart = _Lane(), _Apart()
                self.lanes[rank].append(lane)
                last = max((at for at, op in enumerate(block) if op.name not in _CLOSING), default=-1)
                for at, op in enumerate(block):
                    apart.closing = at > last
                    self._operation(rank, number, lane, apart, op)
        self._settle_packets()
        self._settle_semaphores()
        self._settle_barriers()
        self._settle_relaxed()
        return self._assemble()

    def _operation(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        if op.name == "nop":
            apart.nop()
            return
        act = _OPERATIONS.get(op.name)
        if act is None:
            known = ", ".join(sorted((*_OPERATIONS, "nop", "pipeline")))
            op.refuse(f'"{op.name}" has no meaning in a Program; known are {known}')
        act(self, rank, block, lane, apart, op)

    # --- data ---------------------------------------------------------------------------------------------------

    def _touch(self, apart: _Apart, op: Op, reads: Iterable[Piece], writes: Iterable[Piece]) -> None:
        """Data: refused where it runs apart from what it needs."""
        if apart.waited:
            op.refuse("data is touched after a wait without a nop in between: other threads do not wait")
        kind = next((kind for kind, names in _DEALT_ALIKE.items() if op.name in names), None)
        read, written = (
            {site: (kind, piece.index, piece.count) if kind else None for piece in pieces for site in _sites(piece)}
            for pieces in (reads, writes)
        )
        for before, now in ((apart.writes, read), (apart.writes, written), (apart.reads, written)):
            for site in before.keys() & now.keys():
                if before[site] is None or before[site] != now[site]:
                    rank, (space, index) = site
                    op.refuse(
                        f"touches {space.name}[{index}] of rank {rank} in one go with an operation before it; "
                        "a nop must stand between"
                    )
        apart.reads |= read
        apart.writes |= written
        apart.data = apart.began = True

    def _pairs(self, op: Op) -> list[tuple[Piece, Piece]]:
        if not op.src or len(op.src) != len(op.dst):
            op.refuse(f"has {len(op.src)} sources and {len(op.dst)} destinations; they must be as many, at least one")
        for src, dst in zip(op.src, op.dst, strict=True):
            _same_size(op, (src, dst))
        return list(zip(op.src, op.dst, strict=True))

    def _copy(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        pairs = self._pairs(op)
        if len(pairs) > 1:
            op.refuse("moves several pieces, and its runtime takes the first only; it must be one")
        _local(op, rank, (*op.src, *op.dst))
        self._touch(apart, op, op.src, op.dst)
        src, dst = pairs[0]
        lane.add(_Row(Opcode.copy, _slot(dst), _slot(src), src.count))

    def _put(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        pairs = self._pairs(op)
        _local(op, rank, op.src)
        _remote(op, rank, op.dst)
        self._touch(apart, op, op.src, op.dst)
        ports = [channel for channel in op.channels if channel.port]
        if op.name != "put" and len(ports) != len(pairs):
            op.refuse("signals with the data, which only port channels do, one per piece; use put and signal")
        if not ports:
            for src, dst in pairs:
                lane.add(_Row(Opcode.peer_write, _slot(dst), _slot(src), src.count, send_peer=dst.rank))
            return
        if len(ports) != len(pairs):
            op.refuse(f"has {len(pairs)} pieces and {len(ports)} port channels; they must be as many")
        for (src, dst), channel in zip(pairs, ports, strict=True):
            if dst.rank != channel.peer:
                op.refuse(f"writes to rank {dst.rank} through a channel to rank {channel.peer}")
            port = self._port(rank, block, op, channel.peer, channel.number)
            port.add(_Row(Opcode.peer_write, _slot(dst), _slot(src), src.count, send_peer=dst.rank, after=lane.last()))
            if op.name != "put":
                self._send_signal(port, rank, channel.peer, 2 * channel.number + 1, _Orders.data, [])
        if op.name == "pwsf":
            self._flush(rank, block, lane, apart, op)

    def _get(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        pairs = self._pairs(op)
        _local(op, rank, op.dst)
        _remote(op, rank, op.src)
        self._touch(apart, op, op.src, op.dst)
        for src, dst in pairs:
            lane.add(_Row(Opcode.peer_read, _slot(dst), _slot(src), src.count, send_peer=src.rank))

    def _reduce(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        """re, res, rre, rres: src[0] and dst[0] are here; further sources are remote in rr*; further dsts always."""
        if not op.src or not op.dst:
            op.refuse("needs a source and a destination")
        _same_size(op, (*op.src, *op.dst))
        _local(op, rank, (op.src[0], op.dst[0]))
        if op.name in ("re", "rre") and len(op.dst) > 1:
            op.refuse(f"has {len(op.dst)} destinations, and stores one")
        _remote(op, rank, op.dst[1:])
        reads = op.name.startswith("rr")
        (_remote if reads else _local)(op, rank, op.src[1:])
        self._touch(apart, op, op.src, op.dst)
        terms = [_slot(op.src[0])]
        for piece in op.src[1:]:
            terms.append(self._fetch(rank, lane, piece, piece.rank) if reads else _slot(piece))
        self._sum(lane, _slot(op.dst[0]), terms, op.dst[0].count)
        for piece in op.dst[1:]:
            lane.add(_Row(Opcode.peer_write, _slot(piece), _slot(op.dst[0]), piece.count, send_peer=piece.rank))

    def _load_reduce_store(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        ((src, dst),) = self._pairs(op)[:1]
        if len(op.src) != 1 or not src.group or src.group != dst.group:
            op.refuse("must have one source and one destination, of one switch channel")
        everywhere = [Piece(peer, end.space, end.index, end.count) for end in (src, dst) for peer in src.group]
        self._touch(apart, op, everywhere[: len(src.group)], everywhere[len(src.group) :])
        terms = [_slot(src) if peer == rank else self._fetch(rank, lane, src, peer) for peer in sorted(src.group)]
        total = self._scratch(rank, src.count)
        self._sum(lane, total, terms, src.count)
        for peer in sorted(dst.group):
            if peer == rank:
                lane.add(_Row(Opcode.copy, _slot(dst), total, dst.count))
            else:
                lane.add(_Row(Opcode.peer_write, _slot(dst), total, dst.count, send_peer=peer))

    def _scratch(self, rank: int, count: int) -> Slot:
        first = self.temporary[rank]
        self.temporary[rank] += count
        return Space.scratch, first

    def _fetch(self, rank: int, lane: _Lane, piece: Piece, peer: int) -> Slot:
        """A peer's piece, read into temporary scratch."""
        slot = self._scratch(rank, piece.count)
        lane.add(_Row(Opcode.peer_read, slot, _slot(piece), piece.count, send_peer=peer))
        return slot

    def _sum(self, lane: _Lane, dst: Slot, terms: Sequence[Slot], count: int) -> _Row:
        opcode = Opcode.reduce if len(terms) > 1 else Opcode.copy
        row = _Row(opcode, dst, terms[0], count, operands=terms[1:])
        lane.add(row)
        return row

    # --- packets ------------------------------------------------------------------------------------------------

    def _packets(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        """All operations on packets: which pieces are packets, and whether there is a sum, follows from the name."""
        if not self.plan.packets:
            op.refuse('moves packets, yet the protocol is "Simple"; it must be "LL"')
        if not op.src or not op.dst:
            op.refuse("needs a source and a destination")
        _same_size(op, (*op.src, *op.dst))
        if op.name == "ppkt":
            self._put_packets(rank, block, lane, apart, op)
            return
        sums = op.name in ("repkt", "respkt", "recpkt", "recspkt")
        packets_in = op.src[1:] if sums else op.src if op.name in ("upkt", "rppkt") else ()
        plain_in = tuple(piece for piece in op.src if piece not in packets_in)
        plain_out = op.dst[:1] if sums or op.name == "upkt" else ()
        kept = op.dst[1:2] if op.name.startswith("rec") else op.dst if op.name == "cpkt" else ()
        sent = op.dst[len(plain_out) + len(kept) :]
        if (sent and op.name not in ("respkt", "recspkt", "rppkt")) or (not sums and len(op.src) > 1):
            op.refuse(f"has {len(op.src)} sources and {len(op.dst)} destinations, more than it takes")
        _local(op, rank, (*op.src, *plain_out, *kept))
        _remote(op, rank, sent)
        _in_scratch(op, (*packets_in, *kept, *sent))
        self._touch(apart, op, plain_in, plain_out)
        result = _slot(plain_out[0]) if plain_out else _packet(packets_in[0]) if packets_in else _slot(op.src[0])
        if plain_out:
            terms = [*(_packet(piece) for piece in packets_in), *(_slot(piece) for piece in plain_in)]
            self._reads_packets(op, rank, self._sum(lane, result, terms, op.src[0].count), packets_in)
        for piece in kept:
            row = _Row(Opcode.copy, _packet(piece), result, piece.count)
            place = lane.add(row)
            self._fill(op, rank, piece, place)
        for piece in sent:
            row = self._send_packets(rank, block, lane, op, result, piece)
            if not plain_out:
                self._reads_packets(op, rank, row, packets_in)

    def _put_packets(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        ports = [channel for channel in op.channels if channel.port]
        if ports:
            op.refuse("puts packets through a port channel, where the source must be packets already; use rppkt")
        pairs = self._pairs(op)
        _local(op, rank, op.src)
        _remote(op, rank, op.dst)
        _in_scratch(op, op.dst)
        self._touch(apart, op, op.src, ())
        for src, dst in pairs:
            self._send_packets(rank, block, lane, op, _slot(src), dst)

    def _send_packets(self, rank: int, block: int, lane: _Lane, op: Op, src: Slot, piece: Piece) -> _Row:
        key = (rank, block, piece.rank)
        if key not in self.packet_lanes:
            pair = (min(rank, piece.rank), max(rank, piece.rank))
            receiver = _Lane()
            self.lanes[piece.rank].append(receiver)
            self.packet_lanes[key] = receiver, self.wires[pair]
            self.wires[pair] += 1
        receiver, channel = self.packet_lanes[key]
        row = _Row(Opcode.send, None, src, piece.count, send_peer=piece.rank, channel=channel)
        lane.add(row)
        place = receiver.add(_Row(Opcode.recv, _packet(piece), None, piece.count, recv_peer=rank, channel=channel))
        self._fill(op, piece.rank, piece, place)
        return row

    def _fill(self, op: Op, rank: int, piece: Piece, place: _Place) -> None:
        for k in range(piece.count):
            site = (rank, (Space.scratch, piece.index + k))
            if site in self.flagged:
                op.refuse(
                    f"writes packets to scratch[{piece.index + k}] of rank {rank} a second time: readers could not "
                    "tell them from the first"
                )
            self.flagged[site] = place

    def _reads_packets(self, op: Op, rank: int, row: _Row, pieces: Iterable[Piece]) -> None:
        self.packet_reads.append((op, row, [site for piece in pieces for site in _sites(piece)]))

    def _settle_packets(self) -> None:
        for op, row, sites in self.packet_reads:
            for rank, slot in sites:
                place = self.flagged.get((rank, slot))
                if place is None:
                    op.refuse(f"waits for packets at scratch[{slot[1]}] that nobody writes")
                if place not in row.after:
                    row.after.append(place)

    # --- order --------------------------------------------------------------------------------------------------

    def _port(self, rank: int, block: int, op: Op, peer: int, number: int) -> _Lane:
        """The lane of a port channel, which one thread block alone may feed."""
        lane, owner = self.ports.get((rank, peer, number), (None, block))
        if lane is None:
            lane = _Lane()
            self.lanes[rank].append(lane)
            self.ports[rank, peer, number] = lane, block
        if owner != block:
            op.refuse(f"shares its port channel to rank {peer} with threadblock {owner}; their order is not defined")
        return lane

    def _send_signal(
        self, lane: _Lane, rank: int, peer: int, channel: int, orders: _Orders, after: list[_Place]
    ) -> None:
        lane.add(_Row(Opcode.signal, send_peer=peer, channel=channel, after=after))
        self.signals[rank, peer, channel].append(orders)

    def _signal(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        if apart.data and op.name == "signal":
            op.refuse("signals while threads of its block may still touch data; a nop must stand before it")
        orders = _Orders.data if op.name == "signal" else _Orders.too_little if apart.began else _Orders.nothing
        for channel in op.channels:
            number = 2 * channel.number + channel.port
            if channel.port:
                port = self._port(rank, block, op, channel.peer, channel.number)
                self._send_signal(port, rank, channel.peer, number, orders, lane.last())
            else:
                self._send_signal(lane, rank, channel.peer, number, orders, [])

    def _wait(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        for channel in op.channels:
            number = 2 * channel.number + channel.port
            lane.add(_Row(Opcode.wait, recv_peer=channel.peer, channel=number))
            self.waits[channel.peer, rank, number].append((op, apart.closing))
        apart.waited = apart.began = True

    def _settle_relaxed(self) -> None:
        for connection, waits in self.waits.items():
            for (op, closing), orders in zip(waits, self.signals[connection], strict=False):
                if closing or orders == _Orders.nothing:
                    continue
                if op.name == "rlxwait":
                    op.refuse("does not see the data that is waited for; it must be wait")
                if orders == _Orders.too_little:
                    op.refuse("waits for data, yet what it waits for is an rlxsignal; that must be signal")

    def _flush(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        for channel in op.channels:
            if not channel.port:
                op.refuse("flushes a memory channel; only port channels hold anything back")
            port = self._port(rank, block, op, channel.peer, channel.number)
            lane.add(_Row(Opcode.nop, after=port.last()))
        apart.waited = apart.began = True

    def _release(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        if apart.data:
            op.refuse("releases while threads of its block may still touch data; a nop must stand before it")
        for number in op.semaphores:
            self.releases[rank, number].append((block, lane.last()))

    def _acquire(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        for number in op.semaphores:
            row = _Row(Opcode.nop)
            lane.add(row)
            self.acquires[rank, number].append((block, op, row))
            start = self.plan.gpus[rank].semaphores[number]
            if op.unit and self.plan.reuse and start > 0:
                room = SCRATCH_BYTES // max(1, self.plan.gpus[rank].scratch)
                if start * op.unit > room:
                    op.refuse(
                        f"lets {start} rounds of {op.unit} bytes run ahead, yet a chunk of reused scratch holds {room}"
                    )
        apart.waited = apart.began = True

    def _settle_semaphores(self) -> None:
        """The k-th acquire of a semaphore that starts at v ends with its (k - v)-th release."""
        for (rank, number), acquires in self.acquires.items():
            releases = self.releases[rank, number]
            start = self.plan.gpus[rank].semaphores[number]
            for at, (block, op, row) in enumerate(acquires):
                needed = at + 1 - start
                if needed <= 0 or (at + 1 < len(acquires) and acquires[at + 1][1] is op):
                    continue  # an operation that acquires it several times waits for the last of these
                if needed > len(releases):
                    op.refuse(
                        f"waits forever: semaphore {number} starts at {start} and is released {len(releases)} times"
                    )
                if {other for other, _, _ in acquires} != {block}:
                    op.refuse(f"shares semaphore {number} with other thread blocks; who gets a release is not defined")
                if len({other for other, _ in releases}) == 1:
                    row.after += releases[needed - 1][1]
                elif needed == len(releases):
                    row.after += [place for _, places in releases for place in places if place not in row.after]
                else:
                    op.refuse(f"waits for some of the thread blocks that release semaphore {number}; it must be all")

    def _barrier(self, rank: int, block: int, lane: _Lane, apart: _Apart, op: Op) -> None:
        arrival = lane.add(_Row(Opcode.nop))
        departure = _Row(Opcode.nop)
        lane.add(departure)
        self.barriers[rank, op.barrier[0]].setdefault(block, []).append((op, arrival, departure))
        apart.nop()
        apart.began = True

    def _settle_barriers(self) -> None:
        for meetings in self.barriers.values():
            turns = {len(meeting) for meeting in meetings.values()}
            for meeting in meetings.values():
                for turn, (op, _, departure) in enumerate(meeting):
                    if op.barrier[1] != len(meetings) or len(turns) > 1:
                        op.refuse(
                            f"{op.barrier[1]} thread blocks must meet at barrier {op.barrier[0]}, equally often; "
                            f"{len(meetings)} do"
                        )
                    departure.after += [other[turn][1] for other in meetings.values()]

    # --- the Program --------------------------------------------------------------------------------------------

    def _assemble(self) -> Program:
        plan = self.plan
        numbers = [self._scratch_numbers(rank) for rank in range(len(plan.gpus))]
        assembly = Assembly(
            plan.name,
            plan.contract,
            plan.per_block,
            plan.in_place,
            not plan.in_place,
            [len(found) for found in numbers],
        )

        def placed(rank: int, slot: Slot | None) -> Slot | None:
            return slot if slot is None or slot[0] != Space.scratch else (Space.scratch, numbers[rank][slot[1]])

        for rank, lanes in enumerate(self.lanes):
            lanes = [lane for lane in lanes if lane.rows]
            number = {lane: at for at, lane in enumerate(lanes)}
            for lane in lanes:
                for row in lane.rows:
                    assembly.add(
                        rank,
                        number[lane],
                        row.opcode,
                        dst=placed(row.send_peer if row.opcode == Opcode.peer_write else rank, row.dst),
                        src=placed(row.send_peer if row.opcode == Opcode.peer_read else rank, row.src),
                        count=row.count,
                        recv_peer=row.recv_peer,
                        send_peer=row.send_peer,
                        channel=row.channel,
                        operands=[placed(rank, slot) or slot for slot in row.operands],
                        after=sorted({(number[other], at) for other, at in row.after if other is not lane}),
                    )
        return assembly.program()

    def _scratch_numbers(self, rank: int) -> dict[int, int]:
        """Scratch slots that are used, numbered in order: plain ones, packets, temporary ones."""
        used: set[int] = set()
        for owner, lanes in enumerate(self.lanes):
            for row in (row for lane in lanes for row in lane.rows):
                dst_rank = row.send_peer if row.opcode == Opcode.peer_write else owner
                src_rank = row.send_peer if row.opcode == Opcode.peer_read else owner
                ends = [(dst_rank, row.dst), (src_rank, row.src), *((owner, slot) for slot in row.operands)]
                for at, slot in ends:
                    if at == rank and slot is not None and slot[0] == Space.scratch:
                        used |= set(range(slot[1], slot[1] + row.count))
        for index in sorted(used):
            packet = index - _PACKETS
            if 0 <= packet < _PACKETS and used & {2 * packet, 2 * packet + 1}:
                op, _, _ = self.packet_reads[0] if self.packet_reads else (self.plan.gpus[rank].blocks[0][0], 0, 0)
                op.refuse(f"rank {rank} keeps packets and plain data in the same scratch (packets at {packet})")
        return {index: at for at, index in enumerate(sorted(used))}


def _slot(piece: Piece) -> Slot:
    return piece.space, piece.index


def _packet(piece: Piece) -> Slot:
    return piece.space, piece.index + _PACKETS


def _sites(piece: Piece) -> list[_Site]:
    return [(piece.rank, (piece.space, piece.index + k)) for k in range(piece.count)]


def _some(op: Op) -> tuple:  # type: ignore[type-arg]
    return op.channels


def _same_size(op: Op, pieces: Sequence[Piece]) -> None:
    if len({piece.count for piece in pieces}) > 1:
        op.refuse("moves pieces of different sizes; they must be equal")


def _local(op: Op, rank: int, pieces: Iterable[Piece]) -> None:
    if any(piece.rank != rank or piece.group for piece in pieces):
        op.refuse("takes a remote buffer where it needs one of its own rank")


def _remote(op: Op, rank: int, pieces: Iterable[Piece]) -> None:
    if any(piece.rank == rank for piece in pieces):
        op.refuse("takes a buffer of its own rank where it needs a remote one")


def _in_scratch(op: Op, pieces: Iterable[Piece]) -> None:
    if any(piece.space != Space.scratch for piece in pieces):
        op.refuse("keeps packets outside of scratch; packets live in scratch")


_Act = Callable[[_Translator, int, int, _Lane, _Apart, Op], None]
_OPERATIONS: dict[str, _Act] = {
    "copy": _Translator._copy,
    **dict.fromkeys(("put", "pws", "pwsf"), _Translator._put),
    "get": _Translator._get,
    **dict.fromkeys(_DEALT_ALIKE["vectors"], _Translator._reduce),
    "glres": _Translator._load_reduce_store,
    **dict.fromkeys(_DEALT_ALIKE["packets"], _Translator._packets),
    **dict.fromkeys(("signal", "rlxsignal"), _Translator._signal),
    **dict.fromkeys(("wait", "rlxwait"), _Translator._wait),
    "flush": _Translator._flush,
    "barrier": _Translator._barrier,
    "sem_acquire": _Translator._acquire,
    "sem_release": _Translator._release,
}
