"""Runs a schedule as rounds of grouped sends, receives and sums, over any torch ProcessGroup and on any device.

This file depends only on torch: `syntony export p2p` writes it, with the rounds of a schedule, as a standalone module.

    receives    posted as soon as their place is free, so that no sender waits for them
    sends       of a round start as soon as their data is ready
    the rest    copies and sums that no send of the round needs, while its messages are in flight
    waiting     for single messages where their data is read, not for whole rounds

    slice A   send 0 ......... add, send 1 ........ add, send 2 ..
    slice B   ....... send 0 ............ add, send 1 ...........

Large buffers are cut into two slices: one adds while the messages of the other are in flight. On devices, whose
backends launch messages in groups (NCCL, RCCL), all messages of a round are one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Place = tuple[int, int]  # space, index
Spot = tuple[int, int, int]  # space, first element, last element + 1
_INPUT, _OUTPUT, _SCRATCH = range(3)
_TWO_SLICES = 1 << 20  # bytes from which a buffer is cut into two slices
_MOST_LENGTHS = 64  # lengths whose places are cached
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_ADD: dict[Any, Callable[..., Tensor]] = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.AVG: torch.add,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
}


@dataclass(eq=False)
class _Action:
    """A message (`peer`), or a copy or sum of `terms` into `to`; it first waits for the messages `after`.

    The `places` of a message lie one after another in it. `after` of a sum has one list for each term, then one for
    `to`.
    """

    kind: str  # send, recv or local
    places: tuple[Place, ...]
    peer: int = -1
    to: Place = (0, 0)
    after: list[list[int]] = field(default_factory=list)
    number: int = -1  # of the message


class Steps:
    """One rank's part of a schedule. `plan` is the result of `syntony.synth.lowering.rounds.Rounds.to_dict`."""

    def __init__(self, plan: dict[str, Any], group: dist.ProcessGroup | None = None) -> None:
        self.plan = plan
        self.group: Any = group if group is not None else dist.group.WORLD
        self.rank, ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        if plan["ranks"] != ranks:
            raise ValueError(f"schedule '{plan['name']}' is for {plan['ranks']} ranks; the group has {ranks}")
        self._slots = plan["slots"][self.rank]
        # Looks at all ranks, since all must cut alike.
        self._adds = any(len(terms) > 1 for rounds in plan["rounds"] for one in rounds for _, terms in one["local"])
        self._rounds = plan["rounds"][self.rank]
        self._orders: dict[bool, list[list[_Action]]] = {}
        self._bound: dict[tuple[int, int], list[_Bound]] = {}
        self._kept = torch.empty(0)

    @property
    def launches(self) -> int:
        """Number of this rank's grouped launches, for one slice."""
        return sum(bool(one["sends"] or one["recvs"]) for one in self._rounds)

    def input_blocks(self) -> list[int]:
        """The blocks of this rank's input, in order; the input is their concatenation, all of one size."""
        return _blocks(self.plan, self.rank, starting=True)

    def output_blocks(self) -> list[int]:
        """The blocks of this rank's output, in order."""
        return _blocks(self.plan, self.rank, starting=False)

    def run(self, given: Tensor, wanted: Tensor, op: Any = dist.ReduceOp.SUM, slices: int | None = None) -> None:
        """Runs the schedule: `given` and `wanted` are contiguous and flat; the same tensor if in place.

        Returns when `wanted` is complete on the CPU, or queued on the current stream of another device.
        """
        if op not in _ADD:
            raise ValueError(f"{op} is not supported; sums are {', '.join(str(known) for known in _ADD)}")
        blocks = self.input_blocks()
        length = given.numel() // len(blocks) if blocks else wanted.numel() // len(self.output_blocks())
        if slices is None:
            large = max(given.numel(), wanted.numel()) * given.element_size() >= _TWO_SLICES
            slices = 2 if large and self._adds else 1
        bound = self._bound.get((length, slices))
        if bound is None:
            if len(self._bound) == _MOST_LENGTHS:
                self._bound.clear()
            bound = self._bound[length, slices] = [_Bound(self, length, number, slices) for number in range(slices)]
        scratch = self._scratch(sum(one.scratch for one in bound), given)
        parts = torch.split(scratch, [one.scratch for one in bound])
        grouped = given.device.type != "cpu"
        order = self._order(grouped)
        runs = [_Run(self.group, one, [given, wanted, part], op) for one, part in zip(bound, parts, strict=True)]
        for actions in order:
            for one in runs:
                one.perform_grouped(actions) if grouped else one.perform(actions)
        for one in runs:
            one.finish()
        if op == dist.ReduceOp.AVG:
            wanted.div_(self.plan["ranks"]) if wanted.is_floating_point() else wanted.floor_divide_(self.plan["ranks"])

    def _scratch(self, elements: int, like: Tensor) -> Tensor:
        """On the CPU, reuses the last run's memory if it is large enough: new pages cost more than the messages."""
        if like.device.type != "cpu":
            return like.new_empty(elements)
        if self._kept.dtype != like.dtype or self._kept.numel() < elements:
            self._kept = like.new_empty(elements)
        return self._kept[:elements]

    def _order(self, grouped: bool) -> list[list[_Action]]:
        found = self._orders.get(grouped)
        if found is None:
            found = self._orders[grouped] = _Ordering(self.plan, self.rank, early=not grouped).made()
        return found


