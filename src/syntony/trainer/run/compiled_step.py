"""A Plan compiled for one device: tables that are made once, and used in every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from syntony.base.command import UserError
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import FORWARD, LENT, RETURNED, OpKey
from syntony.overlap.step.plan import Plan
from syntony.overlap.step.shards import is_round, ways_of
from syntony.trainer.model.layer import SHADOW, Layer
from syntony.trainer.run.turns import Turned, turned_of

COMPUTES = (
    Kind.FORWARD,
    Kind.RECOMPUTE,
    Kind.BACKWARD,
    Kind.BACKWARD_INPUT,
    Kind.BACKWARD_WEIGHT,
    Kind.REBUILD,
    Kind.NORM,
    Kind.OPTIMIZE,
)
"""The computation ops that the trainer supports."""


@dataclass(frozen=True)
class Task:
    """A compute op, and the actions before and after it.

    part, parts    which part of a segment's work it does, and how many there are
    pieces         parts are pieces of experts' rows: gradients of their weights are made from all of them together
    settles        it needs the weights from the layer's last update, and
    waits          for the end of this communication
    gathers        those that may begin (including loans), or whose weights may be freed, when it has ended
    drops          transfers whose output is then freed, as it is transferred again for the backward (CommSpec.uses)
    """

    op: Op
    part: int
    parts: int
    pieces: bool
    settles: bool
    waits: tuple[OpKey, ...]
    gathers: tuple[OpKey, ...]
    drops: tuple[int, ...] = ()


@dataclass(frozen=True)
class Gather:
    """Weights that are gathered before their use (zero=3).

    source    the recorded op of which it is a part; its parts fill the same buffers
    layers    whose weights, including shadows
    after     compute ops that must have ended before it begins, and
    last      the one after which the weights may be freed; None: no op needs them
    """

    op: Op
    source: OpKey
    layers: frozenset[int]
    after: frozenset[OpKey]
    last: OpKey | None


@dataclass(frozen=True)
class Return:
    """A repeated transfer of the layer. `after`: compute ops that must have ended before it begins."""

    op: Op
    transfer: int
    after: frozenset[OpKey]


@dataclass(frozen=True)
class Loan:
    """One end of a message with activations that one device lends to another (BPipe), or gets back. `after`: the
    compute ops and messages that must have ended before it begins."""

    op: Op
    after: frozenset[OpKey]


@dataclass(frozen=True)
class CompiledStep:
    """The actions of a device in every step of a Plan. Made by `compiled`.

    tasks         its computation, first to last
    receives      messages from other devices
    gathers       of weights, before their use
    returns       of dropped tensors, before the backward
    loans         of activations, except returns, which begin by themselves
    turned        messages with shards of weights that rotate, and with their gradients
    followers     by message of a loan or a rotating shard: those that begin after it
    lends         whether the device lends some, instead of only holding those of others
    moves         all its communication: planned ops, and the recorded ones that they represent
    parts         of every recorded op without pieces, the planned ops that do its work, part by part; and
    places        for each of these: which part, of how many
    recomputed    layer, microbatch and segment of recomputation
    weights       by layer: the layers whose weights its segments use, with the prefix of their names
    makers        by layer and microbatch: the number of ops that make, or bring, gradients of its weights
    turns         by layer: the microbatches that it processes here, with their indices
    slices        this many consecutive microbatches are pieces of the same sequences
    late          by layer: compute ops of others that the plan wants to end before its gradients are summed
    rounds        recorded ops that are done in rounds (overlap/step/shards.py), and
    ways          by layer with such: the number of directions; its parts are shards of the sequence, not rows
    alone         only sums of gradients communicate, so a forward needs no other rank
    """

    tasks: tuple[Task, ...]
    receives: tuple[Op, ...]
    gathers: Mapping[OpKey, Gather]
    returns: Mapping[OpKey, Return]
    loans: Mapping[OpKey, Loan]
    turned: Mapping[OpKey, Turned]
    followers: Mapping[OpKey, tuple[OpKey, ...]]
    lends: bool
    moves: frozenset[OpKey]
    parts: Mapping[OpKey, tuple[OpKey, ...]]
    places: Mapping[OpKey, tuple[int, int]]
    recomputed: frozenset[tuple[int, int, int]]
    weights: Mapping[int, Mapping[int, str]]
    makers: Mapping[tuple[int, int], int]
    turns: Mapping[int, Mapping[int, int]]
    slices: int
    late: Mapping[int, frozenset[OpKey]]
    rounds: frozenset[OpKey]
    ways: Mapping[int, int]
    alone: bool


def compiled(plan: Plan, device: int, layers: Mapping[int, Layer], held: Collection[int], rows: int) -> CompiledStep:
    """The step of one device. Raises UserError for a plan that the trainer cannot run.

    layers    the model's layers on the device, by number
    held      numbers of all layers with weights there, including shadows
    rows      sequences in a microbatch
    """
    graph = plan.graph
    ops = [graph[key] for key in plan.orders[device, COMPUTE]]
    for op in ops:
        if op.kind not in COMPUTES:
            raise UserError(f"the plan has an op {op.key!r} of kind {op.kind}, which the trainer cannot run")
    mine = [graph[key] for (owner, _), keys in plan.orders.items() if owner == device for key in keys]
    moving = [op for op in mine if op.kind.moves]
    moves = frozenset(key for op in moving for key in (op.key, *op.sources))
    computed = frozenset(op.key for op in ops)
    early = [op for op in moving if op.kind is Kind.ALL_GATHER and _is_early(op)]
    together: dict[OpKey, set[OpKey]] = {}  # parts that fill the same buffers
    for op in early:
        together.setdefault(op.sources[0], {op.sources[0]}).add(op.key)
    gathers = {op.key: _gather(op, together[op.sources[0]], ops, computed) for op in early}
    anew = {i: {one.anew: t for t, one in enumerate(layer.spec.transfers)} for i, layer in layers.items()}
    able = computed | {op.key for op in moving}
    turned = {op.key: turn for op in moving if (turn := turned_of(graph, layers, op, able)) is not None}
    returns = {
        op.key: Return(op, anew[op.layer][op.key.kind], computed.intersection(op.deps))
        for op in moving
        if op.key.kind in anew.get(op.layer, {}) and op.key not in turned
    }
    lent = [op for op in moving if op.key.direction in (LENT, RETURNED)]
    loans = {
        op.key: Loan(op, frozenset(op.deps)) for op in lent if (op.kind, op.key.direction) != (Kind.SEND, RETURNED)
    }
    watching: dict[OpKey, list[OpKey]] = {}
    for key, gather in gathers.items():
        for after in gather.after | ({gather.last} if gather.last else set()):
            watching.setdefault(after, []).append(key)
    begun: Mapping[OpKey, Return | Loan | Turned] = {**returns, **loans, **turned}
    after_of = {key: one.after for key, one in begun.items()}
    for key, others in after_of.items():
        for after in others:
            watching.setdefault(after, []).append(key)
    parts = _parts((*ops, *moving))
    places = {key: (place, len(keys)) for keys in parts.values() for place, key in enumerate(keys)}
    rounds = [op for op in moving if is_round(graph, op)]
    ways = {op.layer: ways_of(graph, op) for op in rounds}
    _check([op for op in ops if op.layer not in ways], places, layers, rows)

    def task(op: Op) -> Task:
        settles, waits = _needs(op, plan, moves)
        if op.kind in (Kind.OPTIMIZE, Kind.NORM) and not graph.before(op):  # gradients that are not at home yet
            waits = tuple(key for key, turn in turned.items() if turn.home and op.layer in (-1, key.layer))
        part, count = places.get(op.key, (0, 1))
        layer = layers.get(op.layer)
        pieces = layer is not None and layer.expert and any(weight.shape[0] % count for weight in layer.weights)
        drops = () if layer is None or op.kind is not Kind.FORWARD else _drops(layer, op, moves)
        return Task(op, part, count, pieces, settles, waits, tuple(watching.get(op.key, ())), drops)

    makers = Counter((op.layer, op.microbatch) for op in ops if op.kind in (Kind.BACKWARD, Kind.BACKWARD_WEIGHT))
    makers.update(turn.where[:2] for turn in turned.values() if turn.home)
    met = {i: sorted(m for layer, m in makers if layer == i) for i in layers}
    return CompiledStep(
        tasks=tuple(map(task, ops)),
        receives=tuple(op for op in moving if op.kind is Kind.RECV and op.key not in loans),
        gathers=gathers,
        returns=returns,
        loans=loans,
        turned=turned,
        followers={
            key: tuple(watching.get(key, ())) for key in (*watching, *(op.key for op in lent), *turned) if key in moves
        },
        lends=any((key.kind, key.direction) == (Kind.SEND, LENT) for key in loans),
        moves=moves,
        parts=parts,
        places=places,
        recomputed=frozenset((op.layer, op.microbatch, op.segment) for op in ops if op.kind is Kind.RECOMPUTE),
        weights={
            i: {index: prefix for index, prefix in ((i, ""), (graph.shadow(i), SHADOW)) if index in held}
            for i in layers
        },
        makers=makers,
        turns={i: {m: turn for turn, m in enumerate(found)} for i, found in met.items()},
        slices=graph.layout.slices if graph.layout is not None else 1,
        late=_late(plan, moving, computed),
        rounds=frozenset(op.key.whole for op in rounds),
        ways=ways,
        alone=all(op.pieces and op.kind is Kind.ALL_REDUCE for op in moving),
    )


def _drops(layer: Layer, op: Op, moves: AbstractSet[OpKey]) -> tuple[int, ...]:
    """Transfers whose output no later segment of a forward takes."""
    return tuple(
        t
        for t, one in enumerate(layer.spec.transfers)
        if one.uses and t + one.uses == op.segment
        if OpKey(one.name, op.layer, op.microbatch, direction=FORWARD) in moves
    )


def _is_early(op: Op) -> bool:
    return bool(op.pieces) and op.microbatch >= 0


def _updates(op: Op) -> bool:
    """Whether it communicates a layer's gradients or new weights, once a step."""
    return bool(op.pieces) and op.microbatch < 0


