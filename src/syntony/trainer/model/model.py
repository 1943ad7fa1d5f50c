"""A GPT/Llama-like transformer as a flat list of branches: embedding, attention_0, mlp_0, attention_1, .., head.

layer.py defines branches, blocks.py and mixture.py make them; the two of a block are merged once all parallelisms have
cut them (parallel.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from syntony.trainer.config import Model
from syntony.trainer.model.blocks import attention, embedding, head, mlp
from syntony.trainer.model.layer import Branch
from syntony.trainer.model.mixture import mixture
from syntony.trainer.model.places import Places


def transformer(
    model: Model, even: bool = False, skew: float = 0.0, places: Mapping[int, Places] = MappingProxyType({})
) -> list[Branch]:
    """The branches, whole and without communication. `even`: tokens go to experts in turn, or (`skew`) by Zipf's law
    with this exponent, regardless of content. `places`: of the experts, by block, if they move."""
    branches = [embedding(model)]
    for index in range(model.blocks):
        branches += [attention(model, index)]
        branches += mixture(model, index, even, skew, places.get(index)) if model.experts else [mlp(model, index)]
    return [*branches, head(model)]
