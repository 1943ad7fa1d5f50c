"""Context parallelism: every rank has a part of the sequence. Only attention and positions see more than one token.

    ring       norm qkv -kv-> attend -kv-> attend .. project add      keys and values circulate (ring.py)
    ulysses    norm qkv -----> attend -----> project add              tokens are traded for heads, and back
    usp        norm qkv -----> made -kv-> attend .. -----> project add      both: neighbours trade, rings connect
                                                                            those at the same place

Ulysses: ranks hold all heads of a part of the sequence; an all_to_all turns that into a part of the heads for the whole
sequence, a second one undoes it. A rank sends 4 (n-1)/n of its activations whatever the length; the ranks must divide
the number of heads. If there are fewer heads of keys and values than ranks, they are copied. Jacobs et al., DeepSpeed
Ulysses (2023), section 3.1. Both on a grid: Fang and Zhao, USP (2024), section 4: trades between neighbours stay on
fast wires, and rings have fewer and longer steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from syntony.base.command import UserError
from syntony.trainer.config import Model
from syntony.trainer.model.blocks import attending, heads_of, rotated, shared
from syntony.trainer.model.layer import Branch, ForwardContext, Move, Run, Transfer
from syntony.trainer.parallel.context_parallel import ring
from syntony.trainer.parallel.mesh import Mesh


def positions(mesh: Mesh, length: int) -> Tensor:
    """Places in a sequence of `length` of the tokens that this rank's cp place holds, int64."""
    layout = mesh.layout
    turn, trader = divmod(mesh.place["cp"], layout.trading)
    return ring.positions(layout.attention, turn, layout.rings, length).chunk(layout.trading)[trader]


