"""Runs a schedule as rounds of `batch_isend_irecv` and sums, over any torch ProcessGroup and on any device.

This file needs torch alone: `syntony export p2p` writes it, with the rounds of one schedule, as a module of its own.

    slice A   post 0 .. wait 0, add, post 1 ............... wait 1, add, post 2 ..
    slice B   ......... post 0 ............. wait 0, add, post 1 ............

Large buffers are cut into two slices, one of which adds while the messages of the other are under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Place = Sequence[int]
_INPUT, _OUTPUT, _SCRATCH = range(3)
_TWO_SLICES = 1 << 20  # bytes from which a buffer is cut into two slices
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_ADD: dict[Any, Callable[..., Tensor]] = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.AVG: torch.add,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
}


class Steps:
    """One rank's part of a schedule. `plan`: what `syntony.synth.lowering.rounds.Rounds.to_dict` gives."""

    def __init__(self, plan: dict[str, Any], group: dist.ProcessGroup | None = None) -> None:
        self.plan = plan
        self.group: Any = group if group is not None else dist.group.WORLD
        self.rank, ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        if plan["ranks"] != ranks:
            raise ValueError(f"schedule '{plan['name']}' is for {plan['ranks']} ranks; the group has {ranks}")
        self._rounds = plan["rounds"][self.rank]
        self._slots = plan["slots"][self.rank]
        # Of all ranks, since all must cut alike.
        self._adds = any(len(terms) > 1 for rounds in plan["rounds"] for one in rounds for _, terms in one["local"])
        whole: Any = self.group
        self._peers = [dist.get_global_rank(whole, rank) for rank in range(ranks)]

    @property
    def launches(self) -> int:
        """Grouped launches of this rank, for one slice."""
        return sum(bool(one["sends"] or one["recvs"]) for one in self._rounds)

    def input_blocks(self) -> list[int]:
        """The blocks of this rank's input, in order; its input is these, one after another, all of one size."""
        return _blocks(self.plan, self.rank, starting=True)

    def output_blocks(self) -> list[int]:
        """The blocks of this rank's output, in order."""
        return _blocks(self.plan, self.rank, starting=False)

    def run(self, given: Tensor, wanted: Tensor, op: Any = dist.ReduceOp.SUM, slices: int | None = None) -> None:
        """Runs it: `given` and `wanted` are contiguous and flat; the same tensor in place.

        Returns when `wanted` is complete on the CPU, or queued on the current stream of another device.
        """
        if op not in _ADD:
            raise ValueError(f"{op} is not supported; sums are {', '.join(str(known) for known in _ADD)}")
        blocks = self.input_blocks()
        length = given.numel() // len(blocks) if blocks else wanted.numel() // len(self.output_blocks())
        if slices is None:
            large = max(given.numel(), wanted.numel()) * given.element_size() >= _TWO_SLICES
            slices = 2 if large and self._adds else 1
        runs = [_Slice(self, given, wanted, length, op, number, slices) for number in range(slices)]
        for number in range(len(self._rounds)):
            for one in runs:
                one.finish()
                one.begin(number)
        for one in runs:
            one.finish()
        if op == dist.ReduceOp.AVG:
            wanted.div_(self.plan["ranks"]) if wanted.is_floating_point() else wanted.floor_divide_(self.plan["ranks"])


