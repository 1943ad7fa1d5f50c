"""Context parallelism: every rank has a part of the sequence. Only attention and positions see more than one token.

    ring       norm qkv -kv-> attend -kv-> attend .. project add      keys and values go round (ring.py)
    ulysses    norm qkv -----> attend -----> project add              tokens are traded for heads, and back

Ulysses: ranks hold all heads of a part of the sequence; an all_to_all makes of it a part of the heads for all of the
sequence, a second one undoes that. A rank sends 4 (n-1)/n of its activations whatever the length; heads must divide by
the ranks. Jacobs et al., DeepSpeed Ulysses (2023), section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from syntony.base.command import UserError
from syntony.trainer.config import Model
from syntony.trainer.model.blocks import heads_of, rotated
from syntony.trainer.model.layer import Branch, ForwardContext, Move, Run, Transfer
from syntony.trainer.parallel.context_parallel import ring
from syntony.trainer.parallel.mesh import Mesh


def positions(mesh: Mesh, length: int) -> Tensor:
    """Places in a sequence of `length` of the tokens that this rank's cp place holds, int64."""
    rank, ranks = mesh.place["cp"], mesh.size("cp")
    if mesh.layout.attention == "ring":
        return ring.positions(rank, ranks, length)
    return torch.arange(length).chunk(ranks)[rank]


def context_parallel(branches: Sequence[Branch], model: Model, mesh: Mesh) -> list[Branch]:
    """The branches as rank `mesh.place["cp"]` has them; before tensor_parallel cuts them."""
    ranks = mesh.size("cp")
    if ranks > 1:
        _check(model, mesh)
    found = []
    for branch in branches:
        if branch.kind == "attention" and ranks > 1:
            branch = (_ring if mesh.layout.attention == "ring" else _ulysses)(branch, model, mesh)
        if branch.kind == "embedding" and model.positions == "learned":
            here = positions(mesh, model.context)
            if mesh.layout.sequence:
                here = here.chunk(mesh.size("tp"))[mesh.place["tp"]]
            branch = branch.with_segment(1, _place(here))
        found.append(branch)
    return found


def _check(model: Model, mesh: Mesh) -> None:
    ranks, heads = mesh.size("cp"), model.heads // mesh.size("tp")
    parts = ranks * (2 if mesh.layout.attention == "ring" else 1)
    if model.context % parts:
        raise UserError(
            f"[parallel] cp is {ranks}; [model] context must be a multiple of {parts}, and is {model.context}"
        )
    if mesh.layout.attention == "ulysses" and heads % ranks:
        raise UserError(f"[parallel] cp is {ranks}; ulysses needs it to divide a rank's heads, and these are {heads}")


def _place(here: Tensor) -> Run:
    def place(context: ForwardContext, x: Tensor) -> tuple[Tensor]:
        return (x + F.embedding(here, context["positions"]),)

    return place


@dataclass(frozen=True)
class Trade(Transfer):
    """All_to_all: the parts of axis `apart` go to the ranks, what they send is put together along axis `along`."""

    name: str
    ranks: int
    apart: int
    along: int

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return self._traded(x, self.apart, self.along)

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return self._traded(gradient, self.along, self.apart)

    def _traded(self, x: Tensor, apart: int, along: int) -> Move:
        parts = torch.stack(x.chunk(self.ranks, apart))
        return Move(parts, torch.empty_like(parts), lambda found: torch.cat(tuple(found), along))


def _ulysses(branch: Branch, model: Model, mesh: Mesh) -> Branch:
    depth, ranks = model.width // model.heads, mesh.size("cp")
    qkv, attend, project = branch.segments[1:4]

    def by_heads(context: ForwardContext, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        made, _ = qkv(context, h, x)
        return made.view(*made.shape[:2], 3, -1, depth), x

    def all_tokens(context: ForwardContext, made: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        o, _ = attend(context, made.flatten(2), x)
        return o.view(*o.shape[:2], -1, depth), x

    def joined(context: ForwardContext, o: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return project(context, o.flatten(2), x)

    for index, run in enumerate((by_heads, all_tokens, joined), start=1):
        branch = branch.with_segment(index, run)
    branch = branch.with_point(1, Trade("to_heads", ranks, apart=3, along=1))
    return branch.with_point(2, Trade("to_tokens", ranks, apart=1, along=2))


@dataclass(frozen=True)
class Shift(Transfer):
    """To the next rank; gradients to the one before. An all_to_all in which everything goes to one rank."""

    name: str
    rank: int
    ranks: int

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return self._shifted(x, 1)

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return self._shifted(gradient, -1)

    def _shifted(self, x: Tensor, by: int) -> Move:
        x = x.contiguous()
        rows: tuple[list[int], list[int]] = ([0] * self.ranks, [0] * self.ranks)
        for sizes, to in zip(rows, (by, -by), strict=True):
            sizes[(self.rank + to) % self.ranks] = len(x)
        return Move(x, torch.empty_like(x), input_sizes=rows[0], output_sizes=rows[1])


def _ring(branch: Branch, model: Model, mesh: Mesh) -> Branch:
    depth, rank, ranks = model.width // model.heads, mesh.place["cp"], mesh.size("cp")
    held = [ring.pieces(r, ranks) for r in range(ranks)]
    begin = [piece * (model.context // ranks // 2) for piece in held[rank]]
    norm, qkv, _, project, add = branch.segments

    def turned(x: Tensor) -> Tensor:
        if model.positions != "rotary":
            return x
        return torch.cat([rotated(part, at) for part, at in zip(x.chunk(len(begin), 2), begin, strict=True)], 2)

    def made(context: ForwardContext, h: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = heads_of(qkv(context, h, x)[0], depth)
        kv = torch.stack((turned(k), v), 1)
        return kv, kv, turned(q), x

    def step(number: int) -> Run:
        source = held[(rank - number) % ranks]

        def seen(context: ForwardContext, kv: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
            if number == 1:
                own, q, x = rest
                o, total = ring.attend(q, own[:, 0], own[:, 1], held[rank], held[rank], None)
            else:
                q, x, o, total = rest
            o, total = ring.attend(q, kv[:, 0], kv[:, 1], held[rank], source, (o, total))
            return (o.transpose(1, 2).flatten(2), x) if number == ranks - 1 else (kv, q, x, o, total)

        return seen

    steps = [step(number) for number in range(1, ranks)]
    shifts = [Shift(f"ring_{number}", rank, ranks) for number in range(1, ranks)]
    return replace(
        branch,
        segments=(norm, made, *steps, project, add),
        points=(branch.points[0], *shifts, *branch.points[2:]),
    )