class _Ordering:
    """Orders a rank's actions round by round (see the module docstring), and finds the messages each waits for."""

    def __init__(self, plan: dict[str, Any], rank: int, *, early: bool) -> None:
        self.rounds, self.early = plan["rounds"][rank], early
        inputs, outputs, _ = plan["slots"][rank]
        # In place, the input and output of a chunk share memory.
        at = {chunk: (_INPUT, index) for index, chunk in enumerate(inputs)} if plan["in_place"] else {}
        self.memory = {(_OUTPUT, index): at[chunk] for index, chunk in enumerate(outputs) if chunk in at}

    def made(self) -> list[list[_Action]]:
        self.actions: list[list[_Action]] = [[] for _ in self.rounds]
        for number, one in enumerate(self.rounds):
            sends = [_Action("send", _places(places), peer) for peer, places in one["sends"]]
            steps = [_Action("local", _places(terms), to=tuple(to)) for to, terms in one["local"]]
            needed = self._needed(steps, sends)
            first = [step for step, early in zip(steps, needed, strict=True) if early]
            rest = [step for step, early in zip(steps, needed, strict=True) if not early]
            self.actions[number] += [*first, *sends, *rest]
        self._place_receives()
        self._say_waits()
        return self.actions

    def _real(self, place: Place) -> Place:
        return self.memory.get(place, place)

    def _reads(self, action: _Action) -> set[Place]:
        return set() if action.kind == "recv" else {self._real(place) for place in action.places}

    def _writes(self, action: _Action) -> set[Place]:
        if action.kind == "local":
            return {self._real(action.to)}
        return {self._real(place) for place in action.places} if action.kind == "recv" else set()

    def _needed(self, steps: Sequence[_Action], sends: Sequence[_Action]) -> list[bool]:
        """Which local steps must precede the sends, directly or for another step that must."""
        reads = {place for send in sends for place in self._reads(send)}
        writes: set[Place] = set()
        needed = []
        for step in reversed(steps):
            wanted = bool(self._writes(step) & (reads | writes) or self._reads(step) & writes)
            needed.append(wanted)
            if wanted:
                reads |= self._reads(step)
                writes |= self._writes(step)
        return needed[::-1]

    def _place_receives(self) -> None:
        """Puts each receive behind the last action that uses its places, and behind earlier receives from its peer.

        If that action waits for messages, the receive stays in its own round: posting must not wait for them.
        """
        used: dict[Place, tuple[int, int]] = {}  # round, and position behind the last local step
        posted: dict[Place, int] = {}
        peers: dict[int, tuple[int, int]] = {}
        receives: list[tuple[int, int, int, _Action]] = []
        for number, one in enumerate(self.rounds):
            for position, action in enumerate(self.actions[number]):
                if action.kind == "local":
                    for place in self._reads(action) | self._writes(action):
                        used[place] = (number, position + 1)
            for peer, places in one["recvs"]:
                action = _Action("recv", _places(places), peer)
                touched = self._writes(action)
                begin = (0, 0) if self.early and not touched & posted.keys() else (number, 0)
                at = max([begin, peers.get(peer, (0, 0)), *(used[place] for place in touched if place in used)])
                peers[peer] = at
                receives.append((*at, len(receives), action))
                posted |= dict.fromkeys(touched, number)
            for action in self.actions[number]:
                if action.kind == "send":
                    posted |= dict.fromkeys(self._reads(action), number)
        for number, position, _, action in sorted(receives, key=lambda entry: entry[:3], reverse=True):
            self.actions[number].insert(position, action)

    def _say_waits(self) -> None:
        arriving: dict[Place, int] = {}
        leaving: dict[Place, list[int]] = {}
        count = 0

        def free(places: Iterable[Place]) -> list[int]:
            """The messages after which these places can be written."""
            found = [arriving.pop(place) for place in places if place in arriving]
            return found + [message for place in places for message in leaving.pop(place, ())]

        for action in (action for actions in self.actions for action in actions):
            if action.kind != "local":
                action.number, count = count, count + 1
            reads = [self._real(place) for place in action.places]
            if action.kind == "recv":
                action.after = [free(reads)]
                arriving |= dict.fromkeys(reads, action.number)
            elif action.kind == "send":
                action.after = [[arriving[place] for place in reads if place in arriving]]
                for place in reads:
                    leaving.setdefault(place, []).append(action.number)
            else:
                action.after = [[arriving[place]] if place in arriving else [] for place in reads]
                action.after.append(free([self._real(action.to)]))


