"""Translates MSCCL++ plans to Programs, operation by operation.

    copy                        copy
    put, get                    peer_write, peer_read
    re, res                     reduce, and peer_write of the result
    rre, rres                   peer_read into temporary scratch, reduce, and peer_write of the result
    glres                       the same with all ranks of a switch's group, summed in the order of the ranks
    signal, wait, rlx*          signal, wait
    ppkt, rppkt, *spkt          packets carry flags, and readers wait for these: send, and a lane that receives
    upkt, cpkt, re(c)pkt        copy and reduce, after the packets that they read
    put, pws, signal on ports   the proxy executes them: a lane of its own; flush waits for that lane
    barrier, sem_*              nop with dependencies
    nop                         __syncthreads: no instruction, but an operation that needs one and has none is refused
    pipeline                    its operations once: its rounds are the slices of a Program

`lanes.py` has the rules for threads of one block, `order.py` those for blocks and ranks. A flag has one value per
launch, so packets that are written twice to one slot are refused. Operations without an equivalent (gstore, gstorepkt)
are refused by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from syntony.synth.formats.assembly import Assembly, Slot
from syntony.synth.formats.mscclpp.lanes import (
    CLOSING,
    DEALT_ALIKE,
    PACKETS,
    Apart,
    Lane,
    Place,
    Row,
    Site,
    in_scratch,
    local,
    packet_of,
    remote,
    same_size,
    sites_of,
    slot_of,
)
from syntony.synth.formats.mscclpp.order import ORDERINGS, Order, Orders
from syntony.synth.formats.mscclpp.plan import MscclppPlan, Op, Piece, plan_from_dict
from syntony.synth.model.instructions import Opcode, ProgramError, Space
from syntony.synth.model.program import Program


def read_mscclpp(data: object, where: str) -> Program:
    """The Program of a parsed MSCCL++ plan; FileError if malformed, ProgramError if it can be no Program."""
    try:
        return _Translator(plan_from_dict(data, where)).program()
    except ProgramError as error:
        raise ProgramError(f"{where}: {error}") from None


class _Translator:
    def __init__(self, plan: MscclppPlan) -> None:
        self.plan = plan
        self.lanes: list[list[Lane]] = [[] for _ in plan.gpus]
        self.order = Order(plan, self.lanes)
        self.temporary = [2 * PACKETS] * len(plan.gpus)
        self.flagged: dict[Site, Place] = {}  # packet slot -> who fills it
        self.packet_lanes: dict[tuple[int, int, int], tuple[Lane, int]] = {}  # (rank, block, peer) -> lane, channel
        self.packet_reads: list[tuple[Op, Row, list[Site]]] = []
        self.wires = defaultdict[tuple[int, int], int](int)  # (rank, peer) -> channels in use between them
        for rank, gpu in enumerate(plan.gpus):
            for block in gpu.blocks:
                for op in block:
                    for channel in op.channels:
                        pair = (min(rank, channel.peer), max(rank, channel.peer))
                        self.wires[pair] = max(self.wires[pair], 2 * channel.number + channel.port + 1)

    # --- walking ------------------------------------------------------------------------------------------------

    def program(self) -> Program:
        """The Program; FileError for what it cannot express."""
        units = {op.unit for gpu in self.plan.gpus for block in gpu.blocks for op in block if op.name != "nop"}
        if len(units) > 1:
            op = next(op for gpu in self.plan.gpus for block in gpu.blocks for op in block if op.unit)
            op.refuse("only some thread blocks are pipelines, or of different unit_size; they must all be alike")
        for rank, gpu in enumerate(self.plan.gpus):
            for number, block in enumerate(gpu.blocks):
                lane, apart = Lane(), Apart()
                self.lanes[rank].append(lane)
                last = max((at for at, op in enumerate(block) if op.name not in CLOSING), default=-1)
                for at, op in enumerate(block):
                    apart.closing = at > last
                    self._operation(rank, number, lane, apart, op)
        self._settle_packets()
        self.order.settle()
        return self._assemble()

    def _operation(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        if op.name == "nop":
            apart.nop()
            return
        if op.name in _MOVES:
            _MOVES[op.name](self, rank, block, lane, apart, op)
        elif op.name in ORDERINGS:
            ORDERINGS[op.name](self.order, rank, block, lane, apart, op)
        else:
            known = ", ".join(sorted((*_MOVES, *ORDERINGS, "nop", "pipeline")))
            op.refuse(f'"{op.name}" has no meaning in a Program; known are {known}')

    # --- data ---------------------------------------------------------------------------------------------------

    def _pairs(self, op: Op) -> list[tuple[Piece, Piece]]:
        if not op.src or len(op.src) != len(op.dst):
            op.refuse(f"has {len(op.src)} sources and {len(op.dst)} destinations; they must be as many, at least one")
        for src, dst in zip(op.src, op.dst, strict=True):
            same_size(op, (src, dst))
        return list(zip(op.src, op.dst, strict=True))

    def _copy(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        pairs = self._pairs(op)
        if len(pairs) > 1:
            op.refuse("moves several pieces, and its runtime takes the first only; it must be one")
        local(op, rank, (*op.src, *op.dst))
        apart.touch(op, op.src, op.dst)
        src, dst = pairs[0]
        lane.add(Row(Opcode.copy, slot_of(dst), slot_of(src), src.count))

    def _put(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        pairs = self._pairs(op)
        local(op, rank, op.src)
        remote(op, rank, op.dst)
        apart.touch(op, op.src, op.dst)
        ports = [channel for channel in op.channels if channel.port]
        if op.name != "put" and len(ports) != len(pairs):
            op.refuse("signals with the data, which only port channels do, one per piece; use put and signal")
        if not ports:
            for src, dst in pairs:
                lane.add(Row(Opcode.peer_write, slot_of(dst), slot_of(src), src.count, send_peer=dst.rank))
            return
        if len(ports) != len(pairs):
            op.refuse(f"has {len(pairs)} pieces and {len(ports)} port channels; they must be as many")
        for (src, dst), channel in zip(pairs, ports, strict=True):
            if dst.rank != channel.peer:
                op.refuse(f"writes to rank {dst.rank} through a channel to rank {channel.peer}")
            port = self.order.port(rank, block, op, channel.peer, channel.number)
            row = Row(Opcode.peer_write, slot_of(dst), slot_of(src), src.count, send_peer=dst.rank, after=lane.last())
            port.add(row)
            if op.name != "put":
                self.order.send_signal(port, rank, channel.peer, 2 * channel.number + 1, Orders.data, [])
        if op.name == "pwsf":
            self.order.flush(rank, block, lane, apart, op)

    def _get(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        pairs = self._pairs(op)
        local(op, rank, op.dst)
        remote(op, rank, op.src)
        apart.touch(op, op.src, op.dst)
        for src, dst in pairs:
            lane.add(Row(Opcode.peer_read, slot_of(dst), slot_of(src), src.count, send_peer=src.rank))

    def _reduce(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        """re, res, rre, rres: src[0] and dst[0] are here; further sources are remote in rr*; further dsts always."""
        if not op.src or not op.dst:
            op.refuse("needs a source and a destination")
        same_size(op, (*op.src, *op.dst))
        local(op, rank, (op.src[0], op.dst[0]))
        if op.name in ("re", "rre") and len(op.dst) > 1:
            op.refuse(f"has {len(op.dst)} destinations, and stores one")
        remote(op, rank, op.dst[1:])
        reads = op.name.startswith("rr")
        (remote if reads else local)(op, rank, op.src[1:])
        apart.touch(op, op.src, op.dst)
        terms = [slot_of(op.src[0])]
        for piece in op.src[1:]:
            terms.append(self._fetch(rank, lane, piece, piece.rank) if reads else slot_of(piece))
        self._sum(lane, slot_of(op.dst[0]), terms, op.dst[0].count)
        for piece in op.dst[1:]:
            lane.add(Row(Opcode.peer_write, slot_of(piece), slot_of(op.dst[0]), piece.count, send_peer=piece.rank))

    def _load_reduce_store(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        ((src, dst),) = self._pairs(op)[:1]
        if len(op.src) != 1 or not src.group or src.group != dst.group:
            op.refuse("must have one source and one destination, of one switch channel")
        everywhere = [Piece(peer, end.space, end.index, end.count) for end in (src, dst) for peer in src.group]
        apart.touch(op, everywhere[: len(src.group)], everywhere[len(src.group) :])
        terms = [slot_of(src) if peer == rank else self._fetch(rank, lane, src, peer) for peer in sorted(src.group)]
        total = self._scratch(rank, src.count)
        self._sum(lane, total, terms, src.count)
        for peer in sorted(dst.group):
            if peer == rank:
                lane.add(Row(Opcode.copy, slot_of(dst), total, dst.count))
            else:
                lane.add(Row(Opcode.peer_write, slot_of(dst), total, dst.count, send_peer=peer))

    def _scratch(self, rank: int, count: int) -> Slot:
        first = self.temporary[rank]
        self.temporary[rank] += count
        return Space.scratch, first

    def _fetch(self, rank: int, lane: Lane, piece: Piece, peer: int) -> Slot:
        """A peer's piece, read into temporary scratch."""
        slot = self._scratch(rank, piece.count)
        lane.add(Row(Opcode.peer_read, slot, slot_of(piece), piece.count, send_peer=peer))
        return slot

    def _sum(self, lane: Lane, dst: Slot, terms: Sequence[Slot], count: int) -> Row:
        opcode = Opcode.reduce if len(terms) > 1 else Opcode.copy
        row = Row(opcode, dst, terms[0], count, operands=terms[1:])
        lane.add(row)
        return row

    # --- packets ------------------------------------------------------------------------------------------------

    def _packets(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        """All operations on packets: which pieces are packets, and whether there is a sum, follows from the name."""
        if not self.plan.packets:
            op.refuse('moves packets, yet the protocol is "Simple"; it must be "LL"')
        if not op.src or not op.dst:
            op.refuse("needs a source and a destination")
        same_size(op, (*op.src, *op.dst))
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
        local(op, rank, (*op.src, *plain_out, *kept))
        remote(op, rank, sent)
        in_scratch(op, (*packets_in, *kept, *sent))
        apart.touch(op, plain_in, plain_out)
        result = slot_of(plain_out[0]) if plain_out else packet_of(packets_in[0]) if packets_in else slot_of(op.src[0])
        if plain_out:
            terms = [*(packet_of(piece) for piece in packets_in), *(slot_of(piece) for piece in plain_in)]
            self._reads_packets(op, rank, self._sum(lane, result, terms, op.src[0].count), packets_in)
        for piece in kept:
            row = Row(Opcode.copy, packet_of(piece), result, piece.count)
            place = lane.add(row)
            self._fill(op, rank, piece, place)
        for piece in sent:
            row = self._send_packets(rank, block, lane, op, result, piece)
            if not plain_out:
                self._reads_packets(op, rank, row, packets_in)

    def _put_packets(self, rank: int, block: int, lane: Lane, apart: Apart, op: Op) -> None:
        ports = [channel for channel in op.channels if channel.port]
        if ports:
            op.refuse("puts packets through a port channel, where the source must be packets already; use rppkt")
        pairs = self._pairs(op)
        local(op, rank, op.src)
        remote(op, rank, op.dst)
        in_scratch(op, op.dst)
        apart.touch(op, op.src, ())
        for src, dst in pairs:
            self._send_packets(rank, block, lane, op, slot_of(src), dst)

    def _send_packets(self, rank: int, block: int, lane: Lane, op: Op, src: Slot, piece: Piece) -> Row:
        key = (rank, block, piece.rank)
        if key not in self.packet_lanes:
            pair = (min(rank, piece.rank), max(rank, piece.rank))
            receiver = Lane()
            self.lanes[piece.rank].append(receiver)
            self.packet_lanes[key] = receiver, self.wires[pair]
            self.wires[pair] += 1
        receiver, channel = self.packet_lanes[key]
        row = Row(Opcode.send, None, src, piece.count, send_peer=piece.rank, channel=channel)
        lane.add(row)
        place = receiver.add(Row(Opcode.recv, packet_of(piece), None, piece.count, recv_peer=rank, channel=channel))
        self._fill(op, piece.rank, piece, place)
        return row

    def _fill(self, op: Op, rank: int, piece: Piece, place: Place) -> None:
        for k in range(piece.count):
            site = (rank, (Space.scratch, piece.index + k))
            if site in self.flagged:
                op.refuse(
                    f"writes packets to scratch[{piece.index + k}] of rank {rank} a second time: readers could not "
                    "tell them from the first"
                )
            self.flagged[site] = place

    def _reads_packets(self, op: Op, rank: int, row: Row, pieces: Iterable[Piece]) -> None:
        self.packet_reads.append((op, row, [site for piece in pieces for site in sites_of(piece)]))

    def _settle_packets(self) -> None:
        for op, row, sites in self.packet_reads:
            for rank, slot in sites:
                place = self.flagged.get((rank, slot))
                if place is None:
                    op.refuse(f"waits for packets at scratch[{slot[1]}] that are never written")
                if place not in row.after:
                    row.after.append(place)

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
            packet = index - PACKETS
            if 0 <= packet < PACKETS and used & {2 * packet, 2 * packet + 1}:
                op, _, _ = self.packet_reads[0] if self.packet_reads else (self.plan.gpus[rank].blocks[0][0], 0, 0)
                op.refuse(f"rank {rank} keeps packets and plain data in the same scratch (packets at {packet})")
        return {index: at for at, index in enumerate(sorted(used))}


_Move = Callable[[_Translator, int, int, Lane, Apart, Op], None]
_MOVES: dict[str, _Move] = {
    "copy": _Translator._copy,
    **dict.fromkeys(("put", "pws", "pwsf"), _Translator._put),
    "get": _Translator._get,
    **dict.fromkeys(DEALT_ALIKE["vectors"], _Translator._reduce),
    "glres": _Translator._load_reduce_store,
    **dict.fromkeys(DEALT_ALIKE["packets"], _Translator._packets),
}
