"""Models that nobody has to own to plan for: their published shapes, as the Layers of one rank under a Layout.

    tokens of one microbatch on one rank     T = batch x seq / cp          h hidden, f ffn, w bytes of an element

    attention   2 T h (2h + 2h kv/heads) + 4 T seq h   operations forward; of the second term only inputs have gradients
    mlp         2 T h f x 2, or x 3 with a gate        Narayanan et al., Megatron-LM (SC'21), appendix; not causal
    experts     the same for top_k x T tokens          balanced routing; weights: experts / ep of them
    kept for the backward: what Korthikanti et al., Reducing Activation Recomputation (MLSys'23), section 4, count, with
    attention that keeps no scores (FlashAttention)

Tensor parallelism divides weights, operations and the inner activations by tp and sums around each branch; with
sequence parallelism it gathers and scatters instead, and divides the rest too. Ulysses (Jacobs et al., 2023) moves
heads for tokens around attention. A router's weights count with its block's attention: experts' are summed elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import MappingProxyType

from syntony.base.command import UserError
from syntony.base.wording import did_you_mean
from syntony.overlap.step.graph import CommSpec, LayerSpec, hot_numbers
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import Kind


@dataclass(frozen=True)
class ModelSpec:
    """A transformer's shape.

    kv      heads of keys and values (grouped-query attention)
    gated   three matrices in an MLP, as in Llama, instead of two
    seq     tokens of a sequence
    every   each so manieth block has experts instead of an MLP
    source  who published the shape
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


@dataclass(frozen=True)
class Form:
    """How a model is trained: sequences per microbatch, bytes of an element, sequence parallelism beside tp."""

    batch: int = 1
    element: int = 2
    sequence_parallel: bool = True


def layers_of(model: ModelSpec, layout: Layout, form: Form | None = None) -> tuple[LayerSpec, ...]:
    """The model's Layers on one rank: embedding, then attention and MLP (or experts) of each block, then the head.

    Raises UserError where sizes do not divide.
    """
    _check(model, layout)
    return tuple(_Maker(model, layout, form or Form()).layers())


def _check(model: ModelSpec, layout: Layout) -> None:
    if layout.ep > 1 and not model.experts:
        raise UserError(f"ep is {layout.ep}, but the model has no experts")
    for what, size, by in (
        ("heads", model.heads, layout.tp * layout.cp),
        ("ffn", model.ffn, layout.tp),
        ("tokens of a sequence", model.seq, layout.cp * layout.tp),
        ("experts", model.experts, layout.ep),
    ):
        if size % by:
            raise UserError(f"the model has {size} {what}, which {by} ranks cannot share evenly")
    if 2 * model.blocks + 2 < layout.pp * layout.loops:
        raise UserError(f"{2 * model.blocks + 2} layers are too few for {layout.pp} pipeline stages of {layout.loops}")