class _Bound:
    """The memory of a rank's places, for blocks of `length` elements: slice `number` of `slices`."""

    def __init__(self, steps: Steps, length: int, number: int, slices: int) -> None:
        chunks, slots = steps.plan["chunks"], steps._slots
        parts = [
            (start + (end - start) * number // slices, start + (end - start) * (number + 1) // slices)
            for start, end in _chunk_ranges(chunks, length)
        ]
        self.number = number
        self.spots: dict[Place, Spot] = {}
        for space, blocks in ((_INPUT, steps.input_blocks()), (_OUTPUT, steps.output_blocks())):
            base = {block: place * length for place, block in enumerate(blocks)}
            for index, chunk in enumerate(slots[space]):
                start, end = parts[chunk]
                before = base[chunks[chunk][0]]
                self.spots[space, index] = (space, before + start, before + end)
        self.scratch = 0
        for index, chunk in enumerate(slots[_SCRATCH]):
            start, end = parts[chunk]
            self.spots[_SCRATCH, index] = (_SCRATCH, self.scratch, self.scratch + end - start)
            self.scratch += end - start
        self._joined: dict[tuple[Place, ...], list[Spot]] = {}

    def joined(self, places: tuple[Place, ...]) -> list[Spot]:
        """Merges neighbouring places into as few spots as possible; drops empty ones."""
        found = self._joined.get(places)
        if found is None:
            found = self._joined[places] = []
            for space, start, end in (self.spots[place] for place in places):
                if found and found[-1][0] == space and found[-1][2] == start:
                    found[-1] = (space, found[-1][1], end)
                elif start < end:
                    found.append((space, start, end))
        return found


class _Run:
    """One slice of one run: its memory, and the messages in flight."""

    def __init__(self, group: Any, bound: _Bound, memory: list[Tensor], op: Any) -> None:
        self._group, self._bound, self._memory, self._add = group, bound, memory, _ADD[op]
        self._under_way: dict[int, tuple[Sequence[Any], Tensor, list[Tensor]]] = {}

    def perform(self, actions: Sequence[_Action]) -> None:
        """Runs actions one after another, posting each message by itself."""
        send, recv, tag = self._group.send, self._group.recv, self._bound.number
        for action in actions:
            if action.kind == "local":
                self._local(action)
            elif (found := self._message(action)) is not None:
                message, views = found
                post = send if action.kind == "send" else recv
                self._under_way[action.number] = ((post([message], action.peer, tag),), message, views)

    def perform_grouped(self, actions: Sequence[_Action]) -> None:
        """The same, with all messages of a round in one launch, at its first send or last receive."""
        messages = [action for action in actions if action.kind != "local"]
        last = max((actions.index(action) for action in messages), default=-1)
        for position, action in enumerate(actions):
            if action.kind == "local":
                self._local(action)
            if position == last:
                self._launch(messages)

    def _launch(self, messages: Sequence[_Action]) -> None:
        posts, posted = [], []
        for action in messages:
            found = self._message(action)
            if found is not None:
                function = dist.isend if action.kind == "send" else dist.irecv
                peer = dist.get_global_rank(self._group, action.peer)
                posts.append(dist.P2POp(function, found[0], peer, self._group))
                posted.append((action.number, *found))
        if posts:
            works = dist.batch_isend_irecv(posts)
            for number, message, views in posted:
                self._under_way[number] = (works, message, views)

    def finish(self) -> None:
        """Waits for all messages."""
        for number in list(self._under_way):
            self._wait(number)

    def _wait(self, number: int) -> None:
        found = self._under_way.pop(number, None)
        if found is not None:
            works, message, views = found
            for work in works:
                work.wait()
            if views:
                for view, part in zip(views, torch.split(message, [view.numel() for view in views]), strict=True):
                    view.copy_(part)

    def _message(self, action: _Action) -> tuple[Tensor, list[Tensor]] | None:
        """The tensor to send or receive into, and the places that it is then copied to; None if it is empty."""
        for number in action.after[0]:
            self._wait(number)
        views = [self._memory[space][start:end] for space, start, end in self._bound.joined(action.places)]
        if len(views) <= 1:
            return (views[0], []) if views else None
        if action.kind == "send":
            return torch.cat(views), []
        return views[0].new_empty(sum(view.numel() for view in views)), views

    def _at(self, place: Place) -> Tensor:
        space, start, end = self._bound.spots[place]
        return self._memory[space][start:end]

    def _terms(self, action: _Action) -> Iterator[Tensor]:
        """Yields each term when it has arrived."""
        for place, after in zip(action.places, action.after, strict=False):
            for number in after:
                self._wait(number)
            yield self._at(place)

    def _local(self, action: _Action) -> None:
        """A copy, or a sum in this order that is rounded once."""
        for number in action.after[-1]:
            self._wait(number)
        to, terms = self._at(action.to), self._terms(action)
        first = next(terms)
        if len(action.places) == 1:
            to.copy_(first)
            return
        second = next(terms)
        if len(action.places) == 2:
            self._add(first, second, out=to)
            return
        wide = _WIDE.get(to.dtype, to.dtype)
        # The sum accumulates in its own place unless that place is also a later term.
        apart = wide != to.dtype or to.data_ptr() in {self._at(place).data_ptr() for place in action.places[2:]}
        total = self._add(first.to(wide), second.to(wide), out=torch.empty_like(to, dtype=wide) if apart else to)
        for term in terms:
            self._add(total, term.to(wide), out=total)
        if apart:
            to.copy_(total)


def _places(places: Iterable[Sequence[int]]) -> tuple[Place, ...]:
    return tuple((space, index) for space, index in places)


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
    """The element range of each chunk within its block, cut by weight."""
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
