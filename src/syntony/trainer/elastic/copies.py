"""Copies each step's state into other ranks' memory during the step (Wang et al. 2023, "Gemini", SOSP).

    compute   | forward 0 | forward 1 | .. | backward 1 | backward 0 | optimizer
    state     |  of step k: weights and optimizer state do not change    | of k + 1
    copied                  layer 0     layer 1 ..                 at the latest before a layer's gradients are summed
    sent                    while the plan leaves the wires idle, the rest at the step's end

A layer's state of step k is complete when its first forward of the step has run, and the optimizer overwrites it. In
between, this rank copies the parts that it keeps; parts for others are sent from that copy. When a rank has all copies
of a step complete, it tells all others in a short message, which nobody waits for before the next copies are due. Only
after that is the previous version given up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Parameter

from syntony.collectives.communicator import Communicator
from syntony.collectives.verbs import Work
from syntony.overlap.step.layout import Clip
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.trainer.config import Optimizer
from syntony.trainer.elastic.held import Bundle, Held
from syntony.trainer.parallel.data_parallel.sharded_layer import Shard
from syntony.trainer.parallel.data_parallel.slices import Slices
from syntony.trainer.run.rank import Rank
from syntony.trainer.state.parts import Cut, cut_of


def runs_of(rank: Rank) -> list[tuple[Cut, int, int]]:
    """The runs of cuts' flat buffers that this rank trains with."""
    return [
        (cut_of(sharded), shard.own.start, shard.own.stop)
        for sharded in rank.updates.layers.values()
        for shard in sharded.shards
    ]


def kinds_of(optimizer: Optimizer) -> tuple[str, ...]:
    """The names of the optimizer's state per element, found by a step on an empty parameter."""
    slices = Slices(optimizer, [(torch.zeros(64, device="cpu"), True)])
    slices.update(slices.parameters, [torch.zeros(64, device="cpu")], optimizer.lr)
    state = slices.state(slices.parameters[0])
    return tuple(sorted(name for name, value in state.items() if isinstance(value, Tensor) and value.dim()))


Word = NDArray[np.int64]


@dataclass(frozen=True)
class _Source:
    """The source of a piece of a bundle: elements [begin, end) of a shard; `at`: position in the buffer."""

    shard: Shard
    begin: int
    end: int
    at: int


@dataclass(frozen=True)
class _Copying:
    """The copy operations of a layer, valid while the optimizer's state tensors stay the same."""

    memories: list[tuple[Parameter, str, Tensor | None]]
    into: list[Tensor]
    out: list[Tensor]


