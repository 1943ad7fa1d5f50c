"""A small byte-level transformer decoder with pre-normalization.

byte -> embedding + position -> [ x + attention(norm x) -> x + mlp(norm x) ] * layers -> norm -> 256 logits
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BYTES = 256


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; `width` is divided among `heads`."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    context: int = 64


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.project_in = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.project_out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) -> the same."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project_in(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        projected: Tensor = self.project_out(mixed.transpose(1, 2).flatten(-2))
        return projected


class Block(nn.Module):
    """One layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.norm_mlp = nn.LayerNorm(shape.width)
        self.mlp = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) -> the same."""
        x = x + self.attention(self.norm_attention(x))
        out: Tensor = x + self.mlp(self.norm_mlp(x))
        return out


class Transformer(nn.Module):
    """Predicts the next byte."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, shape.width)
        self.position = nn.Parameter(torch.zeros(shape.context, shape.width))
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, BYTES, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, bytes_in: Tensor, bytes_out: Tensor) -> Tensor:
        """Mean cross-entropy, in nats per byte, of (batch, time) bytes."""
        hidden = self.embedding(bytes_in) + self.position[: bytes_in.shape[1]]
        logits = self.head(self.norm(self.blocks(hidden)))
        return functional.cross_entropy(logits.flatten(0, 1), bytes_out.flatten())
