"""Generates the Graph of a step from the layers of a model and their layout.

    gather? -> fwd -> transfer -> fwd -> send|recv -> .. -> bwd -> transfer -> bwd -> reduce -> norm? -> opt -> gather?
       ^                                                                                                        |
       +------------------------------------------- lagged: next step ------------------------------------------+

The Ops are in the order of the pipeline's schedule; where that leaves freedom, only these edges constrain an Op. Rules
for code that runs the graph:

- A `recv` and the `send` of the same layer, microbatch and direction are one message; nothing else links them.
- `gather.{layer}.{microbatch}.f|b` (weights sharded) happens once for consecutive microbatches of a chunk, and is named
  after the first of them; the weights may be freed when the last compute Op that depends on it has ended. Experts that
  move to the tokens (a layer's shadow) arrive once a step, and stay until its last backward; with zero=3 they come and
  go like all weights.
- Received inputs of a microbatch's segments may be dropped behind them (`CommSpec.uses`);
  `NAME_again.{layer}.{microbatch}.b` moves them once more, as many uses ahead as weights are gathered.
- `meet.{layer}` sums what islands have changed, in the last of `Layout.local` steps only (`Graph.every`). With
  `Layout.delay` nobody waits for it but the layer's update in the step of the exchange so many later (`lagged`).
- `opt` waits for the `norm` of every device (clip exact); the norm itself exchanges the results of other devices.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from syntony.base.command import UserError
from syntony.overlap.step.graph import Graph, LayerSpec
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.loans import Left, lent
from syntony.overlap.step.op import COMPUTE, Kind, Op, Piece
from syntony.overlap.step.op_key import BACKWARD, FORWARD, TWIN, OpKey
from syntony.overlap.step.pipelines.chunks import split_over
from syntony.overlap.step.pipelines.pipelines import pipeline
from syntony.overlap.step.pipelines.tasks import LEND, RETURN, Pipeline, Task, Times
from syntony.overlap.step.rotation import Rotation, brings
from syntony.overlap.step.sharding import Sharding


def generate(
    layers: Sequence[LayerSpec],
    layout: Layout,
    order: Pipeline | None = None,
    chunks: tuple[range, ...] = (),
    apart: bool = False,
) -> Graph:
    """The step of these layers. Raises UserError if they do not fit the layout.

    order    of the pipeline's tasks; default: as in `layout.schedule`, searched with the layers' operations
    chunks   the layers of each; default: `split_over`
    apart    forwards and backwards gather weights ahead separately, as they will be interleaved
    """
    _check(layers, layout)
    if order is None:
        times = times_of(layers)
        order = pipeline(layout.schedule, layout.pp, layout.loops, layout.microbatches, times, layout.slices)
    step = _Step(layers, layout, order, chunks or split_over(layers, layout, order.places), apart)
    graph = Graph(tuple(step.ops()), tuple(layers), layout)
    graph.check()
    return graph


def times_of(layers: Sequence[LayerSpec], rate: float = 1.0, message: float = 0.0) -> Times:
    """The times of the model's forward and backward, at `rate` operations per second."""
    forward = sum(sum(layer.segments) for layer in layers) / rate or 1.0
    inputs, weights = (
        sum(sum(layer.segments) * layer.backward[part] for layer in layers) / rate or 1.0 for part in (0, 1)
    )
    return Times(forward, inputs, weights, message)


def _check(layers: Sequence[LayerSpec], layout: Layout) -> None:
    chunks = layout.pp * layout.chunks
    if len(layers) < chunks:
        raise UserError(
            f"{len(layers)} layers are too few for {chunks} chunks (pp {layout.pp} x {layout.chunks} per device)"
        )
    for layer in layers:
        if len(layer.segments) != len(layer.transfers) + 1:
            raise UserError(
                f"layer {layer.name!r} has {len(layer.segments)} segments and {len(layer.transfers)} transfers; "
                "there must be one segment more"
            )
        for way in ("forward", "backward"):
            names = [transfer.name for transfer in layer.transfers if getattr(transfer, way)]
            if len(set(names)) != len(names):
                raise UserError(f"layer {layer.name!r} has two {way} transfers of one name")


