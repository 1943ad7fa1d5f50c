"""Checkpoints through torch.distributed.checkpoint, whole tensors under canonical names: no layout is in them.

    attention_0.qkv            weights, float32
    attention_0.qkv.exp_avg    what the optimizer remembers of them
    optimizer.step             what it counts
    trainer                    JSON: step, seed, and the hash of the text (the loader's whole state), as bytes
    rng                        torch's random numbers

Rank 0 collects and writes, beside the folder first; every rank reads what it needs, whatever the layout now is.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor

from syntony.base.command import UserError
from syntony.base.files.whole_file import beside
from syntony.trainer.parallel.data_parallel.sharded_layer import ShardedLayer
from syntony.trainer.run.rank import Rank


@dataclass(frozen=True)
class Progress:
    """Where training is: steps done, the seed, and the hash of the text."""

    step: int
    seed: int
    digest: str


def whole(rank: Rank) -> dict[str, Tensor]:
    """All tensors, whole: on rank 0; empty on others. At rest. Collective."""
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


def save(rank: Rank, folder: str, progress: Progress) -> Path:
    """Writes `folder`/step-N, complete or not at all. Collective."""
    rank.rest()
    path = Path(folder) / f"step-{progress.step}"
    tensors: dict[str, Any] = dict(whole(rank))
    if rank.mesh.rank == 0:
        tensors |= {f"optimizer.{name}": value for name, value in rank.updates.counts().items()}
        text = json.dumps(vars(progress))
        tensors |= {
            "trainer": torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8),
            "rng": torch.get_rng_state(),
        }
        part = beside(path)
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            part.mkdir()
            with _quietly():
                dcp.save(tensors, checkpoint_id=part, no_dist=True)
            shutil.rmtree(path, ignore_errors=True)
            part.rename(path)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise UserError(f"[run] save: {path} cannot be written: {error.strerror}") from None
    rank.world.gather(b"written", 8)
    return path


def _quietly() -> warnings.catch_warnings[None]:
    """Without torch's remark that one process alone writes or reads: it is meant to."""
    return warnings.catch_warnings(action="ignore")


def newest(folder: str) -> str:
    """The checkpoint of most steps in a folder; "" where there is none."""
    found = {int(path.name[5:]): path for path in Path(folder).glob("step-*") if path.name[5:].isdecimal()}
    return str(found[max(found)]) if found else ""


def load(rank: Rank, folder: str) -> Progress:
    """Puts a checkpoint's state into a rank that has begun. Raises UserError for one that is not of this model."""
    reader = dcp.FileSystemReader(folder)
    try:
        known: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
    except Exception as error:  # whatever torch's reader makes of a folder that is none
        raise UserError(f"[run] resume: {folder} is no checkpoint: {error}") from None
    names = {"trainer", "rng", *(name for name in known if name.startswith("optimizer."))}
    for sharded in rank.updates.layers.values():
        for weight, _ in sharded.flat.places:
            stem = sharded.layer.label(weight)
            if stem not in known or tuple(known[stem].size) != weight.full_shape:
                has = f"has it as {tuple(known[stem].size)}" if stem in known else "has none"
                raise UserError(f"[run] resume: the model has a weight {stem} of {weight.full_shape}, {folder} {has}")
            names |= {name for name in known if name == stem or name.startswith(f"{stem}.")}
    tensors = {name: torch.empty(known[name].size, dtype=known[name].properties.dtype, device="cpu") for name in names}
    with _quietly():
        dcp.load(tensors, storage_reader=reader, no_dist=True)
    counts = {name.partition(".")[2]: value for name, value in tensors.items() if name.startswith("optimizer.")}
    for sharded in rank.updates.layers.values():
        restore(rank, sharded, tensors, counts)
    torch.set_rng_state(tensors["rng"])
    return Progress(**json.loads(bytes(tensors["trainer"].numpy())))


def restore(rank: Rank, sharded: ShardedLayer, tensors: Mapping[str, Tensor], counts: Mapping[str, Tensor]) -> None:
    """Puts whole tensors, by their names in a checkpoint, in the place of what a rank has of one layer.

    counts    what the optimizer counts
    """
    first, _ = sharded.flat.places[0]
    stem = sharded.layer.label(first)
    kinds = sorted(name[len(stem) + 1 :] for name in tensors if name.startswith(f"{stem}."))
    for kind in ("", *kinds):
        flat = torch.zeros(sharded.flat.elements)
        for weight, at in sharded.flat.places:
            source = tensors[".".join(filter(None, (sharded.layer.label(weight), kind)))]
            flat[at : at + weight.elements] = source[weight.place].flatten()
        rank.updates.restore(sharded.index, kind, flat, counts)
