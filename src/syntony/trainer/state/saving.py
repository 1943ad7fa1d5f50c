"""Writes checkpoints in the background of training.

    step k    | ..       | rest, copy |  step k + 1        |  step k + 2
    a thread                          |  writes what was copied  |
    rank 0                                                        names it step-k, once all have written

Every rank writes a part of what it has; data that several ranks share is divided among them evenly. Only the copy
within memory delays training (as in Mohan et al. 2021, "CheckFreq", FAST). An incomplete checkpoint has a name that no
reader accepts.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from syntony.base.command import UserError
from syntony.base.files.whole_file import beside
from syntony.trainer.parallel.data_parallel.sharded_layer import ShardedLayer
from syntony.trainer.run.rank import Rank
from syntony.trainer.state.checkpoint import Progress
from syntony.trainer.state.moving import givers
from syntony.trainer.state.parts import Part, parts_of
from syntony.trainer.state.runs import Box, boxes, edges_of, has, spans, stretches, within


@dataclass(frozen=True)
class _Chunk:
    """A copied block of a tensor."""

    name: str
    shape: tuple[int, ...]
    box: Box
    values: Tensor


@dataclass(frozen=True)
class _Part:
    """What one rank wrote: chunks by name and shape, and where they are; or its error."""

    chunks: list[tuple[str, tuple[int, ...], Box, torch.dtype]]
    written: list[WriteResult]
    refusal: str = ""


@dataclass(frozen=True)
class _Share:
    """One rank's part of a tensor: boxes of it, and the positions of their elements in the layer's flat buffer."""

    label: str
    shape: tuple[int, ...]
    layer: int
    boxes: list[Box]
    places: list[tuple[int, int]]


def forget_unfinished(folder: str) -> None:
    """Removes incomplete checkpoints of a killed run. Call on one rank, while none is being written; a folder of
    checkpoints belongs to one run at a time."""
    for path in Path(folder).glob(".step-*.part"):
        if re.fullmatch(r"\.step-\d+\.[0-9a-f]{16}\.part", path.name) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


class Saving:
    """The checkpoints of one rank, one at a time."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._thread = ThreadPoolExecutor(1, "checkpoint")  # starts its thread with the first work
        self._writing: tuple[Path, Path, Future[_Part]] | None = None  # its final and its temporary name

    def begin(self, folder: str, progress: Progress) -> None:
        """Copies the state and begins to write it as `folder`/step-N, after the previous one. Collective."""
        self.settle()
        rank = self._rank
        rank.rest()
        path = Path(folder) / f"step-{progress.step}"
        part = Path(rank.world.tell(str(beside(path))))
        chunks = list(self._chunks())
        if rank.mesh.rank == 0:
            small = {f"optimizer.{name}": value.clone() for name, value in rank.updates.counts().items()}
            text = json.dumps(vars(progress)).encode()
            small |= {"trainer": torch.frombuffer(bytearray(text), dtype=torch.uint8), "rng": torch.get_rng_state()}
            chunks += [
                _Chunk(name, tuple(value.shape), ((0,) * value.dim(), tuple(value.shape)), value.cpu())
                for name, value in small.items()
            ]
        self._writing = path, part, self._thread.submit(_written, part, rank.mesh.rank, chunks)

    def poll(self) -> Path | None:
        """The checkpoint that has been completed, if any. Collective."""
        if self._writing is None:
            return None
        done = self._rank.world.gather(bytes([self._writing[2].done()]), 1)
        return self.settle() if all(map(any, done)) else None

    def settle(self) -> Path | None:
        """Waits for the checkpoint that is being written, and returns it. Raises UserError on all ranks if one of them
        could not write. Collective."""
        if self._writing is None:
            return None
        (path, part, future), self._writing = self._writing, None
        every: list[_Part] = [pickle.loads(blob) for blob in self._rank.world.gather(pickle.dumps(future.result()))]
        refusal = next((each.refusal for each in every if each.refusal), "")
        if self._rank.mesh.rank == 0:
            if not refusal:
                refusal = _named(part, path, every)
            if refusal:
                shutil.rmtree(part, ignore_errors=True)
        refusal = self._rank.world.tell(refusal)
        if refusal:
            raise UserError(f"[run] save: {path} cannot be written: {refusal}")
        return path

    def _chunks(self) -> Iterator[_Chunk]:
        """Copies of what this rank has to write. Collective."""
        parts, kinds = self._told()
        for share in _shares(parts, self._rank.mesh.rank):
            sharded = self._rank.updates.layers[share.layer]
            sizes = [prod(box[1]) for box in share.boxes]
            for kind in kinds:
                values = torch.cat([self._copy(sharded, kind, at, size) for at, size in share.places])
                name = f"{share.label}.{kind}" if kind else share.label
                for box, piece in zip(share.boxes, torch.split(values, sizes), strict=True):
                    yield _Chunk(name, share.shape, box, piece.view(box[1]))

    def _told(self) -> tuple[list[tuple[Part, ...]], list[str]]:
        """The parts that each rank has, and the kinds of each element: itself ("") and the optimizer's state.
        Collective."""
        updates = self._rank.updates
        memories = [sorted(updates.memories(layer.shards[0])) for layer in updates.layers.values() if layer.shards]
        told = tuple(parts_of(self._rank)), memories[0] if memories else []
        words = [pickle.loads(blob) for blob in self._rank.world.gather(pickle.dumps(told))]
        remembered: list[str] = next((kinds for _, kinds in words if kinds), [])
        return [parts for parts, _ in words], ["", *remembered]

    def _copy(self, sharded: ShardedLayer, kind: str, at: int, size: int) -> Tensor:
        """Elements of a layer's flat buffer that this rank updates."""
        (shard,) = (shard for shard in sharded.shards if shard.own.start <= at < shard.own.stop)
        begin = at - shard.own.start
        if not kind:
            return shard.updated[begin : begin + size].to("cpu", copy=True)
        found = []
        for (part, _), parameter in zip(shard.parts, shard.parameters, strict=True):
            first, last = max(part.start, begin), min(part.stop, begin + size)
            if first < last:
                memory: Tensor = self._rank.updates.slices.state(parameter)[kind]
                found.append(memory[first - part.start : last - part.start])
        return torch.cat(found).cpu()


