"""Training text, as bytes: by default the sources of Python's standard library, which every machine with Python has.

Files are split 9 to 1 into training and validation text by their own hash, so a new file does not move others. A batch
depends only on seed, step and global microbatch index: a microbatch is the same on every rank, in every layout, and
after every resume. So the loader's whole state is the step, and the hash of the text.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syntony.base.command import UserError
from syntony.trainer.config import Config, Data
from syntony.trainer.parallel.context_parallel.split import positions
from syntony.trainer.parallel.mesh import Mesh

Bytes = npt.NDArray[np.uint8]
Microbatches = Sequence[tuple[Tensor, Tensor]]
_OTHERS = {"site-packages", "dist-packages", "__pycache__", "test", "tests"}


@dataclass(frozen=True)
class Text:
    """`digest`: sha256 of all of it, in hexadecimal."""

    training: Bytes
    validation: Bytes
    files: int
    digest: str

    def batch(self, seed: int, step: int | None, index: int, rows: int, context: int) -> tuple[Tensor, Tensor]:
        """Microbatch `index` of a step: (rows, context) tokens, int64, and the tokens that follow each of them.

        step    None: of the validation text, always the same
        """
        if step is None:
            return _windows(self.validation, (seed, index), rows, context)
        return _windows(self.training, (seed, step, index), rows, context)


@dataclass(frozen=True)
class Loader:
    """One rank's part of each step's text: its microbatches, and its part of their sequences."""

    text: Text
    config: Config
    mesh: Mesh

    def __call__(self, step: int | None) -> Microbatches:
        """(tokens, targets) of every microbatch; without a step, of the held-out text."""
        config, run = self.config, self.config.run
        turns = config.data.microbatches // config.parallel.dp
        found: list[tuple[Tensor, Tensor]] = []
        for index in range(self.mesh.place["dp"] * turns, (self.mesh.place["dp"] + 1) * turns):
            whole = self.text.batch(config.run.seed, step, index, config.data.rows_at(index), config.model.context)
            found += zip(*(parts_of(each.to(run.device), config, self.mesh) for each in whole), strict=True)
        return found


def parts_of(whole: Tensor, config: Config, mesh: Mesh) -> tuple[Tensor, ...]:
    """A rank's part of a microbatch (rows, context): of its sequences, and of each the tokens, in slices."""
    mine = whole.chunk(config.parallel.batch_parts)[mesh.place["rows"]]
    return mine[:, positions(mesh, config.model.context)].contiguous().chunk(config.parallel.slices, 1)


def _windows(text: Bytes, key: tuple[int, ...], rows: int, context: int) -> tuple[Tensor, Tensor]:
    starts = np.random.default_rng(key).integers(0, text.size - context, rows)
    windows = torch.from_numpy(text[starts[:, None] + np.arange(context + 1)].astype(np.int64))
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def read(data: Data, context: int, held_out: bool = False) -> Text:
    """The text of `[data]`. Raises UserError if there is none, or too little for one sequence."""
    if data.source == "stdlib":
        folder, pattern = Path(sysconfig.get_path("stdlib")), "*.py"
    else:
        folder, pattern = Path(data.source), data.pattern
    if folder.is_file():
        paths = [folder]
    else:
        paths = sorted(p for p in folder.rglob(pattern) if p.is_file() and not _OTHERS & set(p.parts[:-1]))
    if not paths:
        raise UserError(f"[data] source {data.source!r}: there is no file {pattern!r} in it")
    parts: dict[bool, list[bytes]] = {True: [], False: []}
    everything = hashlib.sha256()
    for path in paths:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"[data] source: {path} cannot be read: {error.strerror}") from None
        mark = hashlib.sha256(content)
        everything.update(mark.digest())
        parts[mark.digest()[0] < 26 and len(paths) > 1].append(content)
    if len(paths) == 1:  # one file: its last tenth
        (content,) = parts[False]
        parts = {False: [content[: -len(content) // 10]], True: [content[-len(content) // 10 :]]}
    training, validation = (np.frombuffer(b"\n".join(parts[which]), np.uint8) for which in (False, True))
    for size, what in ((training.size, "to learn"), (validation.size, "held out")):
        if size <= context + 1 and (held_out or what == "to learn"):
            raise UserError(f"[data] source {data.source!r} has {size} bytes {what}; one sequence takes {context + 1}")
    return Text(training, validation, len(paths), everything.hexdigest())