def context_parallel(branches: Sequence[Branch], model: Model, mesh: Mesh) -> list[Branch]:
    """The branches as rank `mesh.place["cp"]` has them; before tensor_parallel cuts them."""
    ranks = mesh.layout.cp
    if ranks > 1:
        _check(model, mesh)
    found = []
    for branch in branches:
        if branch.kind == "attention" and ranks > 1:
            branch = _attention(branch, model, mesh)
        if branch.kind == "embedding" and model.positions == "learned":
            here = positions(mesh, model.context // mesh.layout.slices)
            if mesh.layout.cuts_sequences:
                here = here.chunk(mesh.size("tp"))[mesh.place["tp"]]
            branch = branch.with_segment(1, _place(here, model.context // mesh.layout.slices))
        found.append(branch)
    return found


def _check(model: Model, mesh: Mesh) -> None:
    layout, heads = mesh.layout, model.heads // mesh.size("tp")
    parts = layout.cp * layout.halves
    if model.context % parts:
        raise UserError(
            f"[parallel] cp is {layout.cp}; [model] context must be a multiple of {parts}, and is {model.context}"
        )
    if heads % layout.trading:
        raise UserError(
            f"[parallel] attention {layout.attention} trades heads between {layout.trading} ranks, which must divide "
            f"a rank's heads, and these are {heads}"
        )
    kv = heads // model.sharing
    if kv % layout.trading and layout.trading % kv:
        raise UserError(
            f"[parallel] attention {layout.attention} trades heads between {layout.trading} ranks; a rank's heads of "
            f"keys and values must be a multiple of them or divide them, and these are {kv}"
        )


def _traded_sharing(model: Model, mesh: Mesh) -> int:
    """The number of heads that share keys and values once there are at least as many of these as trading ranks."""
    kv = model.heads // model.sharing // mesh.size("tp")
    return model.sharing // max(1, mesh.layout.trading // kv)


def _place(here: Tensor, length: int) -> Run:
    def place(context: ForwardContext, x: Tensor) -> tuple[Tensor]:
        return (x + F.embedding(here + context.piece * length, context["positions"]),)

    return place


@dataclass(frozen=True)
class Trade(Transfer):
    """All_to_all: distributes the parts of axis `apart` over the ranks, and concatenates the received along `along`."""

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


@dataclass(frozen=True)
class Shift(Transfer):
    """Sends to the next rank; gradients to the previous one. An all_to_all with a single destination."""

    name: str
    rank: int
    ranks: int

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return shifted(x, self.rank, self.ranks, 1)

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        return shifted(gradient, self.rank, self.ranks, -1)


def shifted(x: Tensor, rank: int, ranks: int, by: int) -> Move:
    """To the rank that is so far ahead in the circle; as much comes from the one that is as far behind."""
    x = x.contiguous()
    rows: tuple[list[int], list[int]] = ([0] * ranks, [0] * ranks)
    for sizes, to in zip(rows, (by, -by), strict=True):
        sizes[(rank + to) % ranks] = len(x)
    return Move(x, torch.empty_like(x), input_sizes=rows[0], output_sizes=rows[1])


def _attention(branch: Branch, model: Model, mesh: Mesh) -> Branch:
    """The branch with traded heads (ulysses), circulating keys and values (ring), or both."""
    layout, depth, sharing = mesh.layout, model.width // model.heads, _traded_sharing(model, mesh)
    norm, qkv, _, project, add = branch.segments
    whole = attending(model, sharing)
    enter, *_, after, leave = branch.points
    runs: list[Run] = [norm]
    points: list[Transfer | None] = [enter]
    into = qkv
    if layout.trading > 1:

        def by_heads(context: ForwardContext, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            made, _ = qkv(context, h, x)
            each = made.view(*made.shape[:2], model.sharing + 2, -1, depth)
            return each if sharing == model.sharing else _copied(each, model.sharing, model.sharing // sharing), x

        def flat(context: ForwardContext, made: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return made.flatten(2), x

        runs.append(by_heads)
        points.append(Trade("to_heads", layout.trading, apart=3, along=1))
        into = flat
    if layout.rings > 1:
        runs += _ring(into, model, mesh)
        turn, between = mesh.place["cp"] // layout.trading, range(1, layout.rings)
        outer, inner = divmod(turn, layout.ring)
        points += [
            Shift(f"ring_{number}", inner, layout.ring)
            if number % layout.ring
            else Shift(f"ring_{number}", outer, layout.rings // layout.ring)
            for number in between
        ]
    else:
        runs.append(lambda context, made, x: whole(context, *into(context, made, x)))
    if layout.trading > 1:
        attend = runs.pop()

        def by_tokens(context: ForwardContext, *tensors: Tensor) -> tuple[Tensor, Tensor]:
            o, x = attend(context, *tensors)
            return o.view(*o.shape[:2], -1, depth), x

        def joined(context: ForwardContext, o: Tensor, x: Tensor) -> tuple[Tensor, ...]:
            return project(context, o.flatten(2), x)

        runs += [by_tokens, joined, add]
        after = Trade("to_tokens", layout.trading, apart=1, along=2)
    else:
        runs += [project, add]
    return replace(branch, segments=tuple(runs), points=(*points, after, leave))


def _copied(made: Tensor, sharing: int, copies: int) -> Tensor:
    """(rows, length, sharing + 2, kv, depth) -> (rows, length, sharing / copies + 2, kv x copies, depth): more heads of
    keys and values, equal ones beside each other, each for fewer queries."""
    q, kv = made[:, :, :sharing], made[:, :, sharing:].repeat_interleave(copies, 3)
    rows, length, _, heads, depth = made.shape
    q = q.reshape(rows, length, copies, sharing // copies, heads, depth).permute(0, 1, 3, 4, 2, 5).flatten(3, 4)
    return torch.cat((q, kv), 2)


def _ring(qkv: Run, model: Model, mesh: Mesh) -> list[Run]:
    """made | step 1 | .. : the first extracts q, k and v from the output of `qkv`, the last passes on the output."""
    layout, depth, sharing = mesh.layout, model.width // model.heads, _traded_sharing(model, mesh)
    rank, ranks, form = mesh.place["cp"] // layout.trading, layout.rings, layout.attention
    held, tokens = ring.runs(form, rank, ranks, model.context), model.context // ranks

    def turned(x: Tensor) -> Tensor:
        if model.positions != "rotary":
            return x
        parts = zip(torch.split(x, [run.size for run in held], 2), held, strict=True)
        return torch.cat([rotated(part, run.begin, run.step) for part, run in parts], 2)

    def made(context: ForwardContext, h: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = heads_of(qkv(context, h, x)[0], depth, sharing)
        kv = torch.stack((turned(k), v), 1)
        return kv, kv, turned(q), x

    def each(kv: Tensor) -> tuple[Tensor, Tensor]:
        return shared(kv[:, 0], sharing), shared(kv[:, 1], sharing)

    def step(number: int) -> Run:
        source = ring.source(rank, ranks, layout.ring, number)
        there, last = ring.seen(form, rank, source, tokens), number == ranks - 1

        def run(context: ForwardContext, kv: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
            if number == 1:
                own, q, x = rest
                here = ring.seen(form, rank, rank, tokens)
                state = ring.attend(q, *each(own), here, ring.begin(q), last=False)
            else:
                q, x, *others = rest
                state = (others[0], others[1], others[2])
            state = ring.attend(q, *each(kv), there, state, last)
            return (state[0].transpose(1, 2).flatten(2), x) if last else (kv, q, x, *state)

        return run

    return [made, *map(step, range(1, ranks))]
