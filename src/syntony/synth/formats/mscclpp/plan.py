"""Reads MSCCL++ plans (JSON): the contents of the file, with references resolved and numbers in range.

    plan   name, collective, protocol (Simple, or LL: packets that carry flags), inplace, reuse_resources
      gpu  input_chunks, output_chunks, scratch_chunks, channels, remote_buffers, semaphores
        threadblock   channels and remote buffers that it uses, operations that its threads execute in order
          op          src_buff, dst_buff: pieces {type i|o|s, index, size}, or {buffer_id | switch_channel_id, ..}

`program.py` defines the meaning of the operations. Numbers of channels and buffers are those of the thread block's own
lists; the k-th channel of a rank to a peer is joined with the peer's k-th channel back. A thread block of a group
(`tbg_info`) works on its share of each piece: chunks are cut into so many slots that shares are whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any, NoReturn

from syntony.base.files.fields import Fields, FileError
from syntony.synth.formats.assembly import COLLECTIVES
from syntony.synth.model.blocks import Blocks
from syntony.synth.model.instructions import Space

BUFFERS = {"i": Space.input, "o": Space.output, "s": Space.scratch}
CHANNEL_TYPES = ("memory", "port", "switch", "none")
SCRATCH_BYTES = 1 << 26
"""Scratch of an MSCCL++ plan with reuse_resources: every message uses this much, whatever its size."""
_MAX_RANKS, _MAX_CHUNKS, _MAX_SHARES = 1 << 12, 1 << 16, 1 << 8


@dataclass(frozen=True)
class Piece:
    """`count` slots of a buffer of rank `rank`; of all ranks of a group where it is reached through a switch."""

    rank: int
    space: Space
    index: int
    count: int
    group: tuple[int, ...] = ()


@dataclass(frozen=True)
class Channel:
    """The `number`-th channel of its type between this rank and `peer`."""

    peer: int
    number: int
    port: bool


@dataclass(frozen=True)
class Op:
    """One operation. `where` is its name in error messages."""

    name: str
    where: str
    src: tuple[Piece, ...]
    dst: tuple[Piece, ...]
    channels: tuple[Channel, ...]
    semaphores: tuple[int, ...]
    barrier: tuple[int, int]
    """Its number, and how many thread blocks meet there."""
    unit: int
    """Bytes of one round of the pipeline that it is part of; 0 outside of pipelines."""

    def refuse(self, message: str) -> NoReturn:
        """Raises FileError about this operation."""
        raise FileError(f"{self.where}: {message}")


@dataclass(frozen=True)
class Gpu:
    """One rank: its thread blocks' operations, its semaphores' initial values."""

    blocks: tuple[tuple[Op, ...], ...]
    semaphores: tuple[int, ...]
    scratch: int
    """Slots of plain scratch; packets take two each."""


@dataclass(frozen=True)
class MscclppPlan:
    """A whole file; `per_block` is the number of chunks of each block of the collective."""

    name: str
    contract: Blocks
    packets: bool
    in_place: bool
    reuse: bool
    per_block: int
    gpus: tuple[Gpu, ...]


def is_plan(data: object) -> bool:
    """Whether the JSON value looks like an MSCCL++ plan."""
    return isinstance(data, dict) and {"gpus", "collective", "protocol"} <= data.keys()


def plan_from_dict(data: object, where: str) -> MscclppPlan:
    """The MSCCL++ plan; FileError that names rank, thread block and operation."""
    return _Reader(Fields(data, where), where).plan()


class _Reader:
    def __init__(self, fields: Fields, where: str) -> None:
        self.fields, self.where = fields, where
        self.name = fields.string("name")
        collective = fields.string("collective")
        kind = COLLECTIVES.get(collective.replace("_", "").lower())
        if kind is None:
            raise fields.wrong("collective", f"supported are {', '.join(COLLECTIVES)}")
        self.in_place = self._flag("inplace", False)
        if self.in_place and kind == "all_to_all":
            raise fields.wrong("inplace", "in place, blocks of different ranks would overlap")
        self.packets = fields.choice("protocol", ("Simple", "LL")) == "LL"
        self.reuse = fields.has("reuse_resources") and self._flag("reuse_resources", False)
        self.gpus = list(fields.children("gpus"))
        if not 1 <= len(self.gpus) <= _MAX_RANKS:
            raise FileError(f"{where}: gpus lists {len(self.gpus)} ranks; it must be 1..{_MAX_RANKS}")
        self.contract = Blocks(kind, len(self.gpus))
        for rank, gpu in enumerate(self.gpus):
            if gpu.whole("id") != rank:
                raise gpu.wrong("id", f"gpus are listed in the order of their ranks; it must be {rank}")
        self.chunks = self._chunks_per_block()
        self.shares = self._shares()
        self.remote = [[self._remote(child) for child in gpu.children("remote_buffers")] for gpu in self.gpus]
        self.channels = [self._channels(gpu, rank) for rank, gpu in enumerate(self.gpus)]

    def plan(self) -> MscclppPlan:
        gpus = tuple(self._gpu(gpu, rank) for rank, gpu in enumerate(self.gpus))
        per_block = self.chunks * self.shares
        return MscclppPlan(self.name, self.contract, self.packets, self.in_place, self.reuse, per_block, gpus)

    def _flag(self, name: str, default: bool) -> bool:
        value = self.fields.take(name, optional=default)
        if not isinstance(value, bool):
            raise self.fields.wrong(name, "it must be true or false")
        return value

    def _chunks_per_block(self) -> int:
        """From the sizes of buffers, equal on all ranks; 0 means unknown (in place, one of the two may be 0)."""
        found = 0
        for rank, gpu in enumerate(self.gpus):
            for name, blocks in (
                ("input_chunks", self.contract.input(rank)),
                ("output_chunks", self.contract.output(rank)),
            ):
                value = gpu.whole(name)
                if not 0 <= value <= _MAX_CHUNKS:
                    raise gpu.wrong(name, f"it must be 0..{_MAX_CHUNKS}")
                if not value or not blocks:
                    continue
                if value % len(blocks) or (found and value // len(blocks) != found):
                    right = f"{found * len(blocks)}" if found else f"a multiple of {len(blocks)}"
                    raise gpu.wrong(name, f"it must be {right} for {self.contract.kind}")
                found = value // len(blocks)
            if not 0 <= gpu.whole("scratch_chunks") <= _MAX_CHUNKS:
                raise gpu.wrong("scratch_chunks", f"it must be 0..{_MAX_CHUNKS}")
        if not found:
            raise FileError(f"{self.where}: no rank has input_chunks or output_chunks; one must be above 0")
        return found

    def _shares(self) -> int:
        """Slots per chunk: the least number that every thread block group divides."""
        shares = 1
        for gpu in self.gpus:
            for block in _dicts(gpu.take("threadblocks")):
                for op in _dicts(block.get("ops")):
                    for inner in (op, *_dicts(op.get("ops"))):
                        size = inner.get("tbg_info", {}).get("tbg_size", 1) if inner.get("tbg_info") else 1
                        if type(size) is int and size > 0:
                            shares = lcm(shares, size)
                        if shares > _MAX_SHARES:
                            raise FileError(
                                f"{self.where}: its thread block groups (tbg_info) cut a chunk into more than "
                                f"{_MAX_SHARES} shares"
                            )
        return shares

    def _remote(self, fields: Fields) -> tuple[int, Space]:
        rank = fields.whole("rank")
        if not 0 <= rank < self.contract.ranks:
            raise fields.wrong("rank", f"ranks are 0..{self.contract.ranks - 1}")
        return rank, BUFFERS[fields.choice("type", BUFFERS)]

    def _channels(self, gpu: Fields, rank: int) -> dict[str, list[Any]]:
        """Per type, what the channel numbers of this rank mean: Channel, or (buffer, group) of a switch."""
        found: dict[str, list[Any]] = {name: [] for name in CHANNEL_TYPES}
        used: dict[tuple[int, str], int] = {}
        for fields in gpu.children("channels"):
            kind = fields.choice("channel_type", CHANNEL_TYPES)
            if kind == "switch":
                buffer = BUFFERS[fields.choice("buff" if fields.has("buff") else "buffer_type", BUFFERS)]
                for group in fields.children("rank_groups"):
                    ranks = tuple(group.column("ranks").tolist())
                    if rank not in ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(self._ranks()):
                        raise group.wrong("ranks", f"it must list different ranks, rank {rank} among them")
                    found[kind].append((buffer, ranks))
                continue
            for index, peer in enumerate(fields.column("connected_to").tolist()):
                if peer == rank or peer not in self._ranks():
                    raise fields.wrong("connected_to", f"it must be another rank 0..{self.contract.ranks - 1}", index)
                number = used[peer, kind] = used.get((peer, kind), -1) + 1
                found[kind].append(Channel(peer, number, kind == "port"))
        return found

    def _ranks(self) -> range:
        return range(self.contract.ranks)

    def _gpu(self, gpu: Fields, rank: int) -> Gpu:
        starts = []
        if gpu.has("semaphores"):
            starts = [child.whole("init_value") for child in gpu.children("semaphores")]
        scratch = gpu.seen("scratch_chunks") * self.shares * (2 if self.packets else 1)
        blocks = []
        for at, raw in enumerate(_dicts(gpu.seen("threadblocks"))):
            fields = Fields(raw, f"{self.where}: rank {rank}, threadblock {at}")
            if fields.whole("id") != at:
                raise fields.wrong("id", f"thread blocks are listed in order; it must be {at}")
            blocks.append(tuple(_BlockReader(self, rank, fields, len(starts)).ops()))
        return Gpu(tuple(blocks), tuple(starts), scratch)


class _BlockReader:
    """One thread block: its own numbering of channels and remote buffers, and its operations."""

    def __init__(self, plan: _Reader, rank: int, fields: Fields, semaphores: int) -> None:
        self.plan, self.rank, self.fields, self.semaphores = plan, rank, fields, semaphores
        self.channels: dict[str, list[Any]] = {name: [] for name in CHANNEL_TYPES}
        self.buffers: dict[str, list[tuple[int, Space]]] = {name: [] for name in CHANNEL_TYPES}
        for child in fields.children("channels"):
            kind = child.choice("channel_type", CHANNEL_TYPES)
            known = plan.channels[rank][kind]
            self.channels[kind] += [known[i] for i in _numbers(child, "channel_ids", len(known))]
        if fields.has("remote_buffer_refs"):
            for child in fields.children("remote_buffer_refs"):
                kind = child.choice("access_channel_type", CHANNEL_TYPES)
                remote = plan.remote[rank]
                self.buffers[kind] += [remote[i] for i in _numbers(child, "remote_buffer_ids", len(remote))]

    def ops(self) -> Iterator[Op]:
        rows = list(self.fields.children("ops"))
        names = [row.string("name") for row in rows]
        whole = {(row.seen("name") == "pipeline") for row in rows if row.seen("name") != "nop"}
        for at, (row, name) in enumerate(zip(rows, names, strict=True)):
            where = f"{self.plan.where}: rank {self.rank}, threadblock {self.fields.seen('id')}, op {at}"
            if name != "pipeline":
                yield self._op(row, name, f"{where} ({name})", 0)
                continue
            if len(whole) > 1:
                raise FileError(
                    f"{where} (pipeline): other operations stand beside it; what is not in the pipeline runs once, "
                    "and a Program runs every lane once per slice"
                )
            unit = row.child("iter_context").whole("unit_size")
            if unit < 1:
                raise FileError(f"{where} (pipeline): unit_size is {unit}; it must be at least 1")
            for inner, child in enumerate(row.children("ops")):
                name = child.string("name")
                if name == "pipeline":
                    raise FileError(f"{where} (pipeline): holds a pipeline; pipelines are not nested")
                yield self._op(child, name, f"{where}.{inner} ({name})", unit)

    def _op(self, row: Fields, name: str, where: str, unit: int) -> Op:
        kind = row.choice("channel_type", CHANNEL_TYPES) if row.has("channel_type") else "none"
        channels = []
        if row.has("channel_ids") and kind != "switch":
            channels = [self.channels[kind][i] for i in _numbers(row, "channel_ids", len(self.channels[kind]))]
        share = (0, 1)
        if row.has("tbg_info"):
            group = row.child("tbg_info")
            share = (group.whole("tb_id"), group.whole("tbg_size"))
            if not 0 <= share[0] < share[1]:
                raise FileError(f"{where}: tb_id {share[0]} is not a member of a group of {share[1]}")
        if row.has("reduce_op") and row.string("reduce_op") != "sum":
            raise FileError(f'{where}: reduce_op is "{row.seen("reduce_op")}"; it must be "sum"')
        ends = {
            end: tuple(self._piece(child, kind, share, where) for child in row.children(end)) if row.has(end) else ()
            for end in ("src_buff", "dst_buff")
        }
        barrier = (row.whole("barrier_id"), row.whole("num_threadblocks")) if row.has("barrier_id") else (-1, 0)
        semaphores = _numbers(row, "semaphore_ids", self.semaphores) if row.has("semaphore_ids") else []
        return Op(name, where, ends["src_buff"], ends["dst_buff"], tuple(channels), tuple(semaphores), barrier, unit)

    def _piece(self, row: Fields, kind: str, share: tuple[int, int], where: str) -> Piece:
        plan = self.plan
        group: tuple[int, ...] = ()
        if row.has("switch_channel_id"):
            at = row.whole("switch_channel_id")
            if not 0 <= at < len(self.channels["switch"]):
                raise FileError(f"{where}: switch_channel_id {at} is not among the thread block's channels")
            rank = self.rank
            space, group = self.channels["switch"][at]
        elif row.has("buffer_id"):
            at = row.whole("buffer_id")
            if not 0 <= at < len(self.buffers[kind]):
                raise FileError(f"{where}: buffer_id {at} is not among the thread block's {kind} remote buffers")
            rank, space = self.buffers[kind][at]
        else:
            rank, space = self.rank, BUFFERS[row.choice("type", BUFFERS)]
        index, size = row.whole("index"), row.whole("size")
        shares = plan.shares * size // share[1]
        if index < 0 or size < 1:
            raise FileError(f"{where}: index {index} and size {size} must be at least 0 and 1")
        piece = Piece(rank, space, index * plan.shares + share[0] * shares, shares, group)
        for owner in group or (rank,):
            room = self._room(owner, space)
            if (index + size) * plan.shares > room:
                name = next(name for name, found in BUFFERS.items() if found == space)
                raise FileError(
                    f"{where}: uses {name}[{index}..{index + size - 1}] of rank {owner}, which has "
                    f"{room // plan.shares} chunks there"
                )
        return piece

    def _room(self, rank: int, space: Space) -> int:
        plan = self.plan
        if space == Space.scratch:
            return int(plan.gpus[rank].seen("scratch_chunks")) * plan.shares * (2 if plan.packets else 1)
        blocks = plan.contract.input(rank) if space == Space.input else plan.contract.output(rank)
        return len(blocks) * plan.chunks * plan.shares


def _numbers(fields: Fields, key: str, limit: int) -> list[int]:
    """A list of numbers below the limit."""
    found: list[int] = fields.column(key).tolist()
    for index, number in enumerate(found):
        if not 0 <= number < limit:
            raise fields.wrong(key, f"it must be below {limit}, the number of those that there are", index)
    return found


def _dicts(rows: object) -> Sequence[Mapping[str, Any]]:
    """The objects in a list, if it is one; malformed ones are reported when they are read."""
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
