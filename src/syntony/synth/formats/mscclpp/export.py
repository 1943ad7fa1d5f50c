"""Writes MSCCL++ plans: the messages of a Program become one-sided operations. program.py reads plans.

A lane becomes a thread block; a message becomes a write into the receiver's memory and a signal:

    protocol Simple    send: put, nop, signal         receive: wait, nop, and the operation on the data
    protocol LL        send: ppkt                     receive: an operation that waits for the packets' flags

In Simple, data goes directly to its slot if the receiver has not used that slot before. Otherwise, and always in LL, it
goes to separate scratch, so that no sender waits for free memory. Received data is then copied (`copy`, `upkt`), added
(`re`, `repkt`), or added and sent on (`res`, `respkt`). Dependencies between lanes become semaphores: one per pair of
lanes, released and acquired in the same order, or one per waiting operation if that takes fewer. Lanes that are too
long are cut first (`lane_cuts.py`); lanes that wait for each other in too many ways are joined (`merging.py`). Chunks
of different weights are cut into equal ones (`lowering/passes/even.py`).

A launch must not write into a peer that is still in the previous launch. In Simple, a separate thread block signals all
peers that this rank has begun, waits for their signals, and releases the other blocks at a barrier. In LL, scratch is
doubled, and flags distinguish launches.

If the runtime lacks a feature, the error names it (`PLAN`). It rounds sums at every addition.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from syntony.synth.formats.assembly import COLLECTIVES
from syntony.synth.formats.export_options import ExportOptions
from syntony.synth.formats.mscclpp.lane_cuts import cut_lanes
from syntony.synth.formats.mscclpp.merging import with_fewer_lanes
from syntony.synth.lowering.passes.even import even
from syntony.synth.lowering.two_sided import needs_two_sides, two_sided
from syntony.synth.model.instructions import HAS_DST, INSTRUCTION_FIELDS, RECEIVES, SENDS, Opcode, Space
from syntony.synth.model.program import Program
from syntony.synth.model.target import PLAN, TargetError, fit

_COLLS = {kind: coll for coll, kind in COLLECTIVES.items()}
_TYPES = {Space.input: "i", Space.output: "o", Space.scratch: "s"}
_MOST_OPERATIONS, _MOST_CHANNELS, _MOST_BUFFERS, _MOST_SEMAPHORES, _MOST_TERMS = 64, 16, 16, 16, 10
_MOST_CHANNELS_AT_ONCE = 8
_OPERATIONS_PER_INSTRUCTION = 9
"""At most: sem_acquire, wait, nop, copy, nop, put, nop, signal, sem_release."""

Slot = tuple[int, int]
Site = tuple[int, int, int]
Message = tuple[int, int, int, int]
"""(source, destination, channel, number)."""


@dataclass
class _Block:
    """One thread block of the plan."""

    rank: int
    ops: list[dict[str, Any]] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)
    touched: set[Site] = field(default_factory=set)
    written: set[Site] = field(default_factory=set)
    waited: bool = False

    def nop(self) -> None:
        """Adds a __syncthreads if something since the last one needs it."""
        if self.touched or self.waited:
            self.ops.append({"name": "nop"})
        self.touched, self.written, self.waited = set(), set(), False

    def data(self, op: dict[str, Any], reads: Iterable[Site], writes: Iterable[Site]) -> None:
        """Adds an operation on data, after a nop if it must not run at the same time as those before it."""
        reads, writes = set(reads), set(writes)
        if self.waited or reads & self.written or writes & self.touched:
            self.nop()
        self.ops.append(op)
        self.touched |= reads | writes
        self.written |= writes


@dataclass(frozen=True)
class _Step:
    """One instruction of the Program."""

    row: int
    lane: int
    position: int
    opcode: Opcode
    dst: Slot
    src: Slot
    count: int
    operands: tuple[Slot, ...]
    after: tuple[tuple[int, int], ...]
    received: Message | None
    sent: Message | None


class _TooManyWaitsError(TargetError):
    """The plan needs more semaphores than there are; fewer lanes may need fewer."""


def mscclpp_text(program: Program, options: ExportOptions) -> str:
    """The text of the file; TargetError if MSCCL++ cannot run the Program."""
    if needs_two_sides(program, PLAN):
        program = two_sided(program, replace(PLAN, channels=1))  # few lanes, so few semaphores
    refusal: _TooManyWaitsError | None = None
    for candidate in with_fewer_lanes(fit(even(program), PLAN)):
        cut = cut_lanes(candidate, (_MOST_OPERATIONS - 1) // _OPERATIONS_PER_INSTRUCTION)
        try:
            return json.dumps(_Export(cut, options).plan(), indent=1) + "\n"
        except _TooManyWaitsError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


class _Export:
    def __init__(self, program: Program, options: ExportOptions) -> None:
        self.program, self.options = program, options
        self.packets = options.protocol == "LL"
        if options.protocol == "LL128":
            raise self._refused("MSCCL++ has no protocol LL128; it must be Simple or LL")
        if program.root:
            raise self._refused(f"MSCCL++ plans have no root; it must be 0, not {program.root}")
        if len(set(np.bincount(program.chunks[:, 0]).tolist())) > 1:
            raise self._refused("its blocks have different numbers of chunks; they must be equal")
        self.in_place = options.place(program)
        self.scratch = [program.space_size(rank, Space.scratch) for rank in range(program.ranks)]
        self.steps = self._read()
        self.landing: dict[Message, Slot] = {}
        self.straight: set[Message] = set()
        self.packet_slots = [0] * program.ranks
        self._place_messages()
        self.channels = self._number_channels()
        self.remote: list[list[tuple[int, int]]] = [[] for _ in range(program.ranks)]

    def _refused(self, message: str) -> TargetError:
        return TargetError(f"program '{self.program.name}' cannot be written as an MSCCL++ plan: {message}")

    def _read(self) -> list[list[_Step]]:
        """Per rank its instructions, with the messages that they receive and send."""
        program = self.program
        steps: list[list[_Step]] = [[] for _ in range(program.ranks)]
        sent: dict[tuple[int, int, int], int] = defaultdict(int)
        taken: dict[tuple[int, int, int], int] = defaultdict(int)
        operands, dependencies = iter(program.operands.tolist()), iter(program.dependencies.tolist())
        for at, (values, position) in enumerate(
            zip(program.instructions.tolist(), program.position.tolist(), strict=True)
        ):
            row = dict(zip(INSTRUCTION_FIELDS, values, strict=True))
            op, rank, channel = Opcode(row["opcode"]), row["agent"], row["channel"]
            received = sending = None
            if RECEIVES[op]:
                connection = (row["recv_peer"], rank, channel)
                received = (*connection, taken[connection])
                taken[connection] += 1
            if SENDS[op]:
                connection = (rank, row["send_peer"], channel)
                sending = (*connection, sent[connection])
                sent[connection] += 1
            steps[rank].append(
                _Step(
                    *(at, row["lane"], position, op),
                    (row["dst_space"], row["dst_index"]),
                    (row["src_space"], row["src_index"]),
                    row["count"],
                    tuple((space, index) for space, index in (next(operands) for _ in range(row["operand_count"]))),
                    tuple((lane, at) for lane, at in (next(dependencies) for _ in range(row["dependency_count"]))),
                    *(received, sending),
                )
            )
        return steps

    # --- where messages land --------------------------------------------------------------------------------------

    def _place_messages(self) -> None:
        program = self.program
        place: dict[Site, Site] = {}
        inputs: dict[tuple[int, int], Site] = {}
        start = program.space_start
        for row, (rank, space, chunk) in enumerate(program.slots.tolist()):
            site = (rank, space, row - int(start[rank, space]))
            if space == Space.input:
                inputs[rank, chunk] = site
            place[site] = inputs.get((rank, chunk), site) if self.in_place and space == Space.output else site
        given = set(inputs.values())
        writers: dict[Site, int] = defaultdict(int)
        for rank, steps in enumerate(self.steps):
            for step in steps:
                if HAS_DST[step.opcode]:
                    for site in _sites(rank, step.dst, step.count):
                        writers[place[site]] += 1
        counts = {step.sent: step.count for steps in self.steps for step in steps if step.sent}
        for rank, steps in enumerate(self.steps):
            for step in steps:
                message = step.received
                if message is None:
                    continue
                count = counts[message]
                stores = step.opcode in (Opcode.recv, Opcode.recv_copy_send)
                places = [place[site] for site in _sites(rank, step.dst, count)] if stores else []
                first = all(writers[site] == 1 and site not in given for site in places)
                if self.packets:
                    self.landing[message] = (Space.scratch, self.packet_slots[rank])
                    self.packet_slots[rank] += count
                elif stores and first:
                    self.landing[message] = step.dst
                    self.straight.add(message)
                else:
                    self.landing[message] = self._scratch(rank, count)

    def _scratch(self, rank: int, count: int) -> Slot:
        first = self.scratch[rank]
        self.scratch[rank] += count
        return Space.scratch, first

    def _number_channels(self) -> dict[tuple[int, int, int], int]:
        """(rank, peer, channel) -> its number at that rank; both ends list the same channels in the same order."""
        pairs: dict[tuple[int, int], set[int]] = defaultdict(set)
        for steps in self.steps:
            for message in (message for step in steps for message in (step.sent, step.received) if message):
                pairs[message[0], message[1]].add(message[2])
        numbers: dict[tuple[int, int, int], int] = {}
        self.connected: list[list[int]] = []
        for rank in range(self.program.ranks):
            peers: list[int] = []
            for peer in range(self.program.ranks):
                for channel in sorted(pairs.get((rank, peer), set()) | pairs.get((peer, rank), set())):
                    numbers[rank, peer, channel] = len(peers)
                    peers.append(peer)
            self.connected.append(peers)
        return numbers

    # --- writing --------------------------------------------------------------------------------------------------

    def plan(self) -> dict[str, Any]:
        """The document."""
        program, options = self.program, self.options
        gpus = [self._gpu(rank) for rank in range(program.ranks)]
        return {
            "name": program.name,
            "collective": _COLLS[program.collective],
            "protocol": options.protocol,
            "inplace": self.in_place,
            "reuse_resources": False,
            "gpus": gpus,
            "num_threads_per_block": 1024,
            "use_double_scratch_buffer": self.packets,
            "buffer_alignment": 16,
            "min_message_size": options.min_bytes,
            "max_message_size": options.max_bytes,
        }

    def _gpu(self, rank: int) -> dict[str, Any]:
        program = self.program
        count = max((step.lane + 1 for step in self.steps[rank]), default=0)
        blocks = [_Block(rank) for _ in range(count)]
        acquires, releases, semaphores = self._semaphores(rank)
        for step in self.steps[rank]:
            block = blocks[step.lane]
            if step.row in acquires:
                block.ops.append({"name": "sem_acquire", "semaphore_ids": acquires[step.row]})
                block.waited = True
            self._write(rank, block, step)
            if step.row in releases:
                block.nop()
                block.ops.append({"name": "sem_release", "semaphore_ids": releases[step.row]})
        meeting = [] if self.packets else self._meeting(rank)
        for block in meeting and blocks:
            block.ops.insert(0, self._barrier(len(blocks) + len(meeting)))
        blocks += meeting
        chunks = [max(program.space_size(peer, space) for peer in range(program.ranks)) for space in Space]
        packets = self.packet_slots[rank]
        plain = self.scratch[rank]
        return {
            "id": rank,
            "input_chunks": chunks[Space.input],
            "output_chunks": chunks[Space.output],
            "scratch_chunks": packets + (plain + 1) // 2 if self.packets else plain,
            "threadblocks": [self._block(number, block) for number, block in enumerate(blocks)],
            "channels": [{"channel_type": "memory", "connected_to": self.connected[rank]}]
            if self.connected[rank]
            else [],
            "remote_buffers": [
                {"rank": peer, "type": _TYPES[Space(space)], "access_channel_types": ["memory"]}
                for peer, space in self.remote[rank]
            ],
            "semaphores": [{"init_value": 0}] * semaphores,
        }

    def _meeting(self, rank: int) -> list[_Block]:
        """Thread blocks that synchronize with all peers of the rank; their channels come after those of the data."""
        peers = sorted(set(self.connected[rank]))
        first = len(self.connected[rank])
        blocks = []
        for begin in range(0, len(peers), _MOST_CHANNELS):
            some = range(begin, min(begin + _MOST_CHANNELS, len(peers)))
            block = _Block(rank, channels=[first + at for at in some])
            for name in ("rlxsignal", "rlxwait"):
                for at in range(0, len(some), _MOST_CHANNELS_AT_ONCE):
                    ids = list(range(at, min(at + _MOST_CHANNELS_AT_ONCE, len(some))))
                    block.ops.append({"name": name, "channel_ids": ids, "channel_type": "memory"})
            blocks.append(block)
        count = max((step.lane + 1 for step in self.steps[rank]), default=0) + len(blocks)
        for block in blocks:
            block.ops.append(self._barrier(count))
        self.connected[rank] = [*self.connected[rank], *peers]
        return blocks

    @staticmethod
    def _barrier(blocks: int) -> dict[str, Any]:
        return {"name": "barrier", "barrier_id": 0, "num_threadblocks": blocks}

    def _block(self, number: int, block: _Block) -> dict[str, Any]:
        for what, found, limit in (
            ("operations", len(block.ops), _MOST_OPERATIONS),
            ("channels", len(block.channels), _MOST_CHANNELS),
            ("remote buffers", len(block.buffers), _MOST_BUFFERS),
        ):
            if found > limit:
                raise self._refused(f"lane {number} of rank {block.rank} becomes {found} {what} (limit {limit})")
        channels = [{"channel_type": "memory", "channel_ids": block.channels}] if block.channels else []
        buffers = [{"access_channel_type": "memory", "remote_buffer_ids": block.buffers}] if block.buffers else []
        return {"id": number, "ops": block.ops, "channels": channels, "remote_buffer_refs": buffers}

    def _write(self, rank: int, block: _Block, step: _Step) -> None:
        op, count = step.opcode, step.count
        match op:
            case Opcode.nop:
                return
            case Opcode.copy:
                if step.dst != step.src:
                    self._data(rank, block, "copy", [step.src], [step.dst], count)
                return
            case Opcode.reduce:
                self._reduce(rank, block, step)
                return
        landed = None
        if step.received is not None:
            landed = self.landing[step.received]
            if not self.packets:
                source, _, channel, _ = step.received
                block.ops.append(self._on_channel("wait", rank, block, source, channel))
                block.waited = True
        adds = op in (Opcode.recv_reduce, Opcode.recv_reduce_send, Opcode.recv_reduce_copy_send)
        stored = step.dst if HAS_DST[op] else landed if adds and not self.packets else None
        if adds:
            assert landed is not None
            if stored is None:  # packets are added up in plain scratch
                stored = self._scratch(rank, count)
            name = {(False, False): "re", (False, True): "res", (True, False): "repkt", (True, True): "respkt"}[
                self.packets, step.sent is not None
            ]
            self._data(rank, block, name, [step.src], [stored], count, landed, step.sent)
        elif landed is not None:
            if self.packets:
                self._data(rank, block, "upkt", [], [step.dst], count, landed)
            elif step.received not in self.straight:
                self._data(rank, block, "copy", [landed], [step.dst], count)
        if step.sent is not None and not adds:
            source_slot = step.dst if landed is not None else step.src
            self._data(rank, block, "ppkt" if self.packets else "put", [source_slot], [], count, None, step.sent)
        if step.sent is not None and not self.packets:
            _, target, channel, _ = step.sent
            block.nop()
            block.ops.append(self._on_channel("signal", rank, block, target, channel))

    def _reduce(self, rank: int, block: _Block, step: _Step) -> None:
        terms = [step.src, *step.operands]
        if len(terms) > _MOST_TERMS:
            raise self._refused(f"{self.program.where(step.row)} adds {len(terms)} slots (limit {_MOST_TERMS})")
        self._data(rank, block, "re", terms, [step.dst], step.count)

    def _data(
        self,
        rank: int,
        block: _Block,
        name: str,
        sources: list[Slot],
        targets: list[Slot],
        count: int,
        landed: Slot | None = None,
        sent: Message | None = None,
    ) -> None:
        """An operation on plain `sources` and `targets`, what `landed`, and the landing place of what is `sent`."""
        reads = [site for slot in sources for site in _sites(rank, slot, count)]
        writes = [site for slot in targets for site in _sites(rank, slot, count)]
        src = [self._local(rank, slot, count) for slot in sources]
        dst = [self._local(rank, slot, count) for slot in targets]
        if landed is not None:
            if not self.packets:
                reads += _sites(rank, landed, count)
            piece = {"type": "s" if self.packets else _TYPES[Space(landed[0])], "index": landed[1], "size": count}
            # `re` adds from left to right and the message comes first; packets are added before the rest anyway.
            src = [*src, piece] if self.packets else [piece, *src]
        op: dict[str, Any] = {"name": name, "src_buff": src, "dst_buff": dst}
        if sent is not None:
            _, peer, _, _ = sent
            space, index = self.landing[sent]
            dst.append({"buffer_id": self._buffer(rank, block, peer, space), "index": index, "size": count})
            op["channel_type"] = "memory"
        if name.startswith("re"):
            op["reduce_op"] = "sum"
        block.data(op, reads, writes)

    def _local(self, rank: int, slot: Slot, count: int) -> dict[str, Any]:
        space, index = slot
        if space == Space.scratch and self.packets:
            index += 2 * self.packet_slots[rank]  # after the packets, which take two slots each
        return {"type": _TYPES[Space(space)], "index": index, "size": count}

    def _buffer(self, rank: int, block: _Block, peer: int, space: int) -> int:
        return _position(block.buffers, _position(self.remote[rank], (peer, space)))

    def _on_channel(self, name: str, rank: int, block: _Block, peer: int, channel: int) -> dict[str, Any]:
        at = _position(block.channels, self.channels[rank, peer, channel])
        return {"name": name, "channel_ids": [at], "channel_type": "memory"}

    # --- dependencies ---------------------------------------------------------------------------------------------

    def _semaphores(self, rank: int) -> tuple[dict[int, list[int]], dict[int, list[int]], int]:
        """Per instruction row, which semaphores it acquires and releases; how many there are."""
        rows = {(step.lane, step.position): step.row for step in self.steps[rank]}
        waited: dict[tuple[int, int], int] = defaultdict(lambda: -1)  # (lane, other) -> what it has waited for
        joins: list[tuple[_Step, list[tuple[int, int]]]] = []
        for step in self.steps[rank]:
            latest: dict[int, int] = {}
            for lane, position in step.after:
                if lane != step.lane and position > max(waited[step.lane, lane], latest.get(lane, -1)):
                    latest[lane] = position
            for lane, position in latest.items():
                waited[step.lane, lane] = position
            if latest:
                joins.append((step, sorted(latest.items())))
        pairs = sorted({(lane, step.lane) for step, needed in joins for lane, _ in needed})
        by_pair = len(pairs) <= len(joins)
        acquires: dict[int, list[int]] = defaultdict(list)
        releases: dict[int, list[int]] = defaultdict(list)
        for at, (step, needed) in enumerate(joins):
            for lane, position in needed:
                number = pairs.index((lane, step.lane)) if by_pair else at
                acquires[step.row].append(number)
                releases[rows[lane, position]].append(number)
        count = len(pairs) if by_pair else len(joins)
        if count > _MOST_SEMAPHORES:
            raise _TooManyWaitsError(
                f"program '{self.program.name}' cannot be written as an MSCCL++ plan: the lanes of rank {rank} wait "
                f"for each other in {count} ways, a semaphore each (limit {_MOST_SEMAPHORES}); joined lanes do so, too"
            )
        return acquires, releases, count


def _sites(rank: int, slot: Slot, count: int) -> list[Site]:
    return [(rank, slot[0], slot[1] + k) for k in range(count)]


def _position(items: list[Any], item: Any) -> int:
    """The index of the item in the list, to which it is appended if it is missing."""
    if item not in items:
        items.append(item)
    return items.index(item)