class Copies:
    """The copies of one rank, under one layout.

    group      of exactly the layout's ranks, for messages and words
    gaps       by compute op, the bytes that may be sent while it runs
    every      steps from one version to the next
    knocking   whether a rank wants to join, as far as this rank knows
    """

    def __init__(
        self,
        rank: Rank,
        held: Held,
        group: Communicator,
        gaps: Mapping[OpKey, float],
        every: int,
        knocking: Callable[[], bool],
    ) -> None:
        self._rank, self._held, self._group, self._gaps = rank, held, group, gaps
        self._every, self._knocking = every, knocking
        self.knocked = False
        """Whether a rank wants to join: all ranks have the same value after the same step."""
        self._heard = False  # the last word's value
        self.whole: int | None = None
        """The last step whose copies are known to be complete on all ranks."""
        self.sent = 0  # bytes
        self._early = rank.plan.clip is not Clip.OPTIMISTIC  # else updates may be undone until the first backward
        self._numbers = {bundle: number for number, bundle in enumerate(held.table.bundles)}
        me = rank.mesh.rank
        self._arriving = [bundle for bundle in held.bundles if me in bundle.wards]
        self._sources: dict[int, dict[Bundle, list[_Source]]] = {}
        self._find_sources([bundle for bundle in held.bundles if me in bundle.live])
        self._copyings: dict[tuple[int, int], _Copying] = {}  # by layer, and where the version's room is
        self._step = -1
        self._due = self._opened = False  # a version is to be made; is being made
        self._sealed: int | None = None  # the step of a version that is all on its way
        self._ready: list[int] = []  # layers that can be copied
        self._copied: set[int] = set()
        self._waiting: list[tuple[Bundle, int]] = []  # to be sent
        self._works: list[tuple[Work, Bundle | None]] = []  # in flight; bundles that arrive
        self._word: tuple[int, Work, Word] | None = None  # in flight, with its step
        rank.interpreter.between = self._between
        rank.updates.before = self._before

    def begin(self, step: int) -> None:
        """Called when a training step begins, for version `step`."""
        self._step, self._due, self._opened = step, step % self._every == 0, False
        self._ready.clear()
        self._copied.clear()

    def end(self) -> None:
        """Called at its end: sends everything that remains."""
        if self._due:
            self._open()
            for index in self._sources:
                self._copy(index)
            self._send(math.inf)
            self._sealed = self._step
        self._due = False
        self._poll()

    def rest(self, step: int) -> None:
        """Saves the state before `step` while all ranks are stopped: nothing is sent. Collective."""
        self._settle()
        self.begin(step)
        self._held.open(step)
        for index in self._sources:
            self._copy(index)
        self._waiting.clear()

    # ---- what the step calls ----------------------------------------------------------------------------------------

    def _between(self, op: Op) -> None:
        """Called before an op is computed."""
        self._poll()
        if not self._due:
            return
        if self._ready and (self._opened or not (self._works or self._word)):
            self._open()
            for index in self._ready:
                self._copy(index)
            self._ready.clear()
        self._send(self._gaps.get(op.key, 0.0))
        if op.kind is Kind.FORWARD and self._early:
            self._ready += [i for i in self._rank.interpreter.compiled.weights[op.layer] if i not in self._copied]

    def _before(self, index: int) -> None:
        """Called before a layer's gradients are summed, after which it may be updated."""
        if self._due and index not in self._copied:
            self._open()
            self._copy(index)

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Begins a version, once the previous one is known to be complete everywhere."""
        if self._opened:
            return
        self._settle()
        self._opened, self.knocked = True, self._heard  # here, since ranks receive a word at different times
        self._held.open(self._step)
        for bundle in self._arriving:
            work = self._group.recv(self._held.buffer(bundle), bundle.live[0], self._numbers[bundle], async_op=True)
            assert isinstance(work, Work)
            self._works.append((work, bundle))

    def _copy(self, index: int) -> None:
        """Copies a layer's state into those of its bundles that this rank keeps."""
        if index in self._copied:
            return
        self._copied.add(index)
        bundles = self._sources.get(index)
        if not bundles:
            return
        slices, where = self._rank.updates.slices, (index, self._held.buffer(next(iter(bundles))).data_ptr())
        copying = self._copyings.get(where)
        if copying is None or any(slices.state(p).get(kind) is not memory for p, kind, memory in copying.memories):
            copying = self._copyings[where] = self._copying(bundles)
        torch._foreach_copy_(copying.into, copying.out)
        if not self._held.counts:
            counts = slices.state(copying.memories[0][0]) if copying.memories else {}
            self._held.counts.update({name: value.clone() for name, value in counts.items() if not value.dim()})
        for bundle in bundles:
            self._held.mark(bundle)
            if bundle.live[0] == self._rank.mesh.rank:
                self._waiting += [(bundle, ward) for ward in bundle.wards]

    def _copying(self, bundles: Mapping[Bundle, list[_Source]]) -> _Copying:
        """The sources and destinations for the open version."""
        found = _Copying([], [], [])
        slices = self._rank.updates.slices
        for bundle, sources in bundles.items():
            buffer = self._held.buffer(bundle)
            for source in sources:
                size = source.end - source.begin
                found.into.append(buffer[source.at : source.at + size])
                found.out.append(source.shard.updated[source.begin : source.end])
                for number, kind in enumerate(self._held.table.kinds, start=1):
                    place = buffer[source.at + number * size :][:size]
                    for (part, _), parameter in zip(source.shard.parts, source.shard.parameters, strict=True):
                        first, last = max(part.start, source.begin), min(part.stop, source.end)
                        if first >= last:
                            continue
                        there, memory = (
                            place[first - source.begin : last - source.begin],
                            slices.state(parameter).get(kind),
                        )
                        found.memories.append((parameter, kind, memory))
                        if memory is None:  # nothing yet
                            there.zero_()
                        else:
                            found.into.append(there)
                            found.out.append(memory[first - part.start : last - part.start])
        return found

    def _send(self, budget: float) -> None:
        """Sends up to `budget` bytes, rounded up to a bundle."""
        while self._waiting and budget > 0:
            bundle, ward = self._waiting.pop(0)
            buffer = self._held.buffer(bundle)
            work = self._group.send(buffer, ward, self._numbers[bundle], async_op=True)
            assert work is not None
            self._works.append((work, None))
            budget -= buffer.nbytes
            self.sent += buffer.nbytes

    def _poll(self) -> None:
        """Handles completed work. When all copies are complete here, this rank tells the others."""
        while self._works and self._works[0][0].done:
            self._take()
        if self._sealed is not None and not self._works:
            said = np.array([self._knocking()], np.int64)
            heard = np.empty(self._group.size, np.int64)
            work = self._group.all_gather(said, heard, async_op=True)
            assert work is not None
            self._word, self._sealed = (self._sealed, work, heard), None
        if self._word is not None and self._word[1].done:
            self._hear()

    def _settle(self) -> None:
        """Returns when the last version is complete on all ranks."""
        while self._works:
            self._take()
        self._poll()
        if self._word is not None:
            self._hear()

    def _take(self) -> None:
        work, bundle = self._works.pop(0)
        work.wait()
        if bundle is not None:
            self._held.arrived(bundle)

    def _hear(self) -> None:
        assert self._word is not None
        self.whole, work, heard = self._word
        self._word = None
        work.wait()
        self._heard = bool(heard.any())

    def _find_sources(self, bundles: list[Bundle]) -> None:
        kinds = len(self._held.table.kinds)
        cuts = {cut_of(sharded): index for index, sharded in self._rank.updates.layers.items()}
        for bundle in bundles:
            index, at = cuts[self._held.table.cuts[bundle.pieces[0].cut]], 0
            for piece in bundle.pieces:
                (shard,) = (
                    shard
                    for shard in self._rank.updates.layers[index].shards
                    if shard.own.start <= piece.begin and piece.end <= shard.own.stop
                )
                begin = piece.begin - shard.own.start
                source = _Source(shard, begin, begin + piece.size, at)
                self._sources.setdefault(index, {}).setdefault(bundle, []).append(source)
                at += piece.size * (1 + kinds)
