"""Models as the Layers of one rank under a layout: what is computed, what moves, and what can be cut into parts.

    tokens of one microbatch on one rank     T = batch x seq / cp / slices    h hidden, f ffn, w bytes of an element

    attention   2 T h (2h + 2h kv/heads) + 4 T seq h   operations forward; of the second term only inputs have gradients
    mlp         2 T h f x 2, or x 3 with a gate        Narayanan et al., Megatron-LM (SC'21), appendix; not causal
    experts     the same for top_k x T tokens          balanced routing; weights: experts / ep of them
    kept for the backward: what Korthikanti et al., Reducing Activation Recomputation (MLSys'23), section 4, count, with
    attention that keeps no scores (FlashAttention)

Each branch is a list of segments with communication points between them, which the parallelisms fill; segments with
nothing between them are one, and an attention and the MLP or router behind it are one layer. These are the layers that
the trainer runs (trainer/parallel): it takes operations, bytes and cuts from here, and what is promised here can run.

    attention   norm | qkv | attend | project | add    enter, to_heads or ring_1, .., to_tokens, leave
                                                       (usp: all; sequence: heads and tokens, where nothing moves)
    mlp         norm | feed | add                      enter_feed, leave_feed
    router      fork | route                           enter
    experts     arrange | pack | feed | unite | add    sizes, dispatch, combine, leave
                (dedup)                                sizes, dispatch, widen, narrow, combine, leave
                (relay)                                sizes_far, wanted, dispatch_far, sizes, dispatch, combine,
                                                       combine_far, leave
    embedding   embed | place                          leave
    head        norm | logits | loss                   enter, totals
    on a grid   fork | norm | inner | add              across, weights, heads or hidden
    rotating    part | part | .. | part                turn_1, turn_2, .. (rotation.py)

Tensor parallelism divides weights, operations and the inner activations by tp and sums around each branch; with
sequence parallelism it gathers and scatters instead, and divides the rest too. On a grid (SUMMA), sequences, widths and
both axes of matrices are divided by its side: what enters a matrix is gathered along a row, weights along a column.
Context parallelism sends keys and values round (ring), or moves heads for tokens around attention (Ulysses; Jacobs et
al., 2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from syntony.base.command import UserError
from syntony.overlap.step.demand import Demand, Visits, boxes_asked, placed, zipf
from syntony.overlap.step.graph import CommSpec, LayerSpec, hot_numbers
from syntony.overlap.step.layout import Parallel
from syntony.overlap.step.model_spec import ModelSpec
from syntony.overlap.step.op import Kind
from syntony.overlap.step.pipelines.pipelines import PIPELINES


@dataclass(frozen=True)
class Form:
    """How a model is trained: sequences per microbatch, bytes of an element.

    even    routers are stood in for: all ranks' tokens ask for experts alike, and no rank asks how many rows will come
            (emulated computing)
    follow  experts have been placed by that demand, between two steps
    skew    of that demand, and of what is expected of real routers: the exponent of Zipf's law; 0: tokens go to experts
            in turn. The most wanted expert is another one in each block
    """

    batch: int = 1
    element: int = 2
    even: bool = False
    skew: float = 0.0
    follow: bool = False


def layers_of(model: ModelSpec, layout: Parallel, form: Form | None = None, hot: int = 0) -> tuple[LayerSpec, ...]:
    """The model's Layers on one rank: embedding, blocks (with a layer of their own for experts), head.

    hot    so many experts of each block come to the tokens

    Raises UserError where sizes do not divide.
    """
    check(model, layout)
    form = form or Form()
    if form.batch % layout.batch_parts:
        who = "ranks of tp" if layout.rotate else "rows of the grid"
        raise UserError(f"a microbatch has {form.batch} sequences, which {layout.batch_parts} {who} cannot share")
    return tuple(_Maker(model, layout, form).layers(hot))


def check(model: ModelSpec, layout: Parallel) -> None:
    """Raises UserError where sizes of the model do not divide."""
    if layout.ep > 1 and not model.experts:
        raise UserError(f"ep is {layout.ep}, but the model has no experts")
    if (layout.grid or layout.rotate) and model.experts:
        raise UserError(f"the model has experts, which {'grid' if layout.grid else 'rotate'} cannot cut")
    tp, cp, side = layout.tp // layout.side, layout.cp, layout.side
    for what, size, by in (
        ("numbers in a width", model.hidden, side),
        ("heads", model.heads, tp * layout.trading),
        ("heads of keys and values", model.kv, tp),
        ("ffn", model.ffn, tp),
        ("numbers in a width", model.hidden, tp if layout.dedup else 1),
        ("words", model.vocab, tp if layout.rotate else side),
        ("learned positions", model.seq if model.learned else 0, side),
        ("tokens of a sequence", model.seq, cp * layout.slices * (tp if layout.cuts_sequences else 1)),
        ("tokens of a sequence", model.seq, cp * layout.halves),
        ("experts", model.experts, layout.ep),
    ):
        if size % by:
            raise UserError(f"the model has {size} {what}, which {by} ranks cannot share evenly")
    layers = model.blocks // model.together + 2
    chunks = PIPELINES[layout.schedule].chunks(layout.loops) if layout.schedule in PIPELINES else layout.loops
    if layers < layout.pp * chunks:
        raise UserError(f"{layers} layers are too few for {layout.pp} pipeline stages of {chunks}")


@dataclass(frozen=True)
class _Branch:
    """Weights: elements on this rank, and how many of them the ranks of `tp` share; segments: operations forward, and
    what moves between them, None: nothing; kept: bytes for the backward. products: of the operations, those of matrices
    with weights; factors: bytes of what a microbatch's gradients of weights are made of, 0: they are no products;
    inside: bytes between its segments that stay where it is computed again."""

    name: str
    weights: int
    segments: Sequence[float]
    points: Sequence[CommSpec | None]
    kept: int
    shared: int = 0
    products: float = 0.0
    factors: int = 0
    inside: int = 0


class _Maker:
    def __init__(self, model: ModelSpec, layout: Parallel, form: Form) -> None:
        self._model, self._layout, self._form = model, layout, form
        self._tokens = form.batch // layout.batch_parts * (model.seq // (layout.cp * layout.slices))
        self._by = layout.tp // layout.batch_parts  # what divides what is computed of these tokens
        self._outer = self._by if layout.sequence or layout.grid else 1  # and activations outside the branches
        self._stream = self._tokens * model.hidden * form.element  # bytes of the residual stream
        # Gradients of norms are summed, if ranks see parts.
        self._norms = layout.tp > 1 and (layout.sequence or layout.batch_parts > 1)

    def layers(self, hot: int) -> list[LayerSpec]:
        model, layout, blocks = self._model, self._layout, list[LayerSpec]()
        for block in range(model.blocks):
            attention = self._attention(block)
            if not self._has_experts(block):
                blocks.append(self._layer(f"block_{block}", attention, self._mlp(block)))
                continue
            router = self._router(block)
            if any(attention.points):  # may be cut into parts of the batch, a router may not
                blocks += [self._layer(attention.name, attention), self._layer(router.name, router)]
            else:
                blocks.append(self._layer(f"block_{block}", attention, router))
            experts = self._relayed(block) if layout.relay > 1 else self._experts(block, hot)
            comes = layout.ep > 1 and layout.relay == 1 and not hot
            numbers = hot_numbers(model.experts, layout.ep) if comes else []
            blocks.append(replace(experts, moved=tuple(self._experts(block, number) for number in numbers)))
        if model.together > 1:
            blocks = [_united(blocks[at : at + model.together]) for at in range(0, len(blocks), model.together)]
        return [self._embedding(), *blocks, self._head()]

    def _embedding(self) -> LayerSpec:
        model, tp = self._model, self._layout.tp
        positions = model.seq * model.hidden if model.learned else 0
        if self._layout.side > 1:
            table = (model.vocab * model.hidden + positions) // tp
            down = self._down("weights", table, uses=1)
            down = replace(down, again=self._layout.recompute)  # gradients of a table need no table
            kept = self._stream // self._outer + table * self._form.element
            branch = _Branch("", table, (0, 0), (down,), kept)
            return replace(self._layer("embedding", branch), inputs=0)
        table = -(-model.vocab // tp) * model.hidden + positions
        if self._layout.rotate:
            kept = self._stream + self._tokens * 8
            turning = self._rotating("", table - positions, positions, 0.0, kept, 0.0)
            return replace(self._layer("embedding", turning), inputs=0)
        point = self._leave("leave") if tp > 1 else None
        kept = self._stream // self._outer
        return replace(
            self._layer("embedding", _Branch("", table, (0, 0), (point,), kept, positions * self._norms)), inputs=0
        )

    def _head(self) -> LayerSpec:
        model, tp, by = self._model, self._layout.tp, self._by
        logits = 2.0 * self._tokens * model.hidden * model.vocab / by
        kept = self._tokens * model.vocab // by * 4  # logits in fp32, as Korthikanti et al. count them
        table = -(-model.vocab // tp) * model.hidden + model.hidden
        totals = CommSpec("totals", "tp", Kind.ALL_REDUCE, None, self._tokens * (by + 1) * 4, most=self._form.batch)
        if self._layout.side > 1:
            moves = (
                self._across("across", model.hidden),
                self._down("weights", table - model.hidden, uses=1),
                replace(totals, lane="row"),
            )
            kept += self._gathered(model.hidden) + (table - model.hidden) * self._form.element
            again = (self._tokens * model.hidden + table - model.hidden) * self._form.element
            return self._layer("head", _Branch("", table, (0, 0, logits, 0), moves, kept, model.hidden, inside=again))
        if self._layout.rotate:
            turning = self._rotating("", table - model.hidden, model.hidden, logits, kept + self._stream, logits)
            return self._layer("head", turning)
        points = (self._enter("enter"), totals) if tp > 1 else (None, None)
        kept += self._stream // self._outer
        branch = _Branch("", table, (0, logits, 0), points, kept, self._norms * model.hidden, logits)
        return self._layer("head", replace(branch, factors=self._factors(model.hidden + model.vocab // tp)))

    def _attention(self, block: int) -> _Branch:
        m, tp, cp, by = self._model, self._layout.tp, self._layout.cp, self._by
        both = 2 * m.hidden * m.kv // m.heads  # width of keys and values
        wide = m.hidden + both
        into, out = 2.0 * self._tokens * m.hidden * wide / by, 2.0 * self._tokens * m.hidden * m.hidden / by
        scores = 4.0 * self._tokens * m.seq * m.hidden / by
        attend, inner = [scores], list[CommSpec | None]([None, None])
        size = self._tokens * self._form.element
        if self._layout.side > 1:
            return self._on_grid(
                f"attention_{block}", m.hidden * (wide + m.hidden), (into + scores, out), m.hidden, wide + m.hidden
            )
        if self._layout.rotate:
            kept = self._tokens * (wide + m.hidden) * self._form.element + self._around()
            own = m.hidden * (wide + m.hidden) // tp
            return self._rotating(f"attention_{block}", own, m.hidden, into + scores + out, kept, into + out)
        if cp > 1:
            rings, trading = self._layout.rings, self._layout.trading
            each = 2 if self._layout.attention == "plain" else 1  # of the busiest rank, which sees whole blocks
            if rings > 1:
                attend = [(1 + each) * scores / rings, *[each * scores / rings] * (rings - 2)]
                attend = [0.0, *attend] if trading > 1 else attend
            # Where there are fewer heads of keys and values than ranks that trade them, some are sent to several.
            sent = both * max(1, trading * tp // m.kv)
            lane = "heads" if self._layout.attention == "usp" else "cp"
            ends = [
                self._rows(name, lane, Kind.ALL_TO_ALL, size * width // tp)
                for name, width in (("to_heads", m.hidden + sent), ("to_tokens", m.hidden))
            ]
            lanes = ("outer" if step % self._layout.ring == 0 else "cp" for step in range(1, rings))
            inner = [
                self._rows(f"ring_{step}", on, Kind.SHIFT, size * sent // tp) for step, on in enumerate(lanes, start=1)
            ]
            inner = [ends[0], *inner, ends[1]] if trading > 1 else [*inner, None]
        elif tp > 1 and self._layout.sequence:  # attention needs all tokens, the products beside it do not
            inner = [CommSpec(name, "tp", None, None, 0, most=self._form.batch) for name in ("heads", "tokens")]
        return _Branch(
            f"attention_{block}",
            m.hidden * (wide + m.hidden) // tp + m.hidden,
            (0, into, *attend, out, 0),
            (self._enter("enter"), *inner, self._leave("leave")) if tp > 1 else (None, *inner, None),
            self._tokens * (wide + m.hidden) // tp * self._form.element + self._around(),
            self._norms * m.hidden,
            into + out,
            self._factors(2 * m.hidden + (wide + m.hidden) // tp),
        )

    def _mlp(self, block: int) -> _Branch:
        m, tp = self._model, self._layout.tp
        matrices = 3 if m.gated else 2
        feed = 2.0 * self._tokens * m.hidden * m.ffn * matrices / self._by
        if self._layout.side > 1:
            parts = (feed * (matrices - 1) / matrices, feed / matrices)
            return self._on_grid(
                f"mlp_{block}", matrices * m.hidden * m.ffn, parts, m.ffn, matrices * m.ffn, "_feed", "hidden"
            )
        if self._layout.rotate:
            kept = self._tokens * m.ffn * matrices * self._form.element + self._around()
            own = matrices * m.hidden * m.ffn // tp
            return self._rotating(f"mlp_{block}", own, m.hidden, feed, kept, feed, "_feed")
        return _Branch(
            f"mlp_{block}",
            matrices * m.hidden * m.ffn // tp + m.hidden,
            (0, feed, 0),
            (self._enter("enter_feed"), self._leave("leave_feed")) if tp > 1 else (None, None),
            self._tokens * m.ffn * matrices // tp * self._form.element + self._around(),
            self._norms * m.hidden,
            feed,
            self._factors(2 * m.hidden + matrices * m.ffn // tp),
        )

    def _on_grid(
        self,
        name: str,
        matrices: int,
        parts: tuple[float, float],
        width: int,
        inside: int,
        suffix: str = "",
        between: str = "heads",
    ) -> _Branch:
        """A branch of two matrices of so many elements, on a grid. `width`: of what enters the second; `inside`: of
        what is kept between them."""
        own, hidden = matrices // self._layout.tp, self._model.hidden
        points = (
            self._across(f"across{suffix}", hidden), self._down(f"weights{suffix}", own, uses=2),
            self._across(between, width),
        )  # fmt: skip
        kept = (self._tokens * inside // self._by + own) * self._form.element + self._around()
        kept += self._gathered(hidden, width)
        again = (self._tokens * (hidden + width // self._layout.side) + own) * self._form.element
        return _Branch(name, own + hidden, (0, 0, *parts), points, kept, hidden, inside=again)

    def _rotating(
        self, name: str, own: int, more: int, amount: float, kept: int, products: float, suffix: str = ""
    ) -> _Branch:
        """A branch whose matrices this rank has `own` elements of, and that it computes shard by shard for its
        sequences. `more`: elements that every rank has."""
        ranks, size = self._layout.tp, own * self._form.element
        turns = [
            CommSpec(f"turn{suffix}_{by}", "tp", Kind.SHIFT, Kind.SHIFT, size, parts="", rotates=by)
            for by in range(1, ranks)
        ]
        share = (amount / ranks,) * ranks
        return _Branch(name, own + more, share, turns, kept, more, products)

    def _gathered(self, *widths: int) -> int:
        """Bytes that a branch keeps of a row's activations, the first as they came and normed: without computing
        again all, and else what nothing else can be made of."""
        kept = widths[:1] if self._layout.recompute else (widths[0], *widths)
        return self._tokens * sum(kept) * self._form.element

    def _across(self, name: str, width: int) -> CommSpec:
        """Along a row: a rank's part of so wide activations, and back sums of their gradients. They stay until then,
        unless what was made of them is computed again."""
        size, again = self._tokens * width * self._form.element, self._layout.recompute
        return CommSpec(name, "row", Kind.ALL_GATHER, Kind.REDUCE_SCATTER, size, parts="", uses=int(again), again=again)

    def _down(self, name: str, weights: int, uses: int) -> CommSpec:
        """Along a column: a rank's blocks of matrices, so many elements, and back sums of their gradients."""
        size = self._layout.side * weights * self._form.element
        return CommSpec(name, "column", Kind.ALL_GATHER, Kind.REDUCE_SCATTER, size, parts="", uses=uses, again=True)

    def _router(self, block: int) -> _Branch:
        m, split = self._model, self._layout.tp > 1
        route = 2.0 * self._tokens * m.hidden * m.experts
        weights = m.hidden * m.experts + m.hidden
        segments, points = ((0, route), (self._enter("enter"),)) if split else ((route,), ())
        factors = self._factors(m.hidden + m.experts)
        return _Branch(
            f"router_{block}", weights, segments, points, self._around(), weights if split else 0, route, factors
        )

    def _experts(self, block: int, hot: int) -> LayerSpec:
        """`hot` experts of all ranks, the first, come to the tokens."""
        m, tp, ep = self._model, self._layout.tp, self._layout.ep
        matrices, routed, spread = 3 if m.gated else 2, self._tokens * m.top_k, m.experts - hot
        each = matrices * m.hidden * m.ffn // tp  # elements of an expert
        dedup = self._layout.dedup
        moves: list[CommSpec | None] = [None] * 3
        demand, computed = None, float(routed)
        if ep > 1:
            row = m.hidden * self._form.element
            size = came = routed * row * spread // m.experts
            demand = Demand(routed, ep, m.experts, self._form.skew, block % m.experts)
            if self._form.skew:  # the busiest rank's
                counts, places = demand.counts, np.arange(m.experts)
                if self._form.follow:
                    counts = counts[:, np.argsort(placed(counts.sum(axis=0), ep, places))]
                loads = Visits(0.0, 0.0, row, 0).loads(counts, places)
                computed, size = loads.computed[hot], round(loads.combined[hot] * ep / (ep - 1))
                came = round(computed * row)
            most = max(1, routed // m.experts) * spread // ep  # an expert's rows from one rank, of each of its experts
            kind = Kind.ALL_TO_ALL if spread else None
            sizes = CommSpec("sizes", "ep", kind, None, 8 * spread, parts="")
            size //= tp if dedup else 1
            ways = [CommSpec(name, "ep", kind, kind, size, "experts", most) for name in ("dispatch", "combine")]
            if dedup:  # between the two, ranks of tp have whole rows, and then parts of sums
                both = [(Kind.ALL_GATHER, Kind.REDUCE_SCATTER), (Kind.REDUCE_SCATTER, Kind.ALL_GATHER)]
                ways[1:1] = [
                    CommSpec(name, "tp", *kinds, came, "experts", most)
                    for name, kinds in zip(("widen", "narrow"), both, strict=True)
                ]
            still = [replace(way, forward=None, backward=None, most=m.experts) for way in ways]
            moves = [None if self._form.even else sizes, *(ways if spread else still)]
        feed = 2.0 * computed * m.hidden * m.ffn * matrices / tp
        leave = self._leave("leave") if tp > 1 else None
        kept = routed * (m.ffn * matrices // tp + m.hidden) * self._form.element
        around = (0,) * (1 + dedup)  # segments between what moves
        branch = _Branch("", spread // ep * each, (0, *around, feed, *around, 0), (*moves, leave), kept, products=feed)
        shadow = LayerSpec(f"shadow_{block}", hot * each * self._form.element, ()) if hot else None
        made = self._layer(f"experts_{block}", branch)
        return replace(made, expert=ep > 1, joined=True, hot=hot, shadow=shadow, demand=None if hot else demand)

    def _relayed(self, block: int) -> LayerSpec:
        """Tokens go once to each box with experts that they ask for, and are passed on inside."""
        m, tp, ep, element = self._model, self._layout.tp, self._layout.ep, self._form.element
        far, tokens, top = ep // self._layout.relay, self._tokens, m.top_k
        shares = zipf(m.experts, self._form.skew, block % m.experts)
        if self._form.follow:
            shares = shares[np.argsort(placed(shares, ep, np.arange(m.experts)))]
        if self._form.even and not self._form.skew:  # in turn
            boxes = np.arange(tokens * top).reshape(tokens, top) % m.experts // (m.experts // far)
            asked = np.array([(boxes == box).any(axis=1).mean() for box in range(far)])
        else:
            asked = boxes_asked(shares, far, top)
        rows = round(tokens * max(float(asked.sum()), far * float(asked.max())))  # that leave, or come to a busy box
        routed = tokens * top * ep * float(shares.reshape(ep, -1).sum(axis=1).max())  # with the busiest rank's experts
        whole, all_to_all, dedup = m.hidden * element, Kind.ALL_TO_ALL, self._layout.dedup
        row, came = whole // tp if dedup else whole, round(routed * whole)  # as it travels; what experts take
        gather, scatter = Kind.ALL_GATHER, Kind.REDUCE_SCATTER
        moves = [
            CommSpec("sizes_far", "ep_far", all_to_all, None, 8 * far, parts=""),
            CommSpec("wanted", "ep_far", all_to_all, None, 8 * rows * top, parts=""),
            CommSpec("dispatch_far", "ep_far", all_to_all, all_to_all, rows * (row + top * element), parts=""),
            CommSpec("sizes", "ep_near", all_to_all, None, 8 * m.experts, parts=""),
            CommSpec("dispatch", "ep_near", all_to_all, all_to_all, round(routed * row), parts=""),
            *((CommSpec("widen", "tp", gather, scatter, came, parts=""),
               CommSpec("narrow", "tp", scatter, gather, came, parts="")) if dedup else ()),
            CommSpec("combine", "ep_near", all_to_all, all_to_all, round(routed * row), parts=""),
            CommSpec("combine_far", "ep_far", all_to_all, all_to_all, rows * row, parts=""),
        ]  # fmt: skip
        matrices = 3 if m.gated else 2
        feed = 2.0 * routed * m.hidden * m.ffn * matrices / tp
        leave = self._leave("leave") if tp > 1 else None
        kept = tokens * top * (m.ffn * matrices // tp + m.hidden) * element + rows * row
        each = matrices * m.hidden * m.ffn // tp  # elements of an expert
        around = (0,) * (1 + dedup)  # segments between what moves
        segments = (0, 0, 0, 0, *around, feed, *around, 0, 0)
        made = self._layer(
            f"experts_{block}", _Branch("", m.experts // ep * each, segments, (*moves, leave), kept, products=feed)
        )
        return replace(made, expert=True, joined=True)

    def _has_experts(self, block: int) -> bool:
        return self._model.experts > 0 and block % self._model.every == self._model.every - 1

    def _factors(self, widths: int) -> int:
        """Bytes of a branch's inputs and gradients of outputs of matrices, so wide together, and of a norm's gains."""
        return self._tokens * widths * self._form.element + 4 * self._model.hidden

    def _around(self) -> int:
        """Bytes that a norm and a residual keep."""
        outside = self._stream // self._outer
        return 2 * outside + outside // self._form.element

    def _rows(self, name: str, lane: str, kind: Kind, size: int) -> CommSpec:
        return CommSpec(name, lane, kind, kind, size, most=self._form.batch)

    def _enter(self, name: str) -> CommSpec:
        """Into a branch of which every rank computes a part."""
        there, back = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER) if self._layout.sequence else (None, Kind.ALL_REDUCE)
        return CommSpec(name, "tp", there, back, self._stream, most=self._form.batch)

    def _leave(self, name: str) -> CommSpec:
        """Out of it: every rank has a part of the sum."""
        there, back = (Kind.REDUCE_SCATTER, Kind.ALL_GATHER) if self._layout.sequence else (Kind.ALL_REDUCE, None)
        return CommSpec(name, "tp", there, back, self._stream, most=self._form.batch)

    def _layer(self, name: str, *branches: _Branch) -> LayerSpec:
        segments, transfers = list[float](), list[CommSpec]()
        for branch in branches:
            for point, amount in zip((None, *branch.points), branch.segments, strict=True):
                if segments and point is None:
                    segments[-1] += amount
                    continue
                segments.append(amount)
                transfers += [point] if point is not None else []
        total, products = sum(segments), sum(branch.products for branch in branches)
        share = 1.0 if self._form.even or not total else products / total  # a sleeping backward has equal halves
        return LayerSpec(
            name,
            sum(branch.weights for branch in branches) * self._form.element,
            tuple(segments),
            tuple(transfers),
            sum(branch.kept for branch in branches),
            inputs=self._stream // self._outer + sum(branch.inside for branch in branches),
            output=self._stream // self._outer,
            shared=sum(branch.shared for branch in branches) * self._form.element,
            backward=(2 - share, share),
            factors=_of_all(branch.factors for branch in branches),
        )


def _united(layers: Sequence[LayerSpec]) -> LayerSpec:
    """Neighbours without communication points, as one layer."""
    return replace(
        layers[0],
        weights=sum(layer.weights for layer in layers),
        segments=(sum(layer.segments[0] for layer in layers),),
        activations=sum(layer.activations for layer in layers),
        factors=_of_all(layer.factors for layer in layers),
    )


def _of_all(factors: Iterable[int]) -> int:
    """Of what is one layer; 0 where a part of it has none."""
    found = list(factors)
    return sum(found) if all(found) else 0
