"""The bytes that a forward keeps for its backward: predicted before a run, and measured in one.

    x --[ norm  qkv  attend  project  add ]--> y        y is the layer's own, x belongs to the previous layer
           |     |     |        |
           saved tensors of autograd, copies of small weights (`.leaves`), x and dy of each matrix (`Product`)

Everything is counted by storage: tensors that share memory count once; tensors that outlive their microbatch (weights,
the text, angles of rotary positions) do not count, nor those dropped behind the forward and transferred again
(CommSpec.uses). A layer is run on one sequence and on two, which gives the bytes per row. Rows of experts are counted
as for even choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from syntony.trainer.model.layer import SHADOW, ForwardContext, Layer, Transfer
from syntony.trainer.parallel.data_parallel.flat import Flat
from syntony.trainer.parallel.tensor_parallel.rotate import Turn
from syntony.trainer.run.memory.kept import Kept, Tensors, saving
from syntony.trainer.run.step import Interpreter

Views = Mapping[str, Tensor]  # weights by name


@dataclass(frozen=True)
class Held:
    """Bytes of one microbatch in one layer; `syntony.overlap.step.graph.LayerSpec` defines each."""

    activations: int
    products: int
    inputs: int
    shares: tuple[int, ...]  # of `activations`, by segment
    taken: tuple[int, ...]
    added: tuple[int, ...]


def held(
    layers: Sequence[Layer], flats: Sequence[Flat], batch: Tensors, dtype: torch.dtype, recompute: bool
) -> list[Held]:
    """The bytes of each layer, for a microbatch with the shape of `batch` (tokens and targets of this rank).

    The first layer of each kind runs; others of its kind hold as much. With recomputation it is the second one that
    they are like, and both run: the first one's input may be an earlier layer's.
    """
    kinds = [layer.kind for layer in layers]
    ran = [i for i, kind in enumerate(kinds) if kinds[:i].count(kind) <= recompute]
    chosen = [layers[i] for i in ran]
    weights = {}
    for kind in dict.fromkeys(kinds):
        flat, shadow = flats[kinds.index(kind)], layers[kinds.index(kind)].shadow
        weights[kind] = flat.views(torch.zeros(flat.elements, dtype=dtype))
        near = shadow.weights if shadow is not None else ()
        weights[kind] |= {f"{SHADOW}{weight.name}": torch.zeros(weight.shape, dtype=dtype) for weight in near}
    one, two = (_Trial(chosen, weights, tuple(t[:1].expand(n, -1) for t in batch)) for n in (1, 2))
    lasting, rows, found = one.storages.keys() & two.storages.keys(), len(batch[0]), dict[str, Held]()
    by_layer = dict[int, Held]()
    for i, *of in zip(ran, one.of, two.of, strict=True):
        few, many = ([trial.bytes(keys - lasting) for keys in each] for trial, each in zip((one, two), of, strict=True))
        whole, products, inputs, *by_segment = (a + (rows - 1) * (b - a) for a, b in zip(few, many, strict=True))
        segments = len(by_segment) // 3
        rest = (tuple(by_segment[at : at + segments]) for at in range(0, len(by_segment), segments))
        by_layer[i] = found[kinds[i]] = Held(whole, products, inputs, *rest)
    return [by_layer.get(i, found[kind]) for i, kind in enumerate(kinds)]


class _Trial:
    """One microbatch's forward, with all its memory kept. `of`: by layer, the storages of each field of Held; those by
    segment separately, field by field."""

    def __init__(self, layers: Sequence[Layer], weights: Mapping[str, Views], batch: Tensors) -> None:
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.of: list[tuple[set[int], ...]] = []
        text, (tokens, targets), taken, away = self._keys(batch), batch, set[int](), set[int]()
        tensors: Tensors = (tokens,)
        for layer in layers:
            before = set(self.storages)
            aside, products, inputs = set[int](), set[int](), set[int]()
            shares, entering, added = list[set[int]](), list[set[int]](), list[set[int]]()
            tensors = (*tensors, targets) if layer.kind == "head" else tensors
            summed = {one.summed: torch.empty(0) for one in layer.transfers if isinstance(one, Turn) and one.summed}
            for number, segment in enumerate(layer.segments):
                context, saved = _Watched(weights[layer.kind], even=True, summed=summed), list[Tensor]()
                given = tuple(tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors)
                with torch.enable_grad(), saving(saved.append):
                    outputs = segment(context, *given)
                entering.append(self._keys(given) - inputs - taken - text - away)
                inputs |= self._keys(given)
                products |= self._keys(context.factors)
                kept = self._keys((*saved, *outputs, *context.leaves.values())) - text - away
                added.append(kept - self._keys(given))
                fresh = (kept | self._keys(given)) - before - text - aside - away
                shares.append(fresh)
                aside |= fresh
                tensors = tuple(tensor.detach() for tensor in outputs)
                if number < len(layer.transfers):
                    x, *rest = tensors
                    spec = layer.spec.transfers[number]
                    if spec.forward is not None and not spec.rotates:
                        x = _moved(layer.transfers[number], x, tuple(rest))
                        away |= self._keys((x,)) if layer.spec.transfers[number].uses else set()
                    tensors = (x, *rest)
            self.of.append((aside, products, inputs - taken - text - away, *shares, *entering, *added))
            taken |= inputs

    def _keys(self, tensors: Iterable[Tensor]) -> set[int]:
        storages = [tensor.untyped_storage() for tensor in tensors]
        self.storages |= {storage._cdata: storage for storage in storages}
        return {storage._cdata for storage in storages}

    def bytes(self, keys: Iterable[int]) -> int:
        return sum(self.storages[key].nbytes() for key in keys)


@dataclass
class _Watched(ForwardContext):
    """Records the factors of products whose gradients will be computed: each x, and a dy with the shape of y.

    summed    by weight: the one dy of all its products in a layer
    """

    factors: list[Tensor] = field(default_factory=list)
    summed: dict[str, Tensor] = field(default_factory=dict)

    def linear(self, x: Tensor, name: str, block: int | None = None, source: int = 0) -> Tensor:
        y = super().linear(x, name, block, source)
        if torch.is_grad_enabled():
            dy = self.summed.get(name)
            if dy is None or dy.shape != y.shape:
                dy = torch.empty_like(y)
            if name in self.summed:
                self.summed[name] = dy
            self.factors += [x, dy]
        return y


def _moved(transfer: Transfer, x: Tensor, kept: Tensors) -> Tensor:
    """A tensor with the shape of what would arrive; the number of rows is that of those sent."""
    move = transfer.forward(x, kept)
    same = move.output.shape == move.input.shape
    move.output.copy_(move.input) if same else move.output.zero_()
    return move.finish(move.output)


class Watch:
    """Measures, during steps of an interpreter, its kept activations, temporarily gathered weights, and gradients
    before sharding. `most`: bytes of the last step.

    Buffers of messages count from their first use; temporarily dropped memory does not count.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self.most = 0
        self._known: dict[int, StorageWeakRef] = {}
        self._lasting: set[int] = set()
        self._interpreter = interpreter
        interpreter.watch = self._ran

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around one step; existing memory does not belong to a microbatch."""
        self._forget()
        self._lasting, self.most = set(self._known), 0
        with saving(lambda tensor: self._note((tensor,))):
            yield

    def _ran(self, kept: Kept | None) -> None:
        if kept is not None:
            self._note(kept.inputs)
            self._keep(kept.saved)
            if torch.is_grad_enabled():
                self._note((*kept.outputs, *kept.context.leaves.values()))
            for parts in self._interpreter.state.kept.values():
                for other in parts.values():
                    for product in other.context.products:
                        self._note((product.x, product.dy))
        self._count()

    def _count(self) -> None:
        for wholes in self._interpreter.state.gathered.values():
            self._note(wholes.values())
        self._note(self._interpreter.state.lent.held.values())
        self._note(self._interpreter.state.turns.held)
        homes = [sharded._home for sharded in self._interpreter.updates.layers.values() if sharded.zero >= 2]
        self._note(home for home in homes if home is not None)
        self._forget()
        self.most = max(self.most, sum(_bytes(one) for key, one in self._known.items() if key not in self._lasting))

    def _note(self, tensors: Iterable[Tensor]) -> None:
        self._keep(tensor.untyped_storage() for tensor in tensors)

    def _keep(self, storages: Iterable[torch.UntypedStorage]) -> None:
        for storage in storages:
            if storage._cdata not in self._known:
                self._known[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]

    def _forget(self) -> None:
        self._known = {key: known for key, known in self._known.items() if not _gone(known)}
        self._lasting &= self._known.keys()


def _bytes(storage: StorageWeakRef) -> int:
    """The current size, since it may have been dropped temporarily."""
    found: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(storage.cdata)
    return 0 if found is None else found.nbytes()


def _gone(storage: StorageWeakRef) -> bool:
    return bool(storage.expired())  # type: ignore[no-untyped-call]
