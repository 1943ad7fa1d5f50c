"""Shapes of models: published ones by name, and a user's own (`gpt:hidden=512,blocks=8`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from syntony.base.command import UserError
from syntony.base.wording import did_you_mean


@dataclass(frozen=True)
class ModelSpec:
    """A transformer's shape.

    kv      heads of keys and values (grouped-query attention)
    gated   three matrices in an MLP, as in Llama, instead of two
    seq     tokens of a sequence
    every   each so manieth block has experts instead of an MLP
    source  who published the shape
    learned, together    positions are weights, and so many blocks are one layer (the trainer's choice)
    """

    hidden: int
    blocks: int
    heads: int
    kv: int
    ffn: int
    vocab: int
    seq: int
    gated: bool = False
    experts: int = 0
    top_k: int = 0
    every: int = 1
    source: str = ""
    learned: bool = False
    together: int = 1

    @property
    def parameters(self) -> int:
        """Of the whole model, norms left out."""
        attention = self.hidden * self.hidden * 2 + 2 * self.hidden * self.hidden * self.kv // self.heads
        mlp = (3 if self.gated else 2) * self.hidden * self.ffn
        with_experts = self.blocks // self.every if self.experts else 0
        router = with_experts * self.hidden * self.experts
        mlps = self.blocks - with_experts + with_experts * self.experts
        return self.blocks * attention + mlps * mlp + router + 2 * self.vocab * self.hidden


_GPT2, _GPT3 = "Radford et al. (2019)", "Brown et al. (2020), table 2.1"
MODELS: Mapping[str, ModelSpec] = MappingProxyType(
    {
        "thin": ModelSpec(192, 24, 6, 6, 768, 256, 128, source="ours: many small layers, 11 million parameters, bytes"),
        "thin-moe": ModelSpec(256, 8, 8, 8, 1024, 256, 128, experts=8, top_k=2, every=2, source="ours"),
        "gpt2": ModelSpec(768, 12, 12, 12, 3072, 50257, 1024, source=_GPT2),
        "gpt2-xl": ModelSpec(1600, 48, 25, 25, 6400, 50257, 1024, source=_GPT2),
        "bert-large": ModelSpec(1024, 24, 16, 16, 4096, 30522, 512, source="Devlin et al. (2019)"),
        "gpt3-6.7b": ModelSpec(4096, 32, 32, 32, 16384, 50257, 2048, source=_GPT3),
        "gpt3-175b": ModelSpec(12288, 96, 96, 96, 49152, 50257, 2048, source=_GPT3),
        "llama2-7b": ModelSpec(4096, 32, 32, 32, 11008, 32000, 4096, True, source="Touvron et al. (2023)"),
        "llama2-70b": ModelSpec(8192, 80, 64, 8, 28672, 32000, 4096, True, source="Touvron et al. (2023)"),
        "llama3-8b": ModelSpec(4096, 32, 32, 8, 14336, 128256, 8192, True, source="Grattafiori et al. (2024), table 3"),
        "internlm2-102b": ModelSpec(
            10240, 80, 80, 8, 33280, 92544, 4096, True,
            source="assumed: InternLM2's family and vocabulary, sized to 102 billion parameters; no shape is published",
        ),
        "mixtral-8x7b": ModelSpec(
            4096, 32, 32, 8, 14336, 32000, 4096, True, 8, 2, source="Jiang et al. (2024), table 1; 4,096 tokens"
        ),
        "gshard-600b": ModelSpec(
            1024, 36, 16, 16, 8192, 64000, 1024, False, 2048, 2, 2,
            source="Lepikhin et al. (2020), table 1; as one decoder of 36 blocks",
        ),
    }
)  # fmt: skip
_OWN = re.compile(r"gpt:(\w+=\d+(,\w+=\d+)*)")
_OWN_KEYS = ("hidden", "blocks", "heads", "kv", "ffn", "vocab", "seq", "experts", "top_k", "every")


def model_named(name: str) -> ModelSpec:
    """A row of MODELS, or `gpt:hidden=512,blocks=8,..` for one of one's own. Raises UserError."""
    if name in MODELS:
        return MODELS[name]
    match = _OWN.fullmatch(name)
    if not match:
        guess = did_you_mean(name, MODELS)
        raise UserError(f"no model {name!r}{guess}; there are {', '.join(MODELS)}, and gpt:hidden=512,blocks=8")
    given = {key: int(value) for key, value in (part.split("=") for part in match[1].split(","))}
    for key in given:
        if key not in _OWN_KEYS:
            raise UserError(f"model {name!r}: unknown key {key!r}; known are {', '.join(_OWN_KEYS)}")
    hidden = given.get("hidden", 256)
    heads = given.get("heads", max(1, hidden // 64))
    base = ModelSpec(hidden, 8, heads, heads, 4 * hidden, 256, 128, experts=0, top_k=2 if "experts" in given else 0)
    made = ModelSpec(**{**asdict(base), **given, "source": "given by name"})
    if min(made.hidden, made.blocks, made.heads, made.kv, made.ffn, made.vocab, made.seq, made.every) < 1:
        raise UserError(f"model {name!r}: every size must be 1 or more")
    return made