class _Slice:
    """A part of every chunk, and its messages under way."""

    def __init__(
        self, steps: Steps, given: Tensor, wanted: Tensor, length: int, op: Any, number: int, slices: int
    ) -> None:
        self._steps, self._add, self._op = steps, _ADD[op], op
        whole = _chunk_ranges(steps.plan["chunks"], length)
        parts = [
            (start + (end - start) * number // slices, start + (end - start) * (number + 1) // slices)
            for start, end in whole
        ]
        self._views: list[list[Tensor]] = [
            _views(given, steps._slots[_INPUT], parts, steps.plan["chunks"], steps.input_blocks(), length),
            _views(wanted, steps._slots[_OUTPUT], parts, steps.plan["chunks"], steps.output_blocks(), length),
        ]
        sizes = [parts[chunk][1] - parts[chunk][0] for chunk in steps._slots[_SCRATCH]]
        scratch = torch.empty(sum(sizes), dtype=given.dtype, device=given.device)
        self._views.append(list(torch.split(scratch, sizes)) if sizes else [])
        self._under_way: list[Any] = []
        self._arriving: list[tuple[Tensor, list[Tensor]]] = []

    def begin(self, number: int) -> None:
        """The local steps of a round, then its messages."""
        one = self._steps._rounds[number]
        for to, terms in one["local"]:
            self._local(self._at(to), [self._at(term) for term in terms])
        posts = []
        for peer, places in one["sends"]:
            message = _joined([self._at(place) for place in places])
            if message.numel():
                posts.append(self._post(dist.isend, message, peer))
        for peer, places in one["recvs"]:
            views = [view for view in map(self._at, places) if view.numel()]
            if not views:
                continue
            whole = _adjacent(views)
            if whole is None:
                whole = views[0].new_empty(sum(view.numel() for view in views))
                self._arriving.append((whole, views))
            posts.append(self._post(dist.irecv, whole, peer))
        if posts:
            self._under_way = dist.batch_isend_irecv(posts)

    def finish(self) -> None:
        """The messages of the last round have arrived."""
        for request in self._under_way:
            request.wait()
        for message, views in self._arriving:
            for view, part in zip(views, torch.split(message, [view.numel() for view in views]), strict=True):
                view.copy_(part)
        self._under_way, self._arriving = [], []

    def _post(self, function: Any, message: Tensor, peer: int) -> Any:
        return dist.P2POp(function, message, self._steps._peers[peer], self._steps.group)

    def _at(self, place: Place) -> Tensor:
        return self._views[place[0]][place[1]]

    def _local(self, to: Tensor, terms: list[Tensor]) -> None:
        """A copy, or a sum in this order that is rounded once."""
        if len(terms) == 1:
            to.copy_(terms[0])
        elif len(terms) == 2:
            self._add(terms[0], terms[1], out=to)
        else:
            total = terms[0].to(_WIDE.get(to.dtype, to.dtype), copy=True)
            for term in terms[1:]:
                self._add(total, term.to(total.dtype), out=total)
            to.copy_(total)


def _blocks(plan: dict[str, Any], rank: int, *, starting: bool) -> list[int]:
    ranks, root, kind = plan["ranks"], plan["root"], plan["collective"]
    everything = list(range(ranks))
    at_root = everything if rank == root else []
    table = {
        "all_reduce": ([0], [0]),
        "all_gather": ([rank], everything),
        "reduce_scatter": (everything, [rank]),
        "all_to_all": ([rank * ranks + to for to in range(ranks)], [source * ranks + rank for source in range(ranks)]),
        "broadcast": ([0] if rank == root else [], [0]),
        "reduce": ([0], [0] if rank == root else []),
        "gather": ([rank], at_root),
        "scatter": (at_root, [rank]),
    }
    return table[kind][0 if starting else 1]


def _chunk_ranges(chunks: Sequence[Sequence[int]], length: int) -> list[tuple[int, int]]:
    """Per chunk its elements within its block, cut by weight."""
    total: dict[int, int] = {}
    for block, weight in chunks:
        total[block] = total.get(block, 0) + weight
    before: dict[int, int] = {}
    ranges = []
    for block, weight in chunks:
        start = before.get(block, 0)
        before[block] = start + weight
        ranges.append((length * start // total[block], length * (start + weight) // total[block]))
    return ranges


def _views(
    tensor: Tensor, slots: Sequence[int], parts: Sequence[tuple[int, int]], chunks: Sequence[Sequence[int]],
    blocks: Sequence[int], length: int,
) -> list[Tensor]:  # fmt: skip
    place = {block: number * length for number, block in enumerate(blocks)}
    views = []
    for chunk in slots:
        start, end = parts[chunk]
        base = place[chunks[chunk][0]]
        views.append(tensor[base + start : base + end])
    return views


def _adjacent(views: Sequence[Tensor]) -> Tensor | None:
    """One view of all, where they lie one after another; else None."""
    end = views[0].storage_offset()
    for view in views:
        if view.untyped_storage().data_ptr() != views[0].untyped_storage().data_ptr() or view.storage_offset() != end:
            return None
        end += view.numel()
    return views[0].as_strided((end - views[0].storage_offset(),), (1,), views[0].storage_offset())


def _joined(views: Sequence[Tensor]) -> Tensor:
    views = [view for view in views if view.numel()] or views[:1]
    whole = _adjacent(views)
    return torch.cat(list(views)) if whole is None else whole