class _Maker:
    def __init__(self, model: ModelSpec, layout: Layout, form: Form) -> None:
        self._model, self._layout, self._form = model, layout, form
        self._tokens = form.batch * model.seq // layout.cp
        self._outer = layout.tp if form.sequence_parallel else 1  # what divides activations outside the branches
        self._stream = self._tokens * model.hidden * form.element  # bytes of the residual stream

    def layers(self) -> list[LayerSpec]:
        model, tp = self._model, self._layout.tp
        table = model.vocab * model.hidden // tp * self._form.element
        found = [self._layer("embed", table, [self._tokens * model.hidden], [], ends="leave")]
        for block in range(model.blocks):
            found.append(self._attention(block))
            found.append(self._experts(block) if self._has_experts(block) else self._mlp(block))
        logits = 2.0 * self._tokens * model.hidden * model.vocab / tp
        kept = self._tokens * model.vocab // tp * 4  # logits in fp32, as Korthikanti et al. count them
        return [*found, self._layer("head", table, [logits], [], ends="enter", kept=kept)]

    def _attention(self, block: int) -> LayerSpec:
        m, tp, cp = self._model, self._layout.tp, self._layout.cp
        wide = m.hidden + 2 * m.hidden * m.kv // m.heads  # of queries, keys and values
        into, out = 2.0 * self._tokens * m.hidden * wide / tp, 2.0 * self._tokens * m.hidden * m.hidden / tp
        scores = 4.0 * self._tokens * m.seq * m.hidden / tp
        router = m.hidden * m.experts if self._has_experts(block) else 0
        weights = m.hidden * (wide + m.hidden) // tp + m.hidden + router
        inner = self._tokens * (wide + m.hidden) // tp * self._form.element
        segments, moves = [into + scores + out], list[CommSpec]()
        if cp > 1:
            heads = self._tokens * wide // tp * self._form.element
            back = self._tokens * m.hidden // tp * self._form.element
            segments = [into, scores, out]
            moves = [_exchange("heads", "cp", heads), _exchange("tokens", "cp", back)]
        share = (into + out) / (into + out + scores)
        return self._layer(
            f"attention.{block}", weights * self._form.element, segments, moves, kept=inner, backward=(2 - share, share)
        )

    def _mlp(self, block: int) -> LayerSpec:
        m, tp = self._model, self._layout.tp
        matrices = 3 if m.gated else 2
        weights = (matrices * m.hidden * m.ffn // tp + m.hidden) * self._form.element
        inner = self._tokens * m.ffn * matrices // tp * self._form.element
        return self._layer(
            f"mlp.{block}", weights, [2.0 * self._tokens * m.hidden * m.ffn * matrices / tp], [], kept=inner
        )

    def _experts(self, block: int) -> LayerSpec:
        m, tp, ep = self._model, self._layout.tp, self._layout.ep
        matrices = 3 if m.gated else 2
        routed = self._tokens * m.top_k
        weights = m.experts // ep * matrices * m.hidden * m.ffn // tp * self._form.element
        gate, combine = 2.0 * self._tokens * m.hidden * m.experts, 2.0 * routed * m.hidden
        ffn = 2.0 * routed * m.hidden * m.ffn * matrices / tp
        moved = routed * m.hidden * self._form.element
        inner = routed * (m.ffn * matrices // tp + m.hidden) * self._form.element
        moves = [_exchange("dispatch", "ep", moved), _exchange("combine", "ep", moved)] if ep > 1 else []
        segments = [gate, ffn, combine] if moves else [gate + ffn + combine]
        made = partial(self._layer, f"experts.{block}", segments=segments, kept=inner, expert=ep > 1)
        if not moves:
            return made(weights, moves=moves)
        local = m.experts // ep
        still = [replace(move, forward=None, backward=None, bytes=0, parts="") for move in moves]

        def without(count: int) -> LayerSpec:
            """So many of each rank's experts come to the tokens."""
            share = 1 - count / local
            fewer = [replace(move, bytes=round(move.bytes * share)) for move in moves] if count < local else still
            shadow = LayerSpec(f"shadow.{block}", weights // local * count * ep, ())
            return replace(made(weights // local * (local - count), moves=fewer), hot=count * ep, shadow=shadow)

        return replace(
            made(weights, moves=moves), moved=tuple(without(hot // ep) for hot in hot_numbers(m.experts, ep))
        )

    def _has_experts(self, block: int) -> bool:
        return self._model.experts > 0 and block % self._model.every == self._model.every - 1

    def _layer(
        self,
        name: str,
        weights: int,
        segments: list[float],
        moves: list[CommSpec],
        kept: int = 0,
        backward: tuple[float, float] = (1.0, 1.0),
        expert: bool = False,
        ends: str = "enter leave",
    ) -> LayerSpec:
        """With what tensor parallelism adds at both ends: norm before, residual after."""
        outside = self._stream // self._outer
        activations = kept + (2 * outside + outside // self._form.element if "enter leave" in ends else outside)
        if self._layout.tp > 1:
            norm = 5.0 * self._tokens * self._model.hidden / self._outer
            split = self._form.sequence_parallel
            if "enter" in ends:
                there: Kind | None = Kind.ALL_GATHER if split else None
                back: Kind | None = Kind.REDUCE_SCATTER if split else Kind.ALL_REDUCE
                moves = [CommSpec("enter", "tp", there, back, self._stream), *moves]
                segments = [norm, *segments]
            if "leave" in ends:
                there = Kind.REDUCE_SCATTER if split else Kind.ALL_REDUCE
                back = Kind.ALL_GATHER if split else None
                moves = [*moves, CommSpec("leave", "tp", there, back, self._stream)]
                segments = [*segments, norm]
        alone = self._layout.tp > 1 and self._form.sequence_parallel and "enter" in ends  # the norm's weights
        return LayerSpec(
            name,
            weights,
            tuple(segments),
            tuple(moves),
            activations,
            inputs=self._stream // self._outer if "enter" in ends else 0,
            output=self._stream // self._outer,
            expert=expert,
            shared=self._model.hidden * self._form.element if alone and not expert else 0,
            backward=backward,
        )


def _exchange(name: str, lane: str, size: int) -> CommSpec:
    return CommSpec(name, lane, Kind.ALL_TO_ALL, Kind.ALL_TO_ALL, size, parts="experts" if lane == "ep" else "rows")
