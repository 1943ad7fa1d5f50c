"""One rank of a training run: its part of the model, the Plan, and the objects that run it.

    config -> mesh -> layers, cut for this rank -> graph -> policy -> plan -> runner, updates, interpreter

Rank 0 makes the plan and sends it to the others; all compare its hash before step 0.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor

from syntony.base.command import UserError
from syntony.collectives.torch_backend.backend import communicator_of
from syntony.overlap.run.plan_runner import PlanRunner, Record, gather_lane, urgency
from syntony.overlap.step import graph
from syntony.overlap.step.demand import Visits
from syntony.overlap.step.generate import generate
from syntony.overlap.step.op import COMPUTE, Kind
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan
from syntony.overlap.step.sharding import Sharding
from syntony.trainer.config import Config
from syntony.trainer.model.layer import Layer, Weight
from syntony.trainer.model.places import Places
from syntony.trainer.parallel.data_parallel.factors import Factors, Form
from syntony.trainer.parallel.data_parallel.flat import ALIGNMENT, Flat
from syntony.trainer.parallel.data_parallel.islands import Islands
from syntony.trainer.parallel.data_parallel.norm import ExactSum
from syntony.trainer.parallel.data_parallel.sharded_layer import ShardedLayer
from syntony.trainer.parallel.data_parallel.updates import Updates
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.parallel.parallel import boundary, parallelized
from syntony.trainer.run.emulated import emulated
from syntony.trainer.run.memory.activations import held
from syntony.trainer.run.step import Interpreter, Redo
from syntony.trainer.run.text import Microbatches

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Part = tuple[Layer, Flat]  # a layer on a rank, and the memory layout of its weights
Parts = Mapping[int, Part]  # by number: layers, and behind them shadows (`Graph.shadow`)


class World:
    """All ranks together, beside the plan's lanes: small, blocking exchanges. One rank needs no torch.distributed."""

    def __init__(self, mesh: Mesh, timeout: float, backend: str | None = None) -> None:
        self.mesh, self._timeout, self._backend = mesh, timedelta(seconds=timeout), backend
        self._group = dist.new_group(timeout=self._timeout, group_desc="control") if mesh.world > 1 else None
        self._island = self._island_group()  # of the ranks of this island
        self._lanes: dict[tuple[str, int, str], dist.ProcessGroup | None] = {}  # by name, ranks, urgency; None: of one
        self._still: dict[tuple[str, int], dist.ProcessGroup] = {}  # of lanes, by name and ranks

    def _island_group(self) -> dist.ProcessGroup | None:
        """None: it has one rank, or everybody's group."""
        layout, found = self.mesh.layout, self._group
        for island in range(layout.islands if layout.apart else 0):
            ranks = [rank for rank in range(self.mesh.world) if self.mesh.place_of(rank)["islands"] == island]
            group = dist.new_group(ranks, self._timeout, group_desc="island") if len(ranks) > 1 else None
            found = group if self.mesh.rank in ranks else found
        return found

    def gather(self, blob: bytes, size: int = 0) -> list[bytes]:
        """All blobs in rank order. `size`: an upper bound that all know; 0: it is found out."""
        return self._gather(self._group, blob, size)

    def _gather(self, group: dist.ProcessGroup | None, blob: bytes, size: int) -> list[bytes]:
        if group is None:
            return [blob]
        if not size:
            size = max(int.from_bytes(each, "big") for each in self._gather(group, len(blob).to_bytes(8, "big"), 8))
        mine = torch.zeros(size + 8, dtype=torch.uint8, device="cpu")
        mine[: len(blob) + 8] = torch.frombuffer(bytearray(len(blob).to_bytes(8, "big") + blob), dtype=torch.uint8)
        found = [torch.empty_like(mine) for _ in range(group.size())]
        dist.all_gather(found, mine, group=group)
        rows = [bytes(row.numpy()) for row in found]
        return [row[8 : 8 + int.from_bytes(row[:8], "big")] for row in rows]

    def total(self, mine: ExactSum) -> ExactSum:
        """The sum over all ranks; of this island, if islands train apart."""
        found = self._gather(self._island, mine.to_bytes(), ExactSum.BYTES)
        return sum(map(ExactSum.from_bytes, found), ExactSum())

    def meet(self) -> None:
        """A barrier."""
        self.gather(b"", 1)

    def agree(self, what: str, text: str) -> None:
        """Raises UserError, on all ranks, naming the first whose text differs from rank 0's."""
        hashes = self.gather(hashlib.sha256(text.encode()).digest(), 32)
        for rank, other in enumerate(hashes):
            if other != hashes[0]:
                raise UserError(f"rank {rank} has another {what} than rank 0; start all ranks with the same one")

    def tell(self, text: str) -> str:
        """Rank 0's text."""
        return self.gather(text.encode() if self.mesh.rank == 0 else b"")[0].decode()

    def assembled(self, sharded: ShardedLayer, parts: list[Tensor]) -> Tensor:
        """A layer's flat buffer, from the parts that each rank updates of its shards."""
        mine, (replicas, _) = torch.cat(parts), sharded.replicas
        if not sharded.zero:
            return mine
        n, lane = sharded.n * replicas, sharded.lane if replicas == 1 else "data"
        rows = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(rows, mine, group=self._still[lane, n])
        every = torch.stack(rows).view(replicas, sharded.n, -1).transpose(0, 1)
        return torch.cat([row.flatten() for row in torch.split(every, [part.numel() for part in parts], 2)])

    def swap(self, parts: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """Sends each rank its part of numbers, and receives `sizes` elements from each. Collective."""
        if self._group is None:
            return list(parts)
        found = torch.empty(sum(sizes), device="cpu")
        dist.all_to_all_single(found, torch.cat(list(parts)), list(sizes), [len(part) for part in parts], self._group)
        return list(torch.split(found, list(sizes)))

    def abort(self, why: str) -> None:
        """Ends operations of others on lanes of Syntony's backend; they get `why`."""
        for group in self._lanes.values():
            if group is not None and group._get_backend(torch.device("cpu")).name() == "syntony":
                communicator_of(group).abort(why)

    def groups(self, plan: Plan) -> Mapping[str, dist.ProcessGroup]:
        """A group for each of the plan's lanes and, if the backend is not Syntony's, one for second halves of sums on
        it. Reuses those of earlier plans with the same ranks and urgency. Collective."""
        if self.mesh.world == 1:
            return {}
        mesh, words = self.mesh.under(plan.graph.layout), urgency(plan)
        still = [lane for lane in ("dp", "edp", "ep", "data") if (lane, mesh.size(lane)) not in self._still]
        for name, group in mesh.groups(tuple(f"{lane}.still" for lane in still), self._timeout).items():
            lane = name.partition(".")[0]
            self._still[lane, mesh.size(lane)] = group
        lanes = sorted({lane for _, lane in plan.orders} - {COMPUTE})
        names = list(lanes)
        if (self._backend or dist.get_backend()) != "syntony":
            names += map(gather_lane, lanes)
        wanted = {name: (name, mesh.size(name.split(".")[0]), words[name.split(".")[0]]) for name in names}
        fresh = tuple(name for name, key in wanted.items() if key not in self._lanes)
        made = mesh.groups(fresh, self._timeout, self._backend, words)
        self._lanes |= {wanted[name]: made.get(name) for name in fresh}
        found = {name: self._lanes[key] for name, key in wanted.items()}
        return {name: group for name, group in found.items() if group is not None}


@dataclass(frozen=True)
class Measurement:
    """The times of steps of a plan, without a first warm-up step.

    seconds     of each step
    computed    when compute ops ran, and
    moved       when communication ops ran; those of step 1 may belong to the previous one
    updating    seconds in optimizers, by layer, of all steps
    """

    seconds: list[float]
    computed: list[Record]
    moved: list[Record]
    updating: dict[int, float]

    @property
    def spans(self) -> dict[OpKey, tuple[float, float]]:
        """The last begin and end of each op."""
        return {run.key: (run.begin, run.end) for run in (*self.computed, *self.moved)}


class Rank:
    """One rank's model. `begin` gives it initial weights and a plan to run."""

    def __init__(self, config: Config, mesh: Mesh, world: World) -> None:
        self.config, self.mesh, self.world = config, mesh, world
        self.dtype = _DTYPES[config.run.dtype]
        turns = config.data.microbatches // config.parallel.dp
        mine = range(mesh.place["dp"] * turns, (mesh.place["dp"] + 1) * turns)
        self._weights = [config.data.rows_at(index) / config.data.rows for index in mine]  # of microbatches in the loss
        self.rows = max(map(config.data.rows_at, mine))
        blocks = range(config.model.blocks if config.overlap.follow else 0)
        self.places = {block: Places(config.model.experts) for block in blocks}  # of experts, where they move
        self._cuts: dict[tuple[int, Visits | None], Parts] = {}
        self.parts = self._cut(hot=0)
        self.shape = boundary(config.model, mesh, self.rows)

    def _cut(self, hot: int, visits: Visits | None = None) -> Parts:
        """The whole model; `hot` experts of each block move to the tokens, or those that are guests."""
        if (hot, visits) not in self._cuts:
            self._cuts[hot, visits] = self._cut_anew(hot, visits)
        return self._cuts[hot, visits]

    def _cut_anew(self, hot: int, visits: Visits | None) -> Parts:
        config, rows = self.config, self.rows
        element, skew = self.dtype.itemsize, config.run.skew
        layers = parallelized(
            config.model, self.mesh, rows, element, config.even, hot, skew=skew, visits=visits, places=self.places
        )
        if config.run.compute == "emulated":
            layers = emulated(layers, config, rows, self._speed)
        parts = ALIGNMENT * config.parallel.dp * config.parallel.cp * config.parallel.copies
        numbered = dict(enumerate(layers))
        numbered |= {len(layers) + i: layer.shadow for i, layer in enumerate(layers) if layer.shadow is not None}
        shadows = len(layers)
        return {
            number: (layer, Flat.of(layer.weights, parts, blocks=number >= shadows))
            for number, layer in numbered.items()
        }

    @property
    def _speed(self) -> float:
        """The speed of emulated computation."""
        data, stages = self.config.run.speeds, self.config.parallel.speeds
        of_data = data[self.mesh.place["dp"]] if data else 1.0
        return of_data * (stages[self.mesh.place["pp"]] if stages else 1.0)

    def parts_of(self, plan: Plan) -> Parts:
        """All layers and their shadows, as in the plan."""
        found: dict[int, Part] = {}
        for i, layer in enumerate(plan.graph.layers):
            numbers = (i, plan.graph.shadow(i)) if layer.shadow is not None else (i,)
            found |= {number: self._cut(layer.hot, layer.visits)[number] for number in numbers}
        return dict(sorted(found.items()))

    def recorded(self) -> graph.Graph:
        """The step as it is recorded, before any policy."""
        return generate(self.described, self.config.layout)

    @cached_property
    def described(self) -> tuple[graph.LayerSpec, ...]:
        """The layers as the planner sees them."""
        layers = self._described(0)
        numbers = next(([other.hot for other in layer.moved] for layer in layers if layer.moved), [])
        moved = [self._described(hot) for hot in numbers]
        return tuple(
            replace(layer, moved=tuple(other[i] for other in moved)) if layer.expert else layer
            for i, layer in enumerate(layers)
        )

    def _described(self, hot: int) -> tuple[graph.LayerSpec, ...]:
        """With known bytes of this rank's layers: of padded weights, and of kept activations."""
        parts = self._cut(hot)
        own = [part for part in parts.values() if part[0].segments]
        layers, flats = [layer for layer, _ in own], [flat for _, flat in own]
        sizes = self.config.parallel
        tokens = torch.zeros(1, 1, dtype=torch.int64).expand(
            self.shape[0], self.config.model.context // (sizes.cp * sizes.slices)
        )
        kept_by = held(layers, flats, (tokens, tokens), self.dtype, sizes.recompute)
        return tuple(
            replace(
                layer.spec,
                weights=4 * flat.elements,
                shared=4 * (flat.elements - flat.shared) if any(weight.shared for weight in layer.weights) else 0,
                shadow=_stored(*parts[len(own) + i]) if layer.shadow is not None else None,
                factors=self._factors(layer).bytes if layer.spec.factors and not self.config.data.shares else 0,
                **vars(kept),
            )
            for i, (layer, flat, kept) in enumerate(zip(layers, flats, kept_by, strict=True))
        )

    def begin(self, plan: Plan) -> None:
        """Creates initial weights, and everything that runs the plan."""
        config, mesh = self.config, self.mesh.under(plan.graph.layout)
        self.device = mesh.place["pp"]
        mine = {op.layer for op in plan.graph if op.device == self.device and op.lane == COMPUTE and op.layer >= 0}
        parts = self.parts_of(plan)
        kept = {i: part for i, part in parts.items() if i in mine and part[0].weights}
        sharding = Sharding.of_all(plan.graph.layers, mesh.layout)
        by_factors = {i for i, layer in enumerate(plan.graph.layers) if layer.sums == "factors"}
        layers = {i: self._sharded(i, sharding[i], i in by_factors, mesh, *part) for i, part in kept.items()}
        first = {i: sharded.flat.begin(config.run.seed, sharded.layer.name) for i, sharded in layers.items()}
        self.plan = plan
        self.runner = PlanRunner(plan, self.device, self.world.groups(plan), canonical=config.run.canonical)
        copies = {lane: (mesh.size(lane), mesh.place[lane]) for lane in ("replicas", "edp", "near")}
        islands, mine_of_all, layout = None, 1.0, mesh.layout
        if layout.apart:
            mine_of_all = self._island_share(mesh.place["islands"])
            islands = Islands(layout, mesh.place["islands"], mine_of_all, self.runner, config.optimizer)
        self.updates = Updates(
            plan, layers, first, self.device, self.runner, config.optimizer, self.world.total, copies, islands
        )
        each = config.data.microbatches * mine_of_all * layout.slices * layout.cp * layout.batch_parts
        self.interpreter = Interpreter(
            plan,
            self.device,
            {i: layer for i, (layer, _) in parts.items() if i in mine and layer.segments},
            len(plan.graph.layers) - 1,
            self.updates,
            self.runner,
            [weight / each for weight in self._weights for _ in range(config.parallel.slices)],
            (self.shape, self.dtype),
            (mesh.place["tp"], mesh.size("tp")),
        )

    def _island_share(self, island: int) -> float:
        """The part of a step's sequences that an island processes."""
        data, islands = self.config.data, self.config.parallel.islands
        turns = data.microbatches // islands
        rows = sum(map(data.rows_at, range(island * turns, (island + 1) * turns)))
        return rows / (data.microbatches * data.rows)

    def go_on(self, plan: Plan) -> None:
        """Continues with another plan, the same weights and optimizer state. Collective.

        Temporarily every rank has all of its layers whole. Raises UserError if a rank would have other weights.
        """
        self.rest()
        sizes = {i: flat.elements for i, (_, flat) in self.parts_of(plan).items()}
        counts, held = self.updates.counts(), list[tuple[int, str, Tensor]]()
        for i, sharded in self.updates.layers.items():
            if sizes.get(i) != sharded.flat.elements:
                raise UserError(f"the plan has other weights in layer {sharded.layer.name!r}; a run cannot change them")
            kinds = sorted({key for shard in sharded.shards for key in self.updates.memories(shard)})
            held += [(i, kind, whole.clone()) for kind, whole in self.wholes(sharded, ("", *kinds))]
        self.close()
        self.begin(plan)
        for i, kind, whole in held:
            self.updates.restore(i, kind, whole, counts)

    def step(self, microbatches: Microbatches, rate: float | None, number: int = -1) -> list[float]:
        """One training step at a learning rate: the losses of this rank's microbatches, if it has the head.

        rate      None: no weight changes
        number    the step's number in errors; -1: one more than the last
        """
        while True:
            self.updates.rate = rate
            try:
                losses = self.interpreter.run(microbatches, number)
                found: list[float] = [] if losses is None else losses.tolist()
                slices = self.config.parallel.slices
                return [loss * self._weights[m // slices] for m, loss in enumerate(found)] if len(found) > 0 else []
            except Redo:
                continue

    def measure(self, plan: Plan, steps: int, batch: Callable[[int], Microbatches], rate: float) -> Measurement:
        """Begins a plan, takes its steps and closes it; discards the weights. Collective."""
        self.begin(plan)
        seconds = []
        for number in range(steps + 1):
            if number == 1:
                self.interpreter.spans.clear()
                self.updates.spent.clear()
                self.runner.records()
            begin = time.monotonic()
            self.step(batch(number), rate)
            seconds.append(time.monotonic() - begin)
        self.rest()
        found = Measurement(seconds[1:], self.interpreter.spans, self.runner.records(), self.updates.spent)
        self.close()
        return found

    def tensors(self) -> Iterator[tuple[str, Weight, Tensor]]:
        """Weights and optimizer state: names, and this rank's blocks. Collective, between steps.

        `layer.weight` and `layer.weight.exp_avg`, ..; all ranks of a `dp` group have the same.
        """
        for sharded in self.updates.layers.values():
            kinds = sorted({key for shard in sharded.shards for key in self.updates.memories(shard)})
            for key, whole in self.wholes(sharded, ("", *kinds)):
                views = sharded.flat.views(whole)
                for weight in sharded.flat.weights:
                    label = sharded.layer.label(weight)
                    yield f"{label}.{key}" if key else label, weight, views[weight.name]

    def wholes(self, sharded: ShardedLayer, kinds: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
        """A layer's weights (kind ""), or one kind of optimizer state: its whole flat buffer."""
        for kind in kinds:
            parts = [self.updates.memories(shard)[kind] if kind else shard.updated for shard in sharded.shards]
            yield kind, self.world.assembled(sharded, parts)

    def _sharded(
        self, index: int, one: Sharding, by_factors: bool, mesh: Mesh, layer: Layer, flat: Flat
    ) -> ShardedLayer:
        """by_factors: gradients are made from all ranks' factors. Of several ranks with the same weights, the first
        counts the squares of their gradients for the norm."""
        copies = ""  # the lane of the ranks with the same weights
        if one.lane == "ep":
            copies = "edp"
        elif not one.level:
            copies = "edp" if one.lane == "edp" else "data"
        elif one.lane == "dp" and not one.spreads:
            copies = "replicas"
        replicas = (one.replicas, mesh.place["replicas"]) if one.spreads else (1, 0)
        sizes = self.config.parallel
        turns = self.config.data.microbatches * sizes.slices // (sizes.dp * sizes.copies)
        names = [w.name for w in layer.weights if w.whole or mesh.place["tp"] == 0]
        counted = frozenset(names if not copies or mesh.place[copies] == 0 else ())
        leaves, factors = turns * layer.sources, None
        if by_factors:
            factors, leaves = Factors.of(self._factors(layer), turns, one.ranks), turns * one.ranks
        level = one.level if one.ranks > 1 else min(one.level, 1) if one.spreads else 0
        place = mesh.place["within" if one.lane == "dp" else one.lane]
        return ShardedLayer(index, layer, flat, one.lane, one.ranks, place, level, replicas, leaves, counted, factors)

    def _factors(self, layer: Layer) -> Form:
        """The factors of a microbatch's gradients of a layer's weights."""
        sizes = self.config.parallel
        tokens = self.config.data.rows * self.config.model.context // (sizes.cp * sizes.slices)
        return Form.of(layer.weights, tokens, self.dtype)

    def rest(self) -> None:
        """Returns when nothing is in flight and all weights are final; the next step may follow. Collective."""
        for op in self.plan.graph:
            if op.device == self.device and op.kind is Kind.SEND:  # nothing else waits for these
                self.runner.wait(op.key)
        self.updates.finish()
        changed = not self.updates.verify()
        if self.updates.meet() or changed:
            for sharded in self.updates.layers.values():
                if sharded.whole is None and sharded.replicas[0] == 1:
                    continue
                whole = self.world.assembled(sharded, [shard.updated for shard in sharded.shards])
                if sharded.whole is not None:
                    sharded.whole.copy_(whole)
                for shard in sharded.shards:
                    shard.weights.copy_(whole[shard.mine])

    def close(self) -> None:
        """Closes all lanes."""
        self.runner.close()


def _stored(layer: Layer, flat: Flat) -> graph.LayerSpec:
    """A shadow, as the planner sees it."""
    return graph.LayerSpec(layer.name, 4 * flat.elements, ())