def _gather(op: Op, together: AbstractSet[OpKey], ops: Sequence[Op], computed: frozenset[OpKey]) -> Gather:
    names = {*together, *op.sources}
    users = [user.key for user in ops if not names.isdisjoint(user.deps)]
    layers = frozenset(piece.layer for piece in op.pieces)
    return Gather(op, op.sources[0], layers, computed.intersection(op.deps), users[-1] if users else None)


def _parts(ops: Sequence[Op]) -> dict[OpKey, tuple[OpKey, ...]]:
    found: dict[OpKey, list[OpKey]] = {}
    for op in ops:
        if op.pieces:
            continue
        if len(op.sources) > 1:
            raise UserError(f"the plan unites {op.sources[0]!r} with others, which the trainer runs apart")
        found.setdefault(op.key.whole, []).append(op.key)
    return {whole: tuple(sorted(keys, key=lambda key: key.part)) for whole, keys in found.items()}


def _needs(op: Op, plan: Plan, moves: AbstractSet[OpKey]) -> tuple[bool, tuple[OpKey, ...]]:
    """Whether an op needs its layer's update, and which communication it waits for."""
    if op.kind in (Kind.OPTIMIZE, Kind.NORM):
        return False, ()
    others = [plan.graph[key] for key in (*op.deps, *op.lagged)]
    updates = {other.key for other in others if other.kind is Kind.OPTIMIZE or _updates(other)}
    return bool(updates), tuple(other.key for other in others if other.key in moves and other.key not in updates)


