"""A layer: a list of segments with communication points between them, its weights, and how gradients are computed.

    norm | qkv | attend | project | add        segments, pure functions of tensors
         ^     ^        ^         ^            communication points, where a parallelism may communicate tensors

Segments take and return tensors; the first one is communicated, the others (the residual, a router's decisions) stay
on the rank. Parallelism is applied to Branches from outside: it cuts weights into blocks (`Weight.offset`) and fills
points with Transfers. `merged` makes a Layer of one or more branches: segments whose points stayed empty become one
function, and a LayerSpec describes their costs and communication.

Autograd is used only within a segment, and not for gradients of matrices: `ForwardContext.linear` remembers (x, dy),
and `Product.into` computes dy^T x at once or later, bitwise the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from syntony.overlap.step.graph import LayerSpec
from syntony.trainer.model.flash import Pieces

SHADOW = "shadow."  # prefix of the names of weights that a layer uses beside its own


@dataclass(frozen=True)
class Weight:
    """A learned tensor: on this rank, the block of `whole` that begins at `offset`.

    shape    of the block (matrices are (.., outputs, inputs))
    spread   standard deviation of its initial values; 0: it is initialized with ones
    shared   the ranks of `tp` have the same one, and its gradients are parts of a sum (sequence parallelism)
    branch   the branch it was made in, if that has been merged with another, or if this is its shadow's
    room     its elements in memory if ranks have unequal blocks: those of the largest
    """

    name: str
    shape: tuple[int, ...]
    spread: float
    whole: tuple[int, ...] = ()  # empty: the block is the whole tensor
    offset: tuple[int, ...] = ()  # empty: begins at 0 everywhere
    shared: bool = False
    branch: str = ""
    room: int = 0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) > 1

    @property
    def full_shape(self) -> tuple[int, ...]:
        return self.whole or self.shape

    @property
    def place(self) -> tuple[slice, ...]:
        """The block's position in the whole."""
        offset = self.offset or (0,) * len(self.shape)
        return tuple(slice(start, start + size) for start, size in zip(offset, self.shape, strict=True))

    @property
    def own_name(self) -> str:
        """Its name before its branch was merged with others that have a weight of the same name."""
        return self.name.rpartition(".")[2]

    def begin(self, seed: int, layer: str) -> Tensor:
        """Initial values of the block. They depend on the seed, its original layer and its name, not on the layout."""
        if self.spread == 0:
            return torch.ones(self.shape)
        digest = hashlib.sha256(f"{seed} {self.branch or layer} {self.own_name}".encode()).digest()
        source = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        whole = torch.empty(self.full_shape, device="cpu").normal_(0.0, self.spread, generator=source)
        return whole[self.place]

    def split(self, axis: int, index: int, parts: int) -> Weight:
        """The block `index` of `parts` equal ones along `axis` of this block."""
        size = self.shape[axis] // parts
        return self.block(axis, index * size, size)

    def share(self, axis: int, index: int, parts: int) -> Weight:
        """Block `index` of `parts` along `axis` of this block, as equal as possible, with memory for the largest."""
        begin, end = (place * self.shape[axis] // parts for place in (index, index + 1))
        largest = self.elements // self.shape[axis] * -(-self.shape[axis] // parts)
        return replace(self.block(axis, begin, end - begin), room=largest)

    def block(self, axis: int, begin: int, size: int) -> Weight:
        """`size` of this block's places along `axis`, from `begin` on."""
        offset = list(self.offset or (0,) * len(self.shape))
        offset[axis] += begin
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        return replace(self, shape=shape, whole=self.full_shape, offset=tuple(offset))


Join = Callable[[list[Tensor]], Tensor]
"""Assembles a tensor from the pieces that it was cut into."""


@dataclass(frozen=True)
class Product:
    """The gradient of a matrix that has not been computed yet: dy^T x.

    block    index of the matrix among those of the weight (an expert); None: the weight is one matrix
    source   distance of the rank of the rows' microbatch within its group: 0 .. group - 1, for experts
    """

    weight: str
    x: Tensor  # (.., inputs)
    dy: Tensor  # (.., outputs)
    block: int | None = None
    source: int = 0

    def with_rows_of(self, every: Sequence[Product], join: Join) -> Product:
        """The gradient from the rows of all these products, including this one."""
        return replace(self, x=join([each.x for each in every]), dy=join([each.dy for each in every]))

    def factors_into(self, x: Tensor, dy: Tensor) -> None:
        """Writes the factors to (rows, inputs) and (rows, outputs)."""
        x.copy_(self.x.reshape(x.shape))
        dy.copy_(self.dy.reshape(dy.shape))

    def into(self, gradient: Tensor) -> None:
        """Computes it into `gradient`, which has the weight's shape."""
        place = gradient if self.block is None else gradient[self.block]
        place = place.view(-1, place.shape[-1])
        dy, x = self.dy.reshape(-1, place.shape[0]), self.x.reshape(-1, place.shape[1])
        if dy.dtype == place.dtype:
            torch.mm(dy.t(), x, out=place)
        else:
            place.copy_(dy.t() @ x)


@dataclass
class ForwardContext:
    """One run of one segment on one microbatch: its weights, and where gradients of weights are collected.

    weights      of the layer, by name, and of its shadow (`shadow.up`); no autograd. The caller of the backward may
                 have replaced them
    microbatch   of this rank, 0 ..
    share        of one microbatch in the step's loss (the factor of extra losses)
    even         the router is not known yet: tokens go to the experts in turn
    piece        which piece of its sequences the microbatch is, and
    sequences    what attentions keep for later pieces, by prefix of their weights; None: sequences are whole
    """

    weights: Mapping[str, Tensor]
    microbatch: int = 0
    share: float = 1.0
    even: bool = False
    piece: int = 0
    sequences: dict[str, Pieces] | None = None
    leaves: dict[str, Tensor] = field(default_factory=dict)  # weights that autograd differentiates
    products: list[Product] = field(default_factory=list)  # gradients of matrices to be computed later, or
    at_once: Callable[[Product], None] | None = None  # computes them while their factors are still in cache

    def __getitem__(self, name: str) -> Tensor:
        """A weight that is not a factor of a product: a norm's gain, an embedding."""
        if name not in self.leaves:
            self.leaves[name] = self.weights[name].detach().clone().requires_grad_(torch.is_grad_enabled())
        return self.leaves[name]

    def pieces(self, prefix: str = "") -> Pieces | None:
        """What the attention with this weight prefix keeps for later pieces; None: sequences are whole."""
        return None if self.sequences is None else self.sequences.setdefault(prefix, Pieces())

    def made(self, product: Product) -> None:
        """Called when the backward of a matrix has its two factors."""
        (self.at_once or self.products.append)(product)

    def linear(self, x: Tensor, name: str, block: int | None = None, source: int = 0) -> Tensor:
        """x (.., inputs) times the transposed weight, whose leading axes are flattened: (.., outputs)."""
        return _Linear.apply(x, self, name, block, source)  # type: ignore[no-any-return,no-untyped-call]

    def matrix(self, name: str, block: int | None = None) -> Tensor:
        """A weight, or a block of it, as (outputs, inputs)."""
        weight = self.weights[name] if block is None else self.weights[name][block]
        return weight.view(-1, weight.shape[-1])


class _Linear(torch.autograd.Function):
    """y = x W^T, whose backward computes only dx, and leaves (x, dy) in the ForwardContext for dW.

    It keeps no weight: sharded weights of the forward have been freed, and `context.weights` has others by then.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, context: ForwardContext, name: str, block: int | None, source: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.context, ctx.where = context, (name, block, source)
        return F.linear(x, context.matrix(name, block))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (dy,) = gradients
        (x,) = ctx.saved_tensors
        name, block, source = ctx.where
        ctx.context.made(Product(name, x.detach(), dy, block, source))
        return dy @ ctx.context.matrix(name, block), None, None, None, None


Run = Callable[..., tuple[Tensor, ...]]
"""A segment, a pure function: (context, *tensors) -> tensors."""


@dataclass(frozen=True)
class Move:
    """A Transfer's communication: a contiguous buffer into another one; `finish` makes the segment's input from it.

    Sizes: rows of the first axis that go to and come from each rank, if these differ (all_to_all_v).
    """

    input: Tensor
    output: Tensor
    finish: Callable[[Tensor], Tensor] = lambda output: output
    input_sizes: Sequence[int] | None = None
    output_sizes: Sequence[int] | None = None


class Transfer:
    """Fills a communication point. `name`: that of the CommSpec that describes what moves forward and backward.

    `forward` and `backward` are called only if their kind in the CommSpec is not None; otherwise the point passes the
    tensor on in that direction. If a policy cuts the ops around it in `count` parts, the other methods define the
    parts: the rows of a part of the sequences, unless overridden.
    """

    name: str

    def forward(self, x: Tensor, kept: tuple[Tensor, ...]) -> Move:
        """`kept`: what the segment returned beside x."""
        raise NotImplementedError

    def backward(self, gradient: Tensor, kept: tuple[Tensor, ...]) -> Move:
        """`gradient` of what `forward` delivered; `kept`: as `backward_needs` says."""
        raise NotImplementedError

    def backward_needs(self, kept: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Those of the forward's `kept` that `backward`, and parts of gradients, look at; others are freed before."""
        return ()

    def cut(self, x: Tensor, kept: tuple[Tensor, ...], index: int, count: int) -> Tensor:
        """Part `index` of x, or of its gradient."""
        return x.chunk(count)[index]

    def join(self, parts: Sequence[Tensor], kept: Sequence[tuple[Tensor, ...]]) -> Tensor:
        """Undoes `cut`, given what `cut_kept` has made of `kept`."""
        return torch.cat(tuple(parts))

    def cut_kept(self, kept: tuple[Tensor, ...], index: int, count: int) -> tuple[Tensor, ...]:
        """Part `index` of the tensors that stay on the rank."""
        return tuple(tensor.chunk(count)[index] for tensor in kept)

    def join_kept(self, parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        return tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))

    def cut_rest(
        self, rest: tuple[Tensor, ...], kept: tuple[Tensor, ...], index: int, count: int
    ) -> tuple[Tensor, ...]:
        """Part `index` of the tensors that stay on the rank, or of their gradients."""
        return self.cut_kept(rest, index, count)

    def join_rest(self, parts: Sequence[tuple[Tensor, ...]], kept: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Undoes `cut_rest`, given what `cut_kept` has made of `kept`."""
        return self.join_kept(parts)


@dataclass(frozen=True)
class Branch:
    """A residual branch of a block, the embedding, or the head; made by `transformer`, changed by parallelisms.

    kind     embedding, attention, mlp, router, experts or head; `index`: of its block, -1: it has none
    points   between the segments; None: no communication
    sources  ranks whose microbatches meet in it (for experts, the ranks of `ep`): gradients of microbatches with the
             same index on their ranks are summed separately, in the order of the global microbatch index
    shadow   weights that it uses beside its own, which all ranks of `ep` have together
    """

    kind: str
    index: int
    weights: tuple[Weight, ...]
    segments: tuple[Run, ...]
    points: tuple[Transfer | None, ...]
    sources: int = 1
    shadow: tuple[Weight, ...] = ()

    @property
    def name(self) -> str:
        return self.kind if self.index < 0 else f"{self.kind}_{self.index}"

    def weight(self, name: str) -> Weight:
        return next(weight for weight in self.weights if weight.name == name)

    def with_weights(self, **weights: Weight) -> Branch:
        """Some weights replaced, as when they are cut into blocks."""
        return replace(self, weights=tuple(weights.get(weight.name, weight) for weight in self.weights))

    def with_point(self, index: int, transfer: Transfer) -> Branch:
        """A point filled; `index` counts from the first segment's end."""
        points = list(self.points)
        points[index] = transfer
        return replace(self, points=tuple(points))

    def with_segment(self, index: int, segment: Run) -> Branch:
        segments = list(self.segments)
        segments[index] = segment
        return replace(self, segments=tuple(segments))


@dataclass(frozen=True)
class Layer:
    """The unit of a gradient reduction, a gather of weights and an optimizer call. Made by `merged`.

    spec        its costs and communication, as the planner sees it
    kind        layers of a kind are equal
    transfers   between the segments, as in `spec`
    shadow      weights that it uses beside its own, as a layer without segments
    """

    spec: LayerSpec
    kind: str
    weights: tuple[Weight, ...]
    segments: tuple[Run, ...]
    transfers: tuple[Transfer, ...] = ()
    sources: int = 1
    shadow: Layer | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def expert(self) -> bool:
        """Whether its weights are distributed over the lane `ep`."""
        return self.spec.expert

    def label(self, weight: Weight) -> str:
        """The weight's name in the whole model, independent of merging."""
        return f"{weight.branch or self.name}.{weight.own_name}"


def merged(branches: Sequence[Branch], spec: LayerSpec | None = None) -> Layer:
    """Branches as one layer: fewer and larger ops, gathers and sums. If an earlier weight has the same name, a number
    is prefixed: `1.qkv`.

    spec    its communication points must be those of the branches; None: they have none
    """
    first, taken = branches[0], set[str]()
    weights, segments, transfers = list[Weight](), list[Run](), list[Transfer]()
    for place, branch in enumerate(branches):
        prefix = f"{place}." if taken & {weight.name for weight in branch.weights} else ""
        label = branch.name if len(branches) > 1 else ""
        weights += [replace(one, name=prefix + one.name, branch=one.branch or label) for one in branch.weights]
        taken |= {weight.name for weight in weights}
        for point, run in zip((None, *branch.points), branch.segments, strict=True):
            segment = _within(run, prefix) if prefix else run
            if point is None and segments:
                segments[-1] = joined(segments[-1], segment)
                continue
            segments.append(segment)
            transfers += [point] if point is not None else []
    spec = spec or LayerSpec(first.name, 0, (0.0,))
    assert [one.name for one in transfers] == [one.name for one in spec.transfers], spec.name
    shadow = Layer(spec.shadow, "shadow", first.shadow, ()) if spec.shadow is not None else None
    kind = first.kind if len(branches) == 1 else "block"
    return Layer(spec, kind, tuple(weights), tuple(segments), tuple(transfers), first.sources, shadow)


@dataclass(frozen=True)
class _Within:
    """The ForwardContext of a merged layer, as one of its dense blocks sees it."""

    context: ForwardContext
    prefix: str

    @property
    def piece(self) -> int:
        return self.context.piece

    def pieces(self) -> Pieces | None:
        return self.context.pieces(self.prefix)

    def __getitem__(self, name: str) -> Tensor:
        return self.context[self.prefix + name]

    def linear(self, x: Tensor, name: str, block: int | None = None, source: int = 0) -> Tensor:
        return self.context.linear(x, self.prefix + name, block, source)


def _within(run: Run, prefix: str) -> Run:
    return lambda context, *tensors: run(_Within(context, prefix), *tensors)


def joined(first: Run, second: Run) -> Run:
    """Both as one segment."""
    return lambda context, *tensors: second(context, *first(context, *tensors))
