"""The graph of one training step. Edges with lag 1 (`Op.lagged`) lead into the next step, so it is a cut-open cycle."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from syntony.base.command import UserError
from syntony.overlap.step.demand import Demand, Visits
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import OpKey

Node = TypeVar("Node", bound=Hashable)


@dataclass(frozen=True)
class CommSpec:
    """Communication between two segments of a layer, once per microbatch.

    name       kind of its Ops' keys: `tp`, `dispatch`, `combine`, ..
    lane       the group that communicates
    forward    the kind of communication in the forward pass, and
    backward   its adjoint, for the gradients; None: nothing
    bytes      of the larger buffer, of one microbatch
    parts      what the ops around it can be cut into: `rows` of the microbatch, from the first segment of the layer to
               the last; groups of `experts`, and then pieces of their rows, between two such transfers; ``: nothing
    most       a number that the number of equal parts must divide
    uses       the number of segments that use the output, which is then dropped; 0: it stays until their backward
    again      dropped output is transferred once more for that backward
    rotates    what moves is a shard of weights, for the next segment: this many places along the group since it left
               its owner. For the backward it comes from the other side, and its gradient follows it. 0: activations
    """

    name: str
    lane: str
    forward: Kind | None
    backward: Kind | None
    bytes: int
    parts: str = "rows"
    most: int = 1
    uses: int = 0
    again: bool = False
    rotates: int = 0

    @property
    def anew(self) -> str:
        """Kind of the keys of its Ops that repeat dropped transfers."""
        return f"{self.name}_again"


@dataclass(frozen=True)
class LayerSpec:
    """A layer of the model: one or two residual branches (attention, MLP, experts), embedding, or head. The unit of a
    gradient reduction, a gather of weights and an optimizer call.

        segment 0 --transfer 0--> segment 1 --transfer 1--> segment 2

    weights      bytes of its weights on one rank (and of their gradients)
    segments     floating-point operations of each segment's forward, for one microbatch; one more than transfers
    transfers    between the segments
    activations  bytes that one microbatch's forward keeps for its backward, including its output to the next layer but
                 not its input from the previous one
    output       bytes that one microbatch hands to the next layer
    expert       its weights are distributed over the group `ep`: copies are summed over `edp`, not over `dp`
    hot          the number of experts, the first of all its ranks, that move to the tokens (hot_numbers); and
    shadow       their weights, as a layer without segments: sharded over `ep`, with copies over `edp`, and gathered
                 there before this layer uses them. Its number is `Graph.shadow`. None: all tokens go to their experts
    moved        the same layer with more and more of its experts hot, finally all: alternatives for a policy
    demand       the requests for its experts, if these are distributed; else None
    visits       experts in demand are guests of the ranks that request them, chosen for each microbatch by its counts;
                 None: they stay
    sums         how its gradients are summed, if a policy has chosen: `whole`, `split` around its update, by `level`,
                 or from all ranks' `factors`; "": as in the layout
    factors      bytes of the factors of one microbatch's weight gradients, and of those gradients that are not
                 products; 0: no factors
    joined       it takes more than one tensor from the previous layer, so a pipeline is never cut between them
    shared       bytes of its weights, the last ones, whose gradients `tp` sums: its ranks see parts of the sequence
    backward     operations of the backward for the gradients of inputs, and for those of weights, by forward operation;
                 the second is 0 if they cannot be separated
    shares       bytes of `activations` by segment; empty: in proportion to their operations
    products     bytes of `activations` still needed after the backward for inputs, by that for weights
    inputs       bytes kept by a forward that will be recomputed
    taken        bytes of `inputs` by the first segment that takes them; empty: all by the first
    added        bytes by segment that its recomputation adds to `inputs`; empty: as `shares`
    """

    name: str
    weights: int
    segments: tuple[float, ...]
    transfers: tuple[CommSpec, ...] = ()
    activations: int = 0
    output: int = 0
    expert: bool = False
    hot: int = 0
    shadow: LayerSpec | None = None
    moved: tuple[LayerSpec, ...] = ()
    demand: Demand | None = None
    visits: Visits | None = None
    joined: bool = False
    shared: int = 0
    backward: tuple[float, float] = (1.0, 1.0)
    products: int = 0
    inputs: int = 0
    shares: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    sums: str = ""
    factors: int = 0

    @property
    def halves(self) -> tuple[float, float]:
        """As `backward`, for the backward itself: with factors, products are made when all have arrived."""
        return self.backward[0], 0.0 if self.sums == "factors" else self.backward[1]

    def left(self, segment: int) -> float:
        """Bytes that a segment's forward keeps for its backward."""
        if self.shares:
            return self.shares[segment]
        whole = sum(self.segments)
        return self.activations * (self.segments[segment] / whole if whole else 1 / len(self.segments))

    def enters(self, segment: int) -> int:
        """Bytes of `inputs` from a segment's forward on, until its backward."""
        return self.taken[segment] if self.taken else 0 if segment else self.inputs

    def again(self, segment: int) -> float:
        """Bytes that a segment's recomputation keeps for its backward, beside `inputs`."""
        return self.added[segment] if self.added else self.left(segment)

    @property
    def recomputed(self) -> float:
        """Bytes that are there once all segments have been recomputed."""
        return self.inputs + sum(map(self.again, range(len(self.segments))))