def _shares(of_rank: Sequence[Sequence[Part]], me: int) -> Iterator[_Share]:
    """Divides data that several ranks share: the part of rank `me`."""
    of_label: dict[str, list[tuple[int, Part]]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for rank, parts in enumerate(of_rank):
        for part in parts:
            shapes |= {block.label: block.shape for block in part.cut}
            for label in {block.label for block in part.cut}:
                of_label.setdefault(label, []).append((rank, part))
    given = np.zeros(len(of_rank), np.int64)
    for label, holders in sorted(of_label.items()):
        runs = [within(part.places(label), part.spans) for _, part in holders]
        edges = edges_of(runs)
        owners = np.array([rank for rank, _ in holders])
        having = np.array([has(each, edges) for each in runs])
        by_rank = np.array([having[owners == rank].any(axis=0) for rank in range(len(of_rank))])
        left = givers(by_rank, np.diff(edges), given) == me
        for (rank, part), mine, held in zip(holders, runs, having, strict=True):
            which = left & held
            if rank == me and which.any():
                left &= ~held
                places = stretches(mine, edges, which).tolist()
                yield _Share(label, shapes[label], part.layer, boxes(shapes[label], spans(edges, which)), places)


class _Chunks(dcp.DefaultSavePlanner):
    """Provides the values of items to torch's writer."""

    def __init__(self, chunks: list[_Chunk]) -> None:
        super().__init__()
        self._values = {_index(chunk): chunk.values for chunk in chunks}

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        return self._values[write_item.index].contiguous()


def _index(chunk: _Chunk) -> MetadataIndex:
    return MetadataIndex(chunk.name, chunk.box[0])


def _written(folder: Path, rank: int, chunks: list[_Chunk]) -> _Part:
    """Writes this rank's file."""
    items = [
        WriteItem(
            _index(chunk),
            WriteItemType.SHARD,
            tensor_data=TensorWriteData(
                ChunkStorageMetadata(torch.Size(chunk.box[0]), torch.Size(chunk.box[1])),
                TensorProperties(chunk.values.dtype),
                torch.Size(chunk.shape),
            ),
        )
        for chunk in chunks
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writer = FileSystemWriter(folder)
        empty = [SavePlan([])] * rank
        plan = writer.prepare_global_plan([*empty, SavePlan(items)])[rank]
        written = writer.write_data(plan, _Chunks(chunks)).wait()
    except OSError as error:
        return _Part([], [], error.strerror or str(error))
    return _Part([(each.name, each.shape, each.box, each.values.dtype) for each in chunks], written)


def _named(part: Path, path: Path, every: list[_Part]) -> str:
    """Writes the index of all chunks, and gives the folder its final name; or returns the error."""
    tensors: dict[str, TensorStorageMetadata] = {}
    for each in every:
        for name, shape, (offsets, sizes), dtype in each.chunks:
            about = tensors.setdefault(name, TensorStorageMetadata(TensorProperties(dtype), torch.Size(shape), []))
            about.chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
    try:
        FileSystemWriter(part).finish(Metadata(dict(tensors)), [each.written for each in every])
        shutil.rmtree(path, ignore_errors=True)
        part.rename(path)
    except OSError as error:
        return error.strerror or str(error)
    return ""