def _late(plan: Plan, moving: Sequence[Op], computed: frozenset[OpKey]) -> dict[int, frozenset[OpKey]]:
    found: dict[int, frozenset[OpKey]] = {}
    for op in moving:
        if _updates(op) and op.kind is not Kind.ALL_GATHER:
            layers = {piece.layer for piece in op.pieces}
            others = {key for key in op.deps if key in computed and plan.graph[key].layer not in layers}
            for layer in layers:
                found[layer] = found.get(layer, frozenset()) | others
    return found


def _check(ops: Sequence[Op], places: Mapping[OpKey, tuple[int, int]], layers: Mapping[int, Layer], rows: int) -> None:
    """Raises UserError if segments are cut in an unsupported way."""
    counts: dict[tuple[int, int, int], int] = {}
    for op in ops:
        if op.microbatch < 0 or op.kind is Kind.BACKWARD_WEIGHT:
            continue
        parts = places[op.key][1]
        if parts != counts.setdefault((op.layer, op.microbatch, op.segment), parts):
            raise UserError(f"the plan cuts {op.sources[0]!r} in {parts} parts, but not so its forward")
        if rows % parts and not layers[op.layer].expert:
            raise UserError(
                f"the plan cuts {op.sources[0]!r} in {parts} parts; its {rows} sequences are not a multiple"
            )
