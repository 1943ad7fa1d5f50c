"""Checkpoints through torch.distributed.checkpoint, with tensors under canonical names, independent of the layout.

    attention_0.qkv            weights, float32
    attention_0.qkv.exp_avg    the optimizer's state of them
    optimizer.step             the optimizer's counter
    trainer                    JSON: step, seed, and the hash of the text (the loader's whole state), as bytes
    rng                        torch's random numbers

Every rank writes a part of what it has (saving.py). A part is read once, whatever the new layout, and moves from there
to all other ranks that need it (moving.py).
"""

from __future__ import annotations

import hashlib
import json
import pickle
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import MetadataIndex

from syntony.base.command import UserError
from syntony.trainer.run.rank import Rank
from syntony.trainer.state.moving import Moving
from syntony.trainer.state.parts import parts_of
from syntony.trainer.state.runs import Integers, Runs, joined, runs_of


@dataclass(frozen=True)
class Progress:
    """Where training is: steps done, the seed, and the hash of the text."""

    step: int
    seed: int
    digest: str


@dataclass(frozen=True)
class Loaded:
    """A loaded checkpoint: bytes that were read, and that moved between ranks, over all ranks."""

    progress: Progress
    read: int
    moved: int


def whole(rank: Rank) -> dict[str, Tensor]:
    """All tensors, whole, on rank 0; empty on others. Between steps. Collective."""
    mine = [
        (name, weight.full_shape, weight.place, block.to("cpu", copy=True)) for name, weight, block in rank.tensors()
    ]
    keep = rank.mesh.place["data"] == 0 or any(sharded.layer.expert for sharded in rank.updates.layers.values())
    blobs = rank.world.gather(pickle.dumps(mine if keep else []))
    if rank.mesh.rank:
        return {}
    found: dict[str, Tensor] = {}
    for blob in blobs:
        for name, shape, place, block in pickle.loads(blob):
            found.setdefault(name, torch.empty(shape, device="cpu"))[place] = block
    return dict(sorted(found.items()))


def digest(rank: Rank) -> str:
    """sha256 of all weights, on rank 0. At rest. Collective."""
    found = hashlib.sha256()
    names = {layer.label(weight) for layer, _ in rank.parts.values() for weight in layer.weights}
    for name, tensor in whole(rank).items():
        if name in names:
            found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def newest(folder: str) -> str:
    """The checkpoint with the most steps in a folder; "" if there is none."""
    found = {int(path.name[5:]): path for path in Path(folder).glob("step-*") if path.name[5:].isdecimal()}
    return str(found[max(found)]) if found else ""


def load(rank: Rank, folder: str) -> Loaded:
    """Loads a checkpoint into a rank that has begun. Raises UserError if it is not of this model.
    Collective."""
    reader = dcp.FileSystemReader(folder)
    try:
        stored = reader.read_metadata()
    except Exception as error:  # torch's reader raises anything for an invalid folder
        raise UserError(f"[run] resume: {folder} is not a checkpoint: {error}") from None
    known: Mapping[str, Any] = stored.state_dict_metadata
    for sharded in rank.updates.layers.values():
        for weight, _ in sharded.flat.places:
            stem = sharded.layer.label(weight)
            if stem not in known or tuple(known[stem].size) != weight.full_shape:
                has = f"has it as {tuple(known[stem].size)}" if stem in known else "has none"
                raise UserError(f"[run] resume: the model has a weight {stem} of {weight.full_shape}, {folder} {has}")
    names = {"trainer", "rng", *(name for name in known if name.startswith("optimizer."))}
    small = {name: torch.empty(known[name].size, dtype=known[name].properties.dtype, device="cpu") for name in names}
    with warnings.catch_warnings(action="ignore"):  # torch warns that a single process reads, which is intended
        dcp.load(small, storage_reader=reader, no_dist=True)
    counts = {name.partition(".")[2]: value for name, value in small.items() if name.startswith("optimizer.")}
    every = [pickle.loads(blob) for blob in rank.world.gather(pickle.dumps(list(parts_of(rank))))]
    moving = Moving(rank.mesh.rank, every, _Files(Path(folder), stored, len(every)), rank.world.swap)
    for index, flats in moving.layers({i: sharded.flat.elements for i, sharded in rank.updates.layers.items()}):
        for kind, flat in flats.items():
            rank.updates.restore(index, kind, flat, counts)
    torch.set_rng_state(small["rng"])
    return Loaded(Progress(**json.loads(bytes(small["trainer"].numpy()))), 4 * moving.read, 4 * moving.moved)


