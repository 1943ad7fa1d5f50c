"""From a rank's own gradients to the next step's weights, following the Plan.

    own sum -> (share) -> reduce -> (replicas) -> squares -> [norm] -> optimizer -> (meet) -> (renew) -> (gather) -> ..
               `-------- on lanes -------------'  `- on this thread, once a slice -'   `-------- on lanes --------'

The plan determines how gradients and weights are sharded: a reduce_scatter leaves a shard, an all_gather without a
microbatch brings weights back (ZeRO-1 and 2), one with a microbatch does so before each use (ZeRO-3). Each run of
elements between two cuts of any planned op is a Shard with its own optimizer state; ops over several shards copy.

Clipping. exact: no optimizer runs before `norm`. optimistic: they run at once and save the old state; `verify` undoes
the updates if the norm was too large, and repeats them clipped (Qi et al. 2024, "post-validation").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from syntony.overlap.run.plan_runner import PlanRunner
from syntony.overlap.step.layout import Clip
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan
from syntony.trainer.config import Optimizer
from syntony.trainer.parallel.data_parallel.flat import adjacent
from syntony.trainer.parallel.data_parallel.islands import Islands
from syntony.trainer.parallel.data_parallel.norm import ExactSum
from syntony.trainer.parallel.data_parallel.secondary import Secondary
from syntony.trainer.parallel.data_parallel.sharded_layer import Shard, ShardedLayer
from syntony.trainer.parallel.data_parallel.slices import Slices

T = TypeVar("T")
_BYTES = 4  # of a float32
_ENOUGH = 1 << 18  # elements that justify a call of the optimizer if nothing waits for them


class Updates:
    """The layers of one rank, from their gradients to their next weights.

    total      adds up sums of squares over all ranks: a small blocking exchange
    copies     by lane of copies of shards, or secondary shards: their number, and this rank's index
    islands    exchanges with other islands; None: there are none
    """

    def __init__(
        self,
        plan: Plan,
        layers: Mapping[int, ShardedLayer],
        first: Mapping[int, Tensor],
        device: int,
        runner: PlanRunner,
        optimizer: Optimizer,
        total: Callable[[ExactSum], ExactSum],
        copies: Mapping[str, tuple[int, int]],
        islands: Islands | None = None,
    ) -> None:
        self.layers, self._runner, self._total, self._copies = layers, runner, total, copies
        self._clip, self._limit, self._graph = plan.clip, optimizer.clip_norm, plan.graph
        self.rate: float | None = None  # of this step; None: its gradients are void
        self.spent: dict[int, float] = {}  # seconds in optimizers, by layer
        self.norm = 0.0  # of the last gradients with a known norm
        self.before: Callable[[int], None] = lambda index: None  # called with a layer whose gradients are complete
        ops = [plan.graph[key] for (owner, _), keys in plan.orders.items() if owner == device for key in keys]
        moving = [op for op in ops if op.pieces and op.kind.moves]
        self._shares = {op.layer: op for op in ops if op.lane == "tp" and op.microbatch < 0 and op.kind.moves}
        self._factors = {op.layer: op.key for op in ops if op.key.kind == "factors"}
        self._place_gradients()
        for index, sharded in layers.items():
            sharded.settle(_cuts(moving, index, sharded.flat.elements), first[index])
        self._wholes = {i: sharded.whole for i, sharded in layers.items() if sharded.whole is not None}
        self.slices = Slices(optimizer, [(a.updated[part], decays) for a in self._every() for part, decays in a.parts])
        owned = iter(self.slices.parameters)
        for shard in self._every():
            shard.parameters = [next(owned) for _ in shard.parts]
        self._due: list[Shard] = []
        self._optimistic: list[Parameter] = []  # updated before the norm is known
        self._blocks: list[Tensor] = []  # sums of squares for the norm
        self._shards = {op.key: self._covered(op) for op in moving}
        self._islands, self._meets = islands, [op for op in moving if op.lane == "islands"]
        self._late = islands is not None and islands.delay > 0
        self._meeting = False  # islands exchange what they have when this step has ended
        self._reduces = [op for op in moving if self._sums(op)]
        self._reduces_of = {i: [op for op in self._reduces if _touches(op, i)] for i in layers}
        copying = [op for op in moving if op.kind is not Kind.ALL_GATHER and not self._sums(op)]
        self._replicas = [op for op in copying if op.lane != "islands"]
        self._renewals = [op for op in moving if op.kind is Kind.ALL_GATHER and op.lane == "replicas"]
        self._gathers = [
            op for op in moving if op.kind is Kind.ALL_GATHER and op.microbatch < 0 and not self._renews(op)
        ]
        self._early = {op.key: op for op in moving if op.kind is Kind.ALL_GATHER and op.microbatch >= 0}
        self._needed = {index: self._before(index) for index in layers}
        self._missing: dict[OpKey, set[object]] = {op.key: self._awaited(op) for op in moving}
        self._staged: dict[OpKey, Tensor] = {}
        self._near = Secondary(*copies["near"])
        self._lasting: dict[Shard, Tensor] = {}  # permanent gradients, whole
        self._bound: set[OpKey] = set()  # in-place sums whose memory the engine knows
        self._unverified = False
        for ops, came in (
            ([*self._shares.values()], self._shared),
            (self._reduces, self._reduced),
            (self._replicas, self._copied),
            (self._meets if islands and not islands.delay else [], self._met),
            (self._renewals, self._renewed),
            (self._gathers, self._gathered),
        ):
            for op in ops:
                runner.then(op.key, partial(came, op))
        runner.afterwards(lambda: self._update_due(_ENOUGH))

    # ---- what the step says -----------------------------------------------------------------------------------------

    def complete(self, index: int) -> None:
        """Called when this rank's own gradient of a layer is complete."""
        self.before(index)
        sharded = self.layers[index]
        for shard in sharded.shards:
            shard.rate, shard.meets = self.rate, self._meeting
        if sharded.factors is not None:
            mine, every = sharded.factors.mine, sharded.factors.every
            self._runner.ready(self._factors[index], mine.view(-1), every.view(-1))
            return
        sharded.summed = sharded.tree.take(keep_spare=sharded.zero < 2)
        if index in self._shares:
            self._runner.ready(self._shares[index].key, sharded.summed[sharded.flat.shared :])
        else:
            self._owned(index)
            self._update_due(_ENOUGH)

    def rebuild(self, index: int) -> None:
        """The `rebuild` op of a layer: all ranks' factors have arrived; computes the sum of all gradients here."""
        sharded = self.layers[index]
        for leaf in range(sharded.tree.leaves):
            buffer = sharded.tree.leaf(leaf)
            _there(sharded.factors).gradients(leaf, sharded.views(buffer))
            sharded.tree.add(leaf, buffer)
        sharded.summed = sharded.tree.take(keep_spare=True)
        self._owned(index)
        self._update_due(_ENOUGH)

    def begin(self, first: bool) -> None:
        """Called when a step begins. The first one starts the gathers that the plan has put before the forward."""
        self._near.begin()
        if self._islands is not None:
            for op in self._meets if first else ():
                self._islands.watch(op.key, self._shards[op.key])
            self._meeting = self.rate is not None and self._islands.step()
        for op in (*self._renewals, *self._gathers) if first else ():
            if self._graph.deferred(op):
                self._made(op)

    def settle(self, index: int) -> None:
        """Returns when the layer has the weights that the last step has made."""
        for key in self._needed[index]:
            self._runner.wait(key)
        if any(shard.layer == index for shard in self._due):
            self._update_due()

    def finish(self) -> None:
        """Returns when all of the last step's updates are done, including those that the plan has deferred."""
        self.clip()
        for index in self.layers:
            self.optimize(index)
        for index in self.layers:
            self.settle(index)

    def clip(self) -> None:
        """The `norm` op, with exact clipping: after all sums, before all optimizers."""
        if self._clip is not Clip.EXACT:
            return
        for index in self.layers:
            self.settle(index)
        if any(shard.gradient is not None for shard in self._every()):
            self._measure()

    def optimize(self, index: int) -> None:
        """The `opt` op of a layer: with exact clipping, and with late exchanges of islands, the time for its update."""
        if self._late:
            self.settle(index)
        if self._clip is Clip.EXACT or self._late:
            scale = self._scale() if self._clip is Clip.EXACT else 1.0
            self._update([shard for shard in self.layers[index].shards if shard.gradient is not None], scale)

    def verify(self) -> bool:
        """Called before the first backward of a step: whether the last step's updates are valid; if not, redoes them.

        If weights are gathered, other ranks see the new ones one step later, and the gradients of that step are void.
        """
        if self._clip is not Clip.OPTIMISTIC or not self._unverified:
            return True
        self._unverified = False
        for index in self.layers:
            self.settle(index)
        self._measure()
        scale = self._scale()
        if scale < 1.0:
            self.slices.put_back(self._optimistic)
            self._step(list(self._every()), scale)
        self._optimistic.clear()
        for shard in self._every():
            shard.gradient = None
        return scale == 1.0

    def meet(self) -> bool:
        """Makes the weights of all islands the same; whether there are islands. Those that are gathered remain to be
        gathered. Collective, after finish()."""
        if self._islands is not None:
            self._islands.rest()
        return self._islands is not None

    def foresee(self) -> None:
        """Called when the last step's updates are final: copies the state for updates that may be undone."""
        if self._clip is Clip.OPTIMISTIC and self.rate is not None:
            layers = reversed(list(self.layers.values()))
            self.slices.remember_ahead([[each for a in layer.shards for each in a.parameters] for layer in layers])

    # ---- at rest ----------------------------------------------------------------------------------------------------

    def memories(self, shard: Shard) -> dict[str, Tensor]:
        """The optimizer's state per element of the shard's weights, by its own names, without counters."""
        states = [self.slices.state(parameter) for parameter in shard.parameters]
        names = [name for name, value in states[0].items() if value.dim()]
        return {name: torch.cat([state[name] for state in states]) for name in names}

    def counts(self) -> Mapping[str, Tensor]:
        """The optimizer's counters, the same for all shards: `step`, .."""
        return {name: value for name, value in self.slices.state(self.slices.parameters[0]).items() if not value.dim()}

    def restore(self, index: int, kind: str, flat: Tensor, counts: Mapping[str, Tensor]) -> None:
        """Replaces a layer's weights (kind "") or one kind of its optimizer state by a whole flat buffer."""
        sharded = self.layers[index]
        if not kind and sharded.whole is not None:
            sharded.whole.copy_(flat)
        for shard in sharded.shards:
            if not kind:
                shard.weights.copy_(flat[shard.mine])
            for (part, _), parameter in zip(shard.parts, shard.parameters, strict=True) if kind else ():
                state = self.slices.state(parameter)
                for name, value in counts.items():
                    state.setdefault(name, value.clone())
                state[kind] = flat[shard.own][part].clone()

    # ---- what communication brings ----------------------------------------------------------------------------------

    def _shared(self, op: Op) -> None:
        self._owned(op.layer)

    def _gathered(self, op: Op) -> None:
        self._unpack(op, self._wholes)

    def _owned(self, index: int) -> None:
        """Called when this rank's own gradient of a layer is complete."""
        sharded = self.layers[index]
        reduces = self._reduces_of[index]
        for op in reduces:
            if self._came(op, index):
                self._reduce(op)
        if not reduces:
            for shard in sharded.shards:
                shard.gradient = _there(sharded.summed)[shard.mine]
                self._reduced_here(shard)

    def _reduce(self, op: Op) -> None:
        if op.key in self._bound:
            self._runner.ready(op.key)
            return
        shards = self._shards[op.key]
        wholes, n = [self._own(shard) for shard in shards], self.layers[shards[0].layer].n
        if op.kind is Kind.ALL_REDUCE:
            buffer, place = adjacent(wholes), self.layers[shards[0].layer].place
            if buffer is not None and all(shard in self._lasting for shard in shards):
                self._runner.bind(op.key, *_in_place(buffer, n, place))
                self._bound.add(op.key)
            elif buffer is None:
                buffer = self._staged[op.key] = torch.cat(wholes)
            self._runner.ready(op.key, *_in_place(buffer, n, place))
            return
        source = _by_rank(wholes, n)
        shard = self._staged[op.key] = torch.empty(source.numel() // n)
        self._runner.ready(op.key, source, shard)

    def _reduced(self, op: Op) -> None:
        shards, staged = self._shards[op.key], self._staged.pop(op.key, None)
        parts = None if staged is None else torch.split(staged, [shard.size for shard in shards])
        for place, shard in enumerate(shards):
            if op.kind is not Kind.ALL_REDUCE:
                shard.gradient = _there(parts)[place]
            else:
                shard.gradient = self._own(shard)
                if parts is not None:
                    shard.gradient.copy_(parts[place])
            self.layers[shard.layer].reduced(shard)
        for shard in shards:
            self._reduced_here(shard)

    def _reduced_here(self, shard: Shard) -> None:
        """Called when a shard's gradient is the sum over `dp`; copies of the model may have others."""
        more = [op for op in self._replicas if shard in self._missing[op.key]]
        for op in more:
            if self._came(op, shard):
                gradients = [_there(each.gradient) for each in self._shards[op.key]]
                if op.kind is Kind.ALL_REDUCE:
                    self._staged[op.key] = torch.cat(gradients)
                    self._runner.ready(op.key, *_in_place(self._staged[op.key], *self._copies[op.lane]))
                else:
                    source = _by_rank(gradients, self._copies[op.lane][0])
                    own = self._staged[op.key] = torch.empty(source.numel() // self._copies[op.lane][0])
                    self._runner.ready(op.key, source, own)
        if not more:
            self._summed(shard)

    def _copied(self, op: Op) -> None:
        shards, staged = self._shards[op.key], self._staged.pop(op.key)
        for shard, part in zip(shards, torch.split(staged, [len(shard.updated) for shard in shards]), strict=True):
            shard.gradient = part
            self._summed(shard)

    def _renewed(self, op: Op) -> None:
        """Called when the updates of other replicas have arrived."""
        shards, staged = self._shards[op.key], self._staged.pop(op.key)
        rows = torch.split(staged.view(self._copies[op.lane][0], -1), [len(shard.updated) for shard in shards], 1)
        for shard, row in zip(shards, rows, strict=True):
            shard.weights.view(len(row), -1).copy_(row)
            self._final(shard)

    def _summed(self, shard: Shard) -> None:
        if self._clip is not Clip.OFF and shard.rate is not None:
            self._blocks.append(shard.blocks())
        if self._clip is not Clip.EXACT and not self._late:
            self._due.append(shard)

    def _update_due(self, enough: int = 1) -> None:
        """Updates what is due, if it is at least `enough` elements, or if gathers wait for it."""
        gathers = self._meets or self._gathers or self._renewals
        if not self._due or (not gathers and sum(len(shard.updated) for shard in self._due) < enough):
            return
        due, self._due = self._due, []
        if self._clip is Clip.OPTIMISTIC:
            live = [parameter for shard in due if shard.rate is not None for parameter in shard.parameters]
            self.slices.remember(live)
            self._optimistic += live
            self._unverified = self._unverified or bool(live)
        self._update(due, 1.0)

    def _update(self, shards: Sequence[Shard], scale: float) -> None:
        self._step(shards, scale)
        for shard in shards:
            if not self._unverified:
                shard.gradient = None
            meets = [op for op in self._meets if shard.meets and shard in self._missing[op.key]]
            for op in meets:
                if self._came(op, shard):
                    self._meet(op)
            renewals = [op for op in self._renewals if shard in self._missing[op.key]]
            for op in renewals:
                if self._came(op, shard):
                    self._made(op)
            if not renewals and not meets:
                self._final(shard)

    def _meet(self, op: Op) -> None:
        """Called when the updates of shards that islands exchange are done."""
        islands = _there(self._islands)
        islands.send(op.key)
        if islands.delay:
            for shard in self._shards[op.key]:
                self._final(shard)

    def _met(self, op: Op) -> None:
        """Called when an exchange has ended that others wait for."""
        _there(self._islands).came(op.key)
        for shard in self._shards[op.key]:
            self._final(shard)

    def _final(self, shard: Shard) -> None:
        """Called when this rank's weights of a shard are the next step's."""
        for op in self._gathers:
            if shard in self._missing[op.key] and self._came(op, shard):
                self._made(op)

    def _made(self, op: Op) -> None:
        """Called when a gather of updated weights is ready."""
        if not self._renews(op):
            self._gather(op, self._wholes)
            return
        mine = torch.cat([shard.updated for shard in self._shards[op.key]])
        self._staged[op.key] = torch.empty(mine.numel() * self._copies[op.lane][0])
        self._runner.ready(op.key, mine, self._staged[op.key])

    def _step(self, shards: Sequence[Shard], scale: float) -> None:
        """Runs the optimizer unless gradients are void; usually all are of one step and have its rate."""
        begin = time.monotonic()
        for rate in {shard.rate for shard in shards if shard.rate is not None}:
            chosen = [shard for shard in shards if shard.rate == rate]
            gradients = [gradient for shard in chosen for gradient in shard.gradients(scale)]
            self.slices.update([parameter for shard in chosen for parameter in shard.parameters], gradients, rate)
        spent = (time.monotonic() - begin) / max(1, sum(len(shard.updated) for shard in shards))
        for shard in shards:
            self.spent[shard.layer] = self.spent.get(shard.layer, 0.0) + spent * len(shard.updated)

    # ---- weights on demand (ZeRO-3) ---------------------------------------------------------------------------------

    def gather(self, key: OpKey, wholes: Mapping[int, Tensor]) -> None:
        """Makes a gather before use ready; its layers' weights will be in `wholes`."""
        for index in wholes:
            self.settle(index)
        self._gather(self._early[key], wholes)

    def unpack(self, key: OpKey, wholes: Mapping[int, Tensor]) -> None:
        """The gather has ended: weights may be used."""
        op = self._early[key]
        self._unpack(op, wholes)
        if op.lane == "dp":
            self._near.keep(self._shards[key], wholes)

    def _gather(self, op: Op, wholes: Mapping[int, Tensor]) -> None:
        shards = self._shards[op.key]
        parts = [self._near.of(shard) if op.lane == "near" else shard.weights for shard in shards]
        mine = torch.cat(parts)  # a copy: it may be part of the output
        into = [wholes[shard.layer][shard.begin : shard.end] for shard in shards]
        if len(into) > 1:
            into = [torch.empty(sum(shard.end - shard.begin for shard in shards))]
            self._staged[op.key] = into[0]
        self._runner.ready(op.key, mine, into[0])

    def _unpack(self, op: Op, wholes: Mapping[int, Tensor]) -> None:
        staged, shards = self._staged.pop(op.key, None), self._shards[op.key]
        if staged is None:
            return
        n = self._near.ranks if op.lane == "near" else self.layers[shards[0].layer].n
        rows = torch.split(staged.view(n, -1), [(shard.end - shard.begin) // n for shard in shards], 1)
        for shard, row in zip(shards, rows, strict=True):
            wholes[shard.layer][shard.begin : shard.end].view(n, -1).copy_(row)

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _awaited(self, op: Op) -> set[object]:
        """The conditions for an op to be ready: layers' own gradients for a reduce, else shards."""
        shards = self._shards[op.key]
        return {shard.layer for shard in shards} if self._sums(op) else set(shards)

    def _came(self, op: Op, what: object) -> bool:
        """Whether this was the last condition of the op; if so, resets it for the next step."""
        missing = self._missing[op.key]
        missing.discard(what)
        if not missing:
            self._missing[op.key] = self._awaited(op)
        return not missing

    def _sums(self, op: Op) -> bool:
        """Whether it sums gradients of ranks with the same layer, or shards of it; not those of copies of a shard."""
        return op.kind is not Kind.ALL_GATHER and op.lane == self.layers[op.pieces[0].layer].lane

    @staticmethod
    def _renews(op: Op) -> bool:
        """Whether it gathers the parts of a shard updated by the replicas."""
        return op.kind is Kind.ALL_GATHER and op.lane == "replicas"

    def _before(self, index: int) -> list[OpKey]:
        """The ops that produce a layer's next weights, in order of dependency."""
        layers = {index}
        for op in self._gathers:
            touched = {shard.layer for shard in self._shards[op.key]}
            layers |= touched if index in touched else set()
        found = [op.key for layer, op in self._shares.items() if layer in layers]
        meets = self._meets if self._islands is not None and not self._islands.delay else []
        for op in (*self._reduces, *self._replicas, *meets, *self._renewals):
            found += [op.key] if layers & {shard.layer for shard in self._shards[op.key]} else []
        return found + [op.key for op in self._gathers if index in {shard.layer for shard in self._shards[op.key]}]

    def _every(self) -> Iterable[Shard]:
        return (shard for sharded in self.layers.values() for shard in sharded.shards)

    def _measure(self) -> None:
        self.norm = self._total(ExactSum.of(torch.cat(self._blocks)) if self._blocks else ExactSum()).root
        self._blocks.clear()

    def _scale(self) -> float:
        return min(1.0, self._limit / (self.norm + 1e-6))

    def _covered(self, op: Op) -> list[Shard]:
        """The shards of the op, in memory order, the same on all ranks."""
        return [
            shard
            for piece in sorted(op.pieces, key=lambda piece: (piece.layer, piece.begin))
            for shard in self.layers[piece.layer].shards
            if piece.begin <= shard.begin * _BYTES < piece.end
        ]

    def _own(self, shard: Shard) -> Tensor:
        """This rank's own sum of an shard's gradient, whole."""
        if shard in self._lasting:
            return self._lasting[shard]
        sharded = self.layers[shard.layer]
        own = _there(sharded.summed)[shard.begin : shard.end]
        if sharded.zero < 2:
            self._lasting[shard] = own
        return own

    def _place_gradients(self) -> None:
        """Places permanent gradients side by side, so that unions of neighbours need no copy."""
        staying = [sharded for sharded in self.layers.values() if sharded.zero < 2]
        arena = torch.zeros(sum(sharded.flat.elements for sharded in staying))
        for sharded, part in zip(staying, torch.split(arena, [each.flat.elements for each in staying]), strict=True):
            sharded.place_gradient(part)


def _cuts(ops: Iterable[Op], layer: int, elements: int) -> list[int]:
    borders = {0, elements}
    for op in ops:
        for piece in op.pieces:
            if piece.layer == layer:
                borders |= {piece.begin // _BYTES, piece.end // _BYTES}
    return sorted(borders)


def _in_place(buffer: Tensor, n: int, place: int) -> tuple[Tensor, Tensor]:
    """What an all_reduce in place of `n` ranks takes: canonical ones make a rank's part first."""
    return buffer, buffer.view(n, -1)[place]


def _by_rank(tensors: Sequence[Tensor], n: int) -> Tensor:
    """Rearranges tensors of n equal parts by rank, so that each of n ranks' parts are adjacent."""
    return tensors[0] if len(tensors) == 1 else torch.cat([tensor.view(n, -1) for tensor in tensors], 1).flatten()


def _touches(op: Op, layer: int) -> bool:
    return any(piece.layer == layer for piece in op.pieces)


def _there(value: T | None) -> T:
    assert value is not None
    return value