class _Step:
    def __init__(
        self, layers: Sequence[LayerSpec], layout: Layout, order: Pipeline, chunks: tuple[range, ...], apart: bool
    ) -> None:
        nothing = LayerSpec("", 0, ())
        self.count = len(layers)
        self.layers = (*layers, *(layer.shadow or nothing for layer in layers))
        self.sharding = Sharding.of_all(layers, layout)
        self.layout, self.order, self.chunks, self.apart = layout, order, chunks, apart
        self.chunk_of = [chunk for chunk, members in enumerate(chunks) for _ in members]
        self.here = 0  # the current device
        self.split = {task[1:] for tasks in order.orders for task in tasks if task.kind == "X"}
        self.groups = layout.groups
        self.uses: dict[str, list[OpKey]] = {}  # there: the first task's last Op that needs each gathered weight
        self.returns: list[OpKey] = []  # there: the last Op that needs each repeated transfer
        self.rotation = Rotation(self.layers, layout.prefetch)
        self.begun: set[int] = set()  # layers of the current device that have gradients
        self.seen: dict[int, OpKey] = {}  # by layer, its first Op of the step
        self.verified = False  # the device has checked the last step's norm
        self.staying: dict[int, OpKey] = {}  # by layer: the gather of weights that stay for the step, and
        self.final: dict[int, int] = {}  # by chunk of the current device: the last microbatch that needs weights
        self.loans: Mapping[Task, Sequence[OpKey]] = {}  # by task of the current device: messages that it waits for

    def ops(self) -> Iterator[Op]:
        for device, order in enumerate(self.order.orders):
            self.here, self.begun = device, set()
            self.uses, self.returns, self.verified = {}, [], False
            self.rotation.begin()
            tasks = [task for task in order if task.kind not in LEND + RETURN]
            self.final = {task.chunk: task.microbatch for task in tasks if task.kind in "BX"}
            pair = device, len(self.order.orders) - 1 - device
            loans, self.loans = lent(order, pair, self._end, self._left_by)
            for (kind, chunk), row in groupby(tasks, key=lambda task: (task.kind, task.chunk)):
                yield from self._row(kind, chunk, [task.microbatch for task in row])
            yield from loans
            yield from self._update(device)

    def _left_by(self, task: Task) -> Left:
        """The activations of a chunk's forward, which may be lent once it has ended and its output has been sent on."""
        chunk, m = self.chunks[task.chunk], task.microbatch
        size = sum(self.layers[i].inputs if self.layout.recompute else self._left(i) for i in chunk)
        away = chunk[-1] + 1 < self.count and self._device(chunk[-1] + 1, m) != self.here
        sent = [OpKey(Kind.SEND, chunk[-1], m, direction=FORWARD)] if away else []
        return Left(chunk[0], size, (self._end(task), *sent))

    def _end(self, task: Task) -> OpKey:
        """The last Op that computes a task."""
        members = self.chunks[task.chunk]
        return self._last(task.kind, members[-1] if task.kind == "F" else members[0], task.microbatch)

    def _row(self, kind: str, chunk: int, microbatches: list[int]) -> Iterator[Op]:
        """Consecutive tasks of one kind of a chunk share gathered weights."""
        members = self.chunks[chunk] if kind == "F" else self.chunks[chunk][::-1]
        passing: dict[int, OpKey] = {}
        for microbatch in microbatches:
            for i in members:
                way, weights, shed = FORWARD if kind == "F" else BACKWARD, list[OpKey](), 0
                uses = self.uses.setdefault(way if self.apart else "", [])
                ahead = [] if len(uses) <= self.layout.prefetch else [uses[-1 - self.layout.prefetch]]
                for part in (i, self.count + i):
                    size, stays = self.layers[part].weights, part != i and self.layout.zero < 3
                    gathers, last = (self.staying, self.final[chunk]) if stays else (passing, microbatches[-1])
                    if kind != "W" and part not in gathers and self.sharding[part].divides(3):
                        gathers[part] = OpKey("gather", part, microbatch, direction=way)
                        use = self._last(kind, i, microbatch)
                        uses += [use] if use not in uses[-1:] else []
                        near = kind != "F" and part == i and self._near(i)
                        op = self._moved(
                            gathers[part],
                            Kind.ALL_GATHER,
                            part,
                            microbatch,
                            deps=[*ahead, self.seen[i]] if near else ahead,
                            lagged=() if near else self._updated(part),
                            holds=size,
                        )
                        yield op._replace(lane="near") if near else op
                    if part in gathers:
                        weights.append(gathers[part])
                        shed += size if microbatch == last and not (stays and kind == "F") else 0
                if kind == "F":
                    yield from self._forward(i, microbatch, weights, shed)
                else:
                    yield from self._backward(kind, i, microbatch, weights, shed)

    def _last(self, kind: str, i: int, microbatch: int) -> OpKey:
        word = {"F": Kind.FORWARD, "B": Kind.BACKWARD, "X": Kind.BACKWARD_INPUT}[kind]
        return self._key(word, i, microbatch, len(self.layers[i].segments) - 1 if kind == "F" else 0)

    def _needed(self, i: int, segment: int, weights: list[OpKey]) -> list[OpKey]:
        """The gathered weights that a segment needs: if all are experts', only computation needs them."""
        layer = self.layers[i]
        return list(weights) if layer.weights or layer.segments[segment] else []

    def _key(self, kind: Kind, i: int, microbatch: int, segment: int) -> OpKey:
        return OpKey(kind, i, microbatch, segment if len(self.layers[i].segments) > 1 else -1)

    def _awaited(self, kind: str, i: int, m: int) -> Sequence[OpKey]:
        """Messages of `loans` that a chunk's task waits for before its first layer."""
        chunk = self.chunk_of[i]
        first = self.chunks[chunk][0 if kind == "F" else -1] == i
        return self.loans.get(Task(kind, chunk, m), ()) if first else ()

    def _near(self, i: int) -> bool:
        """Whether the layer's backward gathers weights from what its first forward of the step has kept."""
        return self.layout.secondary > 1 and self.sharding[i].lane == "dp"

    def _forward(self, i: int, m: int, weights: list[OpKey], shed: int) -> Iterator[Op]:
        layer = self.layers[i]
        self.seen.setdefault(i, self._key(Kind.FORWARD, i, m, 0))
        before = [*self._needed(i, 0, weights), *self._awaited("F", i, m)]
        if i > 0:
            way = yield from self._message(i - 1, i, m, FORWARD)
            before.append(way or self._key(Kind.FORWARD, i - 1, m, len(self.layers[i - 1].segments) - 1))
        for s, amount in enumerate(layer.segments):
            final = s == len(layer.segments) - 1
            key = self._key(Kind.FORWARD, i, m, s)
            if m % self.order.slices:  # keys and values of the previous piece
                before.append(self._key(Kind.FORWARD, i, m - 1, s))
            turned = self._turned(i, m, s, FORWARD)
            if turned is not None:
                yield turned
                before.append(turned.key)
            kept = layer.enters(s) if self.layout.recompute else self._left(i, s)
            yield Op(
                key,
                Kind.FORWARD,
                self.here,
                COMPUTE,
                amount,
                tuple(before),
                () if s or self.sharding[i].divides(3) else self._updated(i),
                i,
                m,
                s,
                holds=kept,
                frees=(shed if final else 0)
                + sum(layer.transfers[t].bytes for t in self._dropped(i, s))
                + (turned.holds if turned is not None else 0),
            )
            self.rotation.used(key, FORWARD if self.apart else "")
            if not final:
                moved = yield from self._transfer(i, m, s, FORWARD, key)
                before = [moved or key, *self._needed(i, s + 1, weights)]
        if i + 1 < self.count and self._device(i + 1, m) != self.here:
            yield self._side(Kind.SEND, i, m, FORWARD, self.here, self._device(i + 1, m), (key,))

    def _backward(self, kind: str, i: int, m: int, weights: list[OpKey], shed: int) -> Iterator[Op]:
        layer = self.layers[i]
        segments = range(len(layer.segments) - 1, -1, -1)
        both, word = layer.halves, {"B": Kind.BACKWARD, "X": Kind.BACKWARD_INPUT, "W": Kind.BACKWARD_WEIGHT}[kind]
        factor = {"B": sum(both), "X": both[0], "W": both[1]}[kind]
        if kind == "W":
            for s in segments:
                after = (self._key(Kind.BACKWARD_INPUT, i, m, s),)
                yield from self._gradient(word, i, m, s, layer.segments[s] * factor, after, (), 0)
            return
        if i == self.count - 1:
            before = self._key(Kind.FORWARD, i, m, segments[0])
        else:
            way = yield from self._message(i + 1, i, m, BACKWARD)
            follows = Kind.BACKWARD_INPUT if (self.chunk_of[i + 1], m) in self.split else Kind.BACKWARD
            before = way or self._key(follows, i + 1, m, 0)
        awaited = self._awaited(kind, i, m)
        returned: dict[int, OpKey] = {}  # by transfer
        for s in segments:
            for t in self._dropped(i, s, again=True):
                returned[t] = yield from self._again(i, m, t, self._key(word, i, m, t + 1))
            needed = [*self._needed(i, s, weights), *(returned[t] for t in returned if t < s), *awaited]
            awaited = ()
            turned = self._turned(i, m, s, BACKWARD)
            if turned is not None:
                yield turned
                needed.append(turned.key)
            deps = [before, *needed]
            if (m + 1) % self.order.slices:  # their gradients from the next piece
                deps.append(self._key(word, i, m + 1, s))
            if self.layout.recompute:
                again = self._key(Kind.RECOMPUTE, i, m, s)
                forward = self._key(Kind.FORWARD, i, m, s)
                yield Op(
                    again,
                    Kind.RECOMPUTE,
                    self.here,
                    COMPUTE,
                    layer.segments[s],
                    (forward, *needed),
                    layer=i,
                    microbatch=m,
                    segment=s,
                    holds=layer.again(s),
                )
                deps.append(again)
            lagged: tuple[OpKey, ...] = ()
            if self.layout.clip is Clip.OPTIMISTIC and not self.verified:
                lagged = tuple(OpKey(Kind.NORM, other) for other in range(self.layout.pp))
            self.verified = True
            key = self._key(word, i, m, s)
            amount = layer.segments[s] * factor
            back = layer.transfers[s - 1].bytes if s - 1 in returned or turned is not None else 0
            yield from self._gradient(word, i, m, s, amount, deps, lagged, back + (0 if s else shed))
            self.rotation.used(key, BACKWARD if self.apart else "")
            before = key
            if s:
                moved = yield from self._transfer(i, m, s - 1, BACKWARD, key)
                before = moved or key
        if i > 0 and self._device(i - 1, m) != self.here:
            yield self._side(Kind.SEND, i, m, BACKWARD, self.here, self._device(i - 1, m), (key,))

    def _gradient(
        self,
        kind: Kind,
        i: int,
        m: int,
        s: int,
        amount: float,
        deps: Iterable[OpKey],
        lagged: tuple[OpKey, ...],
        shed: float,
    ) -> Iterator[Op]:
        """An Op of the backward; the last one of a microbatch frees its activations. Gradients have permanent memory,
        unless they are sharded, or of a shard that rotates: these are then passed on."""
        layer = self.layers[i]
        made = kind is not Kind.BACKWARD_INPUT
        fresh = (i, self.count + i) if made and i not in self.begun else ()
        holds = sum(self.layers[part].weights for part in fresh if self.sharding[part].divides(2))
        if made:
            self.begun.add(i)
            away = brings(layer, s)
            holds += away.bytes if away is not None else 0
            deps = [*deps, *self.rotation.room(i, s)]
        if self.layout.recompute and kind is Kind.BACKWARD:
            shed += layer.again(s) + layer.enters(s)
        elif kind is Kind.BACKWARD:
            shed += self._left(i, s)
        elif s == 0:
            whole = layer.recomputed if self.layout.recompute else self._left(i)
            shed += layer.products if kind is Kind.BACKWARD_WEIGHT else whole - layer.products
        key = self._key(kind, i, m, s)
        op = Op(key, kind, self.here, COMPUTE, amount, tuple(deps), lagged, i, m, s, holds=holds, frees=shed)
        yield op
        passed = self.rotation.gradient(op) if made else None
        yield from () if passed is None else (passed,)

    def _turned(self, i: int, m: int, s: int, way: str) -> Op | None:
        """Brings the weights of a segment, if they rotate."""
        return self.rotation.weights(i, m, s, way, way if self.apart else "", self.here, self._updated(i))

    def _left(self, i: int, s: int | None = None) -> float:
        """The bytes that the forward of one microbatch keeps, including input from another device.

        s    those booked with this segment: all with the first, but by segment where shards of weights come and go
        """
        came = i > 0 and self.order.places[self.chunk_of[i - 1]] != self.order.places[self.chunk_of[i]]
        entered = self.layers[i - 1].output if came else 0
        if s is None or not self.layout.rotate:
            return 0 if s else self.layers[i].activations + entered
        return self.layers[i].left(s) + (0 if s else entered)

    def _update(self, device: int) -> Iterator[Op]:
        """Sums gradients, computes their norm, updates and gathers weights. Last layers first, as their gradients are.
        If a layer is on two devices, both sum its gradients, once both have them."""
        layout = self.layout
        places = {i: self._places(i) for i in range(self.count)}
        own = [i for i in range(self.count) if device in places[i]]
        mine = [part for i in own for part in (i, self.count + i) if self.layers[part].weights]
        sums: dict[int, list[OpKey]] = {}
        for i in reversed(mine):
            layer, sharding = self.layers[i], self.sharding[i]
            lane, count = sharding.lane, sharding.ranks
            size, user = layer.weights, i % self.count
            parts = range(len(self.layers[user].segments))
            sums[i] = [
                self._key(Kind.BACKWARD_WEIGHT, user, m, s)
                if (self.chunk_of[user], m) in self.split
                else self._key(Kind.BACKWARD, user, m, s)
                for m in range(layout.units)
                if self._device(user, m) == device
                for s in (parts if (self.chunk_of[user], m) in self.split else (0,))
            ]
            here = [m for m in range(layout.units) if self._device(user, m) == device]
            sums[i] += [key for m in here for key in self.rotation.last(i, m)]
            if layer.shared and "tp" in self.groups:
                share = self._once("share", i)
                yield Op(share, Kind.ALL_REDUCE, device, "tp", layer.shared, tuple(sums[i]), layer=i)
                sums[i] = [share]
            if count > 1 and layer.sums == "factors":
                sums[i] = [(yield from self._rebuilt(i, lane, count, sums[i]))]
            elif count > 1:
                kind = Kind.REDUCE_SCATTER if sharding.level else Kind.ALL_REDUCE
                frees = size - size / count if sharding.level >= 2 else 0
                key = self._once("reduce", i)
                yield self._moved(key, kind, i, deps=[*sums[i], *self._twins(i)], frees=frees)
                sums[i] = [key]
            copies = {"dp": "replicas", "ep": "edp"}.get(lane, "")
            if copies in self.groups:
                kind, frees = Kind.ALL_REDUCE, 0.0
                if sharding.spreads:
                    kind, frees = Kind.REDUCE_SCATTER, size / count - sharding.updated if sharding.divides(2) else 0.0
                op = self._moved(self._once("replicas", i), kind, i, deps=sums[i], frees=frees)
                yield op._replace(lane=copies, amount=size / count)
                sums[i] = [op.key]
        norms: tuple[OpKey, ...] = ()
        if layout.clip is not Clip.OFF:
            after = tuple(key for i in mine for key in sums[i])
            read = sum(self.sharding[i].updated for i in mine)
            yield Op(OpKey(Kind.NORM, device), Kind.NORM, device, COMPUTE, read, after)
            if layout.clip is Clip.EXACT:
                norms = tuple(OpKey(Kind.NORM, other) for other in range(layout.pp))
        for i in reversed(mine):
            part = self.sharding[i].updated
            frees = part if self.sharding[i].divides(2) else 0
            key, late = self._once(Kind.OPTIMIZE, i), (self._once("meet", i),) if layout.delay else ()
            yield Op(key, Kind.OPTIMIZE, device, COMPUTE, part, (*sums[i], *norms), late, layer=i, frees=frees)
        for i in reversed(mine) if layout.apart else ():
            op = self._moved(self._once("meet", i), Kind.ALL_REDUCE, i, deps=[self._once(Kind.OPTIMIZE, i)])
            yield op._replace(lane="islands", amount=self.sharding[i].updated)
        for i in reversed(mine):
            if self.sharding[i].spreads:
                op = self._moved(self._once("renew", i), Kind.ALL_GATHER, i, deps=[self._once(Kind.OPTIMIZE, i)])
                yield op._replace(lane="replicas", amount=self.layers[i].weights / self.sharding[i].ranks)
        for i in reversed(mine):
            if self.sharding[i].gathers:
                key = OpKey("renew" if self.sharding[i].spreads else self._changed, i)
                deps = (key,) if layout.copies == 1 else (key, key.twin)
                yield self._moved(self._once("gather", i), Kind.ALL_GATHER, i, deps=deps)

    def _rebuilt(self, i: int, lane: str, count: int, made: Sequence[OpKey]) -> Generator[Op, None, OpKey]:
        """Gathers factors of gradients, and sums their products over all microbatches of the lane's ranks."""
        layer, microbatches = self.layers[i], count * self.layout.units
        size = layer.factors * microbatches
        gather, key = self._once("factors", i), self._once(Kind.REBUILD, i)
        yield Op(gather, Kind.ALL_GATHER, self.here, lane, size, tuple(made), layer=i, holds=size)
        amount = sum(layer.segments) * layer.backward[1] * microbatches
        yield Op(key, Kind.REBUILD, self.here, COMPUTE, amount, (gather,), layer=i, frees=size)
        return key

    def _moved(
        self,
        key: OpKey,
        kind: Kind,
        i: int,
        m: int = -1,
        deps: Sequence[OpKey] = (),
        lagged: Sequence[OpKey] = (),
        holds: float = 0,
        frees: float = 0,
    ) -> Op:
        """A layer's gradients or weights, or its shadow's, moved by its group."""
        size = self.layers[i].weights
        piece = (Piece(i, 0, size),)
        lane, device, user = self.sharding[i].lane, self.here, i % self.count
        return Op(
            key, kind, device, lane, size, tuple(deps), tuple(lagged), user, m, pieces=piece, holds=holds, frees=frees
        )

    def _transfer(self, i: int, m: int, s: int, way: str, after: OpKey) -> Generator[Op, None, OpKey | None]:
        """The transfer behind segment s; its key is the generator's value, None if there is none."""
        transfer = self.layers[i].transfers[s]
        kind = transfer.forward if way == FORWARD else transfer.backward
        if kind is None or transfer.rotates or self.groups.get(transfer.lane, 1) == 1:
            return None
        key = OpKey(transfer.name, i, m, direction=way)
        holds = transfer.bytes if transfer.uses and way == FORWARD else 0
        yield Op(key, kind, self.here, transfer.lane, transfer.bytes, (after,), (), i, m, s, holds=holds)
        return key

    def _dropped(self, i: int, s: int, again: bool = False) -> list[int]:
        """Transfers whose output no segment of the forward after s needs; `again`: only those that are repeated."""
        return [
            t
            for t, transfer in enumerate(self.layers[i].transfers)
            if transfer.uses and t + transfer.uses == s and self.groups.get(transfer.lane, 1) > 1
            if transfer.again or not again
        ]

    def _again(self, i: int, m: int, t: int, last: OpKey) -> Generator[Op, None, OpKey]:
        """Repeats the dropped transfer t; `last` is the last Op that needs it."""
        transfer, ahead = self.layers[i].transfers[t], self.returns[: -self.layout.prefetch][-1:]
        assert transfer.forward is not None
        key, dropped = OpKey(transfer.anew, i, m, direction=BACKWARD), self._key(Kind.FORWARD, i, m, t + transfer.uses)
        size = transfer.bytes
        yield Op(key, transfer.forward, self.here, transfer.lane, size, (dropped, *ahead), (), i, m, t, holds=size)
        self.returns.append(last)
        return key

    def _message(self, here: int, there: int, m: int, way: str) -> Generator[Op, None, OpKey | None]:
        """The receiving end of the message from layer `here` to layer `there`; its value is its key, None if local."""
        source, sink = self._device(here, m), self._device(there, m)
        if source == sink:
            return None
        op = self._side(Kind.RECV, here, m, way, sink, source, ())
        yield op
        return op.key

    def _side(self, kind: Kind, i: int, m: int, way: str, device: int, peer: int, deps: tuple[OpKey, ...]) -> Op:
        size = self.layers[i if way == FORWARD else i - 1].output
        key = OpKey(kind, i, m, direction=way)
        return Op(key, kind, device, "pp", size, deps, layer=i, microbatch=m, peer=peer)

    def _places(self, i: int) -> tuple[int, ...]:
        """The devices that have the layer: that of the first microbatches and, if there is another, that one too."""
        place = self.order.place(self.chunk_of[i % self.count], 0)
        return (place, len(self.order.orders) - 1 - place) if self.order.twins else (place,)

    def _device(self, i: int, m: int) -> int:
        """The device on which the layer processes the microbatch."""
        return self.order.place(self.chunk_of[i % self.count], m)

    def _once(self, kind: str, i: int) -> OpKey:
        """The key of an Op per step on the current device; on the layer's second device it has a mark."""
        return OpKey(kind, i, direction="" if self.here == self._places(i)[0] else TWIN)

    def _updated(self, i: int) -> tuple[OpKey, ...]:
        """The Op of the last step that made the layer's weights here."""
        made = "gather" if self.sharding[i].gathers else "renew" if self.sharding[i].spreads else self._changed
        return (self._once(made, i),) if self.layers[i].weights else ()

    @property
    def _changed(self) -> str:
        """The kind of the Op that makes a rank's part of new weights: with islands that wait, their exchange."""
        return "meet" if self.layout.apart and not self.layout.delay else Kind.OPTIMIZE

    def _twins(self, i: int) -> Iterator[OpKey]:
        """The last Ops on the layer's other device that make its gradients, which are summed with these."""
        for other in (place for place in self._places(i) if place != self.here):
            last = max(m for m in range(self.layout.units) if self._device(i, m) == other)
            yield self._key(Kind.BACKWARD, i, last, 0)