class _Files:
    """A checkpoint as the memory of all ranks: a tensor's chunks one after the other, with an element between."""

    everybody = True

    def __init__(self, folder: Path, stored: dcp.Metadata, ranks: int) -> None:
        self._folder, self._stored, self._ranks = folder, stored, ranks
        self._known: Mapping[str, Any] = stored.state_dict_metadata
        self._kinds: dict[str, list[str]] = {}
        for name in sorted(stored.state_dict_metadata):
            label, _, kind = name.rpartition(".")
            self._kinds.setdefault(name, []).append("")
            self._kinds.setdefault(label, []).append(kind)
        self._open = lru_cache(64)(self._opened)

    def kinds(self, label: str) -> Sequence[str]:
        return self._kinds[label]

    def having(self, label: str, kind: str) -> Sequence[Runs]:
        chunks, starts = self._chunks(label, kind)
        shape = self._known[_name(label, kind)].size
        runs = [runs_of(shape, (chunk.offsets, chunk.sizes), at) for chunk, at in zip(chunks, starts, strict=True)]
        return [joined(runs)] * self._ranks

    def read(self, label: str, kind: str, places: Integers) -> Tensor:
        chunks, starts = self._chunks(label, kind)
        found = []
        for place, size in places.tolist():
            number = int(np.searchsorted(starts, place, "right")) - 1
            elements = self._open(_name(label, kind), tuple(chunks[number].offsets), chunks[number].sizes.numel())
            found.append(elements[place - starts[number] :][:size])
        return torch.from_numpy(np.concatenate(found))

    def _chunks(self, label: str, kind: str) -> tuple[list[Any], list[int]]:
        chunks = self._known[_name(label, kind)].chunks
        return chunks, np.cumsum([0, *(chunk.sizes.numel() + 1 for chunk in chunks)])[:-1].tolist()

    def _opened(self, name: str, offsets: tuple[int, ...], elements: int) -> Any:
        """A chunk's elements, of which only the used ones are read: in torch.save's format (an uncompressed ZIP file)
        they are contiguous."""
        found = self._stored.storage_data[MetadataIndex(name, offsets)]
        path = self._folder / found.relative_path
        with path.open("rb") as file:
            slice_of = _Window(file, found.offset, found.length)
            (entry,) = (each for each in zipfile.ZipFile(slice_of).infolist() if each.filename.endswith("/data/0"))
            file.seek(found.offset + entry.header_offset + 26)
            lengths = int.from_bytes(file.read(2), "little") + int.from_bytes(file.read(2), "little")
        begin = found.offset + entry.header_offset + 30 + lengths
        return np.memmap(path, np.float32, "r", begin, (elements,))


class _Window:
    """Bytes [begin, begin + size) of a file as a file, for a reader."""

    def __init__(self, file: Any, begin: int, size: int) -> None:
        self._file, self._begin, self._size, self._at = file, begin, size, 0

    def seek(self, to: int, whence: int = 0) -> int:
        self._at = to + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def read(self, count: int = -1) -> bytes:
        left = max(0, self._size - self._at)
        self._file.seek(self._begin + self._at)
        found: bytes = self._file.read(left if count < 0 else min(count, left))
        self._at += len(found)
        return found


def _name(label: str, kind: str) -> str:
    return f"{label}.{kind}" if kind else label
