"""A GPT/Llama-like transformer as a flat list of layers: embedding, attention_0, mlp_0, attention_1, .., head.

Each is one residual branch (layer.py says what a layer is, blocks.py and mixture.py make them); the two of a block are
welded once all parallelisms have cut them (parallel.py).
"""

from __future__ import annotations

from syntony.trainer.config import Model
from syntony.trainer.model.blocks import attention, embedding, head, mlp
from syntony.trainer.model.layer import Layer
from syntony.trainer.model.mixture import mixture


def transformer(model: Model, rows: int, even: bool = False) -> list[Layer]:
    """The layers, whole and with all gaps empty, for microbatches of `rows` sequences.

    even    tokens go to experts in turn
    """
    layers = [embedding(model, rows)]
    for index in range(model.blocks):
        layers += [attention(model, rows, index)]
        layers += mixture(model, rows, index, even) if model.experts else [mlp(model, rows, index)]
    return [*layers, head(model, rows)]
