"""The dense layers of a transformer: embedding, attention, MLP and head, whole and without communication."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from syntony.trainer.config import Model
from syntony.trainer.model.layer import Branch, ForwardContext, Weight


def normed(context: ForwardContext, x: Tensor, name: str = "norm") -> tuple[Tensor, Tensor]:
    """(x) -> (normed, x). RMSNorm (Zhang and Sennrich 2019)."""
    return F.rms_norm(x, x.shape[-1:], context[name], 1e-6), x


def added(context: ForwardContext, y: Tensor, x: Tensor) -> tuple[Tensor]:
    """(y, x) -> (x + y)"""
    return (x + y,)


# Embedding: (tokens) -> | add | -> (x).  Segments: look-up, positions.


def embedding(model: Model) -> Branch:
    """Segments: embed | place. `tokens` (rows, length) int64 -> x (rows, length, width)."""
    weights = [Weight("tokens", (model.vocabulary, model.width), 0.02)]
    learned = model.positions == "learned"
    if learned:
        weights.append(Weight("positions", (model.context, model.width), 0.02))

    def embed(context: ForwardContext, tokens: Tensor) -> tuple[Tensor]:
        return (F.embedding(tokens, context["tokens"]),)

    def place(context: ForwardContext, x: Tensor) -> tuple[Tensor]:
        begin = context.piece * x.shape[1]
        return (x + context["positions"][begin : begin + x.shape[1]] if learned else x,)

    return Branch("embedding", -1, tuple(weights), (embed, place), (None,))


def attention(model: Model, index: int) -> Branch:
    """Segments: norm | qkv | attend | project | add. Tensors between them: (rows, length, width), and the output of
    qkv: for every head of keys and values, the queries that share it, then its key and its value, (rows, length,
    sharing + 2, kv, depth) in one."""
    width = model.width
    spread = 0.02
    weights = (
        Weight("qkv", (model.sharing + 2, width // model.sharing, width), spread),
        Weight("project", (width, width), spread / math.sqrt(2 * model.blocks)),
        Weight("norm", (width,), 0),
    )

    def qkv(context: ForwardContext, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return context.linear(h, "qkv"), x

    def project(context: ForwardContext, o: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return context.linear(o, "project"), x

    return Branch(
        "attention", index, weights, (normed, qkv, attending(model, model.sharing), project, added), (None,) * 4
    )


def attending(model: Model, sharing: int) -> Callable[[ForwardContext, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The segment attend, if `sharing` heads share keys and values: (made, x) -> (rows, length, heads x depth), x."""
    depth, rotary = model.width // model.heads, model.positions == "rotary"

    def attend(context: ForwardContext, made: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        pieces, (q, k, v) = context.pieces(), heads_of(made, depth, sharing)
        if pieces is None:
            return causal((q, shared(k, sharing), shared(v, sharing)), rotary), x
        begin = context.piece * q.shape[2]
        q, k = (rotated(each, begin) if rotary else each for each in (q, k))
        o = pieces.attend(context.piece, q, shared(k, sharing), shared(v, sharing))
        return o.transpose(1, 2).flatten(2), x

    return attend


def heads_of(made: Tensor, depth: int, sharing: int) -> tuple[Tensor, Tensor, Tensor]:
    """q (rows, heads, length, depth), k and v (rows, kv, length, depth) from the output of qkv; heads that share keys
    and values are adjacent."""
    rows, length, _ = made.shape
    parts = made.view(rows, length, sharing + 2, -1, depth).permute(2, 0, 3, 1, 4)
    if sharing == 1:
        q, k, v = parts
        return q, k, v
    return parts[:sharing].permute(1, 2, 0, 3, 4).flatten(1, 2), parts[sharing], parts[sharing + 1]


def causal(qkv: tuple[Tensor, Tensor, Tensor], rotary: bool) -> Tensor:
    """Causal attention: (rows, length, heads x depth)."""
    q, k, v = qkv
    if rotary:
        q, k = rotated(q), rotated(k)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return o.transpose(1, 2).flatten(2)


def shared(x: Tensor, sharing: int) -> Tensor:
    """Repeats keys or values (rows, kv, length, depth) for every head that shares them."""
    return x if sharing == 1 else x.repeat_interleave(sharing, 1)


def rotated(x: Tensor, start: int = 0, step: int = 1) -> Tensor:
    """Rotary positions start, start + step, .. (Su et al. 2021) on x (rows, heads, length, depth)."""
    cosine, sine = _angles(range(start, start + step * x.shape[2], step), x.shape[3], x.dtype, x.device)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


@lru_cache(maxsize=64)
def _angles(places: range, depth: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        speeds = 10000.0 ** (-torch.arange(0, depth, 2, dtype=torch.float64, device="cpu") / depth)
        at = torch.arange(places.start, places.stop, places.step, dtype=torch.float64, device="cpu")
        angles = at[:, None] * speeds
        return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def mlp(model: Model, index: int) -> Branch:
    """Segments: norm | feed | add."""
    up, down, feed = feed_forward(model)
    weights = (up, down, Weight("feed_norm", (model.width,), 0))

    def norm(context: ForwardContext, x: Tensor) -> tuple[Tensor, Tensor]:
        return normed(context, x, "feed_norm")

    def branch(context: ForwardContext, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return feed(context, h), x

    return Branch("mlp", index, weights, (norm, branch, added), (None,) * 2)


def feed_forward(model: Model) -> tuple[Weight, Weight, Callable[..., Tensor]]:
    """Weights up and down, and the function feed(context, h, block=None, source=0, of=""). `of`: a prefix of the
    weights' names."""
    gated = model.activation == "swiglu"
    up = Weight("up", (1 + gated, model.hidden, model.width), 0.02)
    down = Weight("down", (model.width, model.hidden), 0.02 / math.sqrt(2 * model.blocks))

    def feed(context: ForwardContext, h: Tensor, block: int | None = None, source: int = 0, of: str = "") -> Tensor:
        made = activated(model, context.linear(h, f"{of}up", block, source))
        return context.linear(made, f"{of}down", block, source)

    return up, down, feed


def activated(model: Model, made: Tensor) -> Tensor:
    """The activation between up and down."""
    if model.activation == "gelu":
        return F.gelu(made, approximate="tanh")
    gate, value = made.chunk(2, dim=-1)
    return F.silu(gate) * value


def head(model: Model) -> Branch:
    """Segments: norm | logits | loss. (x, targets) -> (mean loss in nats per token,)."""
    weights = (Weight("logits", (model.vocabulary, model.width), 0.02), Weight("norm", (model.width,), 0))

    def norm(context: ForwardContext, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return normed(context, x)[0], targets

    def logits(context: ForwardContext, h: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return context.linear(h, "logits"), targets

    def loss(context: ForwardContext, made: Tensor, targets: Tensor) -> tuple[Tensor]:
        return (F.cross_entropy(made.flatten(0, 1).float(), targets.flatten()),)

    return Branch("head", -1, weights, (norm, logits, loss), (None, None))