def hot_numbers(experts: int, ranks: int) -> list[int]:
    """The possible numbers of a block's experts that move to the tokens: one, two, four, .. of each rank of `ep`, or
    all; so every rank keeps equally many of the others."""
    local = experts // ranks
    return [ranks << power for power in range((local - 1).bit_length())] + [experts]


@dataclass(frozen=True)
class Graph:
    """Ops of one step of all devices. On a compute lane they run in this order, unless a policy says otherwise.

    layers   of the model, in the order of the forward pass
    layout   what it was generated for; None: recorded elsewhere
    triggered    hardware starts transfers as their producer stores: of parts only the first has a launch, and a latency
    """

    ops: tuple[Op, ...]
    layers: tuple[LayerSpec, ...] = ()
    layout: Layout | None = None
    triggered: bool = False

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    def __getitem__(self, key: OpKey) -> Op:
        return self.by_key[key]

    @cached_property
    def by_key(self) -> Mapping[OpKey, Op]:
        return {op.key: op for op in self.ops}

    @property
    def groups(self) -> Mapping[str, int]:
        """Ranks of each group, by lane: {"dp": 4, "tp": 2}. Of what was recorded elsewhere nobody knows them."""
        return {} if self.layout is None else self.layout.groups

    @property
    def differs(self) -> str:
        """How training differs from synchronous training (Parallel.differs); "": not at all."""
        return "" if self.layout is None else self.layout.differs

    def every(self, op: Op) -> int:
        """The number of steps of which only the last runs the Op; 1: each does."""
        return self.layout.local if op.lane == "islands" and self.layout is not None else 1

    def deferred(self, op: Op) -> bool:
        """Whether it belongs to the update of the previous step, which a policy has moved across the boundary."""
        made = map(self.__getitem__, op.deps)
        return any(self.before(one) or (one.lane == "islands" and self.deferred(one)) for one in made)

    def before(self, op: Op) -> tuple[OpKey, ...]:
        """The keys of Ops of the previous step that it waits for; not those of late exchanges of islands, which an
        update waits for wherever it is."""
        late = self.layout is not None and self.layout.delay > 0
        return tuple(key for key in op.lagged if self[key].lane != "islands") if late else op.lagged

    @cached_property
    def devices(self) -> tuple[int, ...]:
        return tuple(sorted({op.device for op in self.ops}))

    def shadow(self, layer: int) -> int:
        """The number by which Ops and Pieces call the shadow of a layer: behind those of all layers."""
        return len(self.layers) + layer

    def with_ops(self, ops: Iterable[Op]) -> Graph:
        """The same step with other Ops."""
        return replace(self, ops=tuple(ops))

    def check(self) -> None:
        """Raises UserError for two Ops of one name, an edge from nowhere, or a circle within a step."""
        if len(self.by_key) != len(self.ops):
            seen: set[OpKey] = set()
            twice = next(op.key for op in self.ops if op.key in seen or seen.add(op.key))  # type: ignore[func-returns-value]
            raise UserError(f"the graph has two ops named {twice!r}")
        for op in self.ops:
            for key in (*op.deps, *op.lagged):
                if key not in self.by_key:
                    raise UserError(f"op {op.key!r} waits for {key!r}, which the graph does not have")
        circle = self._circle()
        if circle:
            raise UserError(f"ops wait for each other in a circle within one step: {' -> '.join(map(str, circle))}")

    def _circle(self) -> list[OpKey]:
        row = {op.key: number for number, op in enumerate(self.ops)}
        before = {number: [row[key] for key in op.deps] for number, op in enumerate(self.ops)}
        free = set(in_turn(before))
        if len(free) == len(self.ops):
            return []
        stuck = {op.key for number, op in enumerate(self.ops) if number not in free}
        path = [min(stuck)]
        while path[-1] not in path[:-1]:
            path.append(next(key for key in self[path[-1]].deps if key in stuck))
        return path[path.index(path[-1]) :]


def in_turn(before: Mapping[Node, Sequence[Node]]) -> list[Node]:
    """All nodes, each behind those that come before it. What is in a circle, or behind one, is left out."""
    missing = {node: len(others) for node, others in before.items()}
    after: dict[Node, list[Node]] = {}
    for node, others in before.items():
        for other in others:
            after.setdefault(other, []).append(node)
    found = [node for node, count in missing.items() if count == 0]
    for node in found:  # grows
        for other in after.get(node, ()):
            missing[other] -= 1
            if missing[other] == 0:
                found.append(other)
    return found
