"""The Communicator for Python: collectives and messages on arrays, in place.

Thin over `csrc._core.Communicator`: this file knows what an array is and how a collective's buffers are cut into blocks
(csrc/core/program/program.hpp, `Collective`); everything else is the runtime's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import accumulate
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from collectives import process, proof, recorder
from collectives.buffers import Buffer, UsageError, buffer_of, overlap
from collectives.recorder import Dump
from csrc import _core

_OPS = {name: name for name in _core.REDUCE_OPS} | {"avg": "sum"}


class Bootstrap(Protocol):
    """How ranks meet (collectives/bootstrap.py has four)."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        """Everybody's blob, in rank order. `name` is used once. TimeoutError names the ranks that did not come."""
        ...


class Work:
    """An operation in flight (`async_op=True`). Its arrays must not be touched before it is done."""

    def __init__(self, work: _core.Work) -> None:
        self._work = work

    @property
    def done(self) -> bool:
        return self._work.done

    @property
    def source(self) -> int:
        """A receive's sender, once done."""
        return self._work.source

    def wait(self, timeout: float | None = None) -> bool:
        """Helps the operation to its end and raises its error. False when `timeout` seconds passed first."""
        return self._work.wait(timeout)


class Communicator:
    """One rank's end of a group. Every rank calls the same collectives in the same order.

    `input` and `output` may be the same memory wherever their blocks are (all_reduce; all_gather with `input` being
    this rank's part of `output`; ..). Common keywords:

    priority   `low`, `normal` or `high`: what is more urgent goes ahead of what is less, in all groups of the process,
               also of what has begun. Ranks must keep the order of calls of each priority, and may differ in the order
               between them. Without it, what is usual for the collective (an all_to_all is `high`, all else `normal`),
               and one order over all such calls
    partition  bytes: run it as parts of at most so many, one behind the other; a sum may then be associated otherwise
    algorithm  a builder (`ring`, `dbt`, `hierarchical`, `direct`, `two_shot`, `pairwise`), a name that load() has
               returned, or `auto`
    async_op   return a Work at once instead of None at the end
    timeout    seconds; default: the group's

    Raises ValueError (UsageError) for a call that cannot mean anything, before anything has been sent;
    CommunicationError for what goes wrong between ranks.
    """

    def __init__(self, core: _core.Communicator) -> None:
        self._core = core
        self.rank: int = core.rank
        self.size: int = core.size

    @classmethod
    def create(
        cls, bootstrap: Bootstrap, timeout: float = 1800.0, name: str = "default", job_ranks: Sequence[int] = ()
    ) -> Communicator:
        """Meets the other ranks. Collective. `job_ranks`: their numbers in the job, for records, if not 0, 1, .."""
        from collectives.tuner import agreement, probe

        tuner = agreement.CURRENT
        core = _core.Communicator(process.current(), bootstrap, _seconds(timeout), name, job_ranks, tuner)
        if proof.wanted():
            proof.prove_builders(core.size, core.boxes)
        group = cls(core)
        probe.probe_if_asked(group)
        return group

    def set_priority(self, priority: str | None) -> None:
        """The priority of calls that do not say theirs; every rank must set the same, before its first call."""
        self._core.set_priority(priority)

    def set_canonical(self, canonical: bool) -> None:
        """Whether all_reduce and reduce_scatter that name no algorithm use `pairwise`, whose association is always the
        same; every rank must set the same."""
        self._core.set_canonical(canonical)

    def capsule(self) -> object:
        """For csrc._torch."""
        return self._core.capsule()

    @property
    def boxes(self) -> list[list[int]]:
        """The ranks of each host."""
        return self._core.boxes

    # ---- other groups -----------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[int]:
        """By rank: its rank in the group that this one was split or shrunk from."""
        return self._core.members

    def split(
        self, color: int | None, key: int = 0, *, timeout: float | None = None, name: str = "split"
    ) -> Communicator | None:
        """A group of the ranks that give the same `color`, ranked by `key`, then as here; None for ranks without one.

        Collective over this group, which goes on beside the new ones. What was loaded stays with the old group.
        """
        if color is not None and not 0 <= _whole(color) < 1 << 64:
            raise UsageError(f"a color is a whole number from 0 to 2^64 - 1, or None, not {color!r}")
        core = self._core.split(color, index(key), _seconds(timeout), name)
        return None if core is None else Communicator(core)

    def shrink(
        self, excluded: Sequence[int] = (), *, timeout: float | None = None, name: str = "shrunk"
    ) -> Communicator:
        """A group of the ranks that live and that nobody has `excluded`, in their old order. Collective over them.

        It needs nothing but this group, and works after it has failed: catch the CommunicationError, shrink, go on.
        This group is closed then. A rank that hangs is not gone: exclude it by its number. CommunicationError names the
        rank when one dies meanwhile (shrink again), when others excluded this one, or when some do not come.
        """
        ranks = [self._member("a rank to exclude", rank) for rank in excluded]
        if self.rank in ranks:
            raise UsageError(f"rank {self.rank} cannot exclude itself when a group shrinks: it only has to close it")
        return Communicator(self._core.shrink(ranks, _seconds(timeout), name))

    # ---- collectives ------------------------------------------------------------------------------------------------

    def all_reduce(
        self,
        input: Any,
        output: Any = None,
        op: str = "sum",
        *,
        factor: float = 1.0,
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """output = input[rank 0] + input[rank 1] + ..; without `output`, in place.

        `op`: sum, product, min, max, band, bor, bxor, avg. `factor` weights this rank's input (sums of floats).
        """
        usual = factor == 1.0 and priority is None and partition is None
        if usual and self._core.run_even("all_reduce", input, output, op, algorithm, async_op, timeout):
            return None
        source = buffer_of(input, "the input of all_reduce", writable=output is None)
        target = source if output is None else buffer_of(output, "the output of all_reduce", writable=True)
        self._alike("all_reduce", source, target, source.elements)
        blocks = [(source.address, target.address, source.elements)]
        return self._run(
            "all_reduce", [source, target], blocks, op=op, factor=factor,
            algorithm=algorithm, priority=priority, partition=partition, async_op=async_op, timeout=timeout,
        )  # fmt: skip

    def all_gather(
        self,
        input: Any,
        output: Any,
        counts: Sequence[int] | None = None,
        *,
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """output = every rank's input, one after another. `counts`: elements of each rank where they differ."""
        usual = counts is None and priority is None and partition is None
        if usual and self._core.run_even("all_gather", input, output, "sum", algorithm, async_op, timeout):
            return None
        source = buffer_of(input, "the input of all_gather", writable=False)
        target = buffer_of(output, "the output of all_gather", writable=True)
        sizes = self._sizes("all_gather", counts, source.elements)
        self._alike("all_gather", source, target, sum(sizes), mine=sizes[self.rank])
        blocks = [
            (source.address if rank == self.rank else 0, target.at(start), size)
            for rank, (start, size) in enumerate(_spans(sizes))
        ]
        return self._run(
            "all_gather", [source, target], blocks, even=counts is None,
            algorithm=algorithm, priority=priority, partition=partition, async_op=async_op, timeout=timeout,
        )  # fmt: skip

    def reduce_scatter(
        self,
        input: Any,
        output: Any,
        op: str = "sum",
        counts: Sequence[int] | None = None,
        *,
        factor: float = 1.0,
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """output = this rank's part of the sum of all inputs. `counts`: elements of each part where they differ."""
        usual = counts is None and factor == 1.0 and priority is None and partition is None
        if usual and self._core.run_even("reduce_scatter", input, output, op, algorithm, async_op, timeout):
            return None
        source = buffer_of(input, "the input of reduce_scatter", writable=False)
        target = buffer_of(output, "the output of reduce_scatter", writable=True)
        sizes = self._sizes("reduce_scatter", counts, target.elements)
        self._alike("reduce_scatter", target, source, sum(sizes), mine=sizes[self.rank])
        blocks = [
            (source.at(start), target.address if rank == self.rank else 0, size)
            for rank, (start, size) in enumerate(_spans(sizes))
        ]
        return self._run(
            "reduce_scatter", [source, target], blocks, op=op, factor=factor, even=counts is None,
            algorithm=algorithm, priority=priority, partition=partition, async_op=async_op, timeout=timeout,
        )  # fmt: skip

    def all_to_all(
        self,
        input: Any,
        output: Any,
        input_counts: Sequence[int] | None = None,
        output_counts: Sequence[int] | None = None,
        *,
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """Part d of `input` goes to rank d; part s of `output` comes from rank s.

        The counts (elements sent to, received from each rank) go together; without them all parts are equal.
        """
        usual = input_counts is None and output_counts is None and priority is None and partition is None
        if usual and self._core.run_even("all_to_all", input, output, "sum", algorithm, async_op, timeout):
            return None
        source = buffer_of(input, "the input of all_to_all", writable=False)
        target = buffer_of(output, "the output of all_to_all", writable=True)
        if (input_counts is None) != (output_counts is None):
            raise UsageError("all_to_all takes input_counts and output_counts together, or neither")
        even = input_counts is None
        if even and source.elements % self.size:
            raise UsageError(f"{source.elements} elements do not divide among the {self.size} ranks of all_to_all")
        part = source.elements // self.size
        sent = self._sizes("all_to_all", input_counts, part)
        received = self._sizes("all_to_all", output_counts, part)
        if source.elements != sum(sent):
            raise UsageError(f"the input of all_to_all has {source.elements} elements, input_counts {sum(sent)}")
        self._alike("all_to_all", source, target, sum(received))
        if overlap(source, target) and (source.address != target.address or sent != received):
            raise _overlapping("all_to_all")
        blocks = [(0, 0, part if even else 0)] * (self.size * self.size)
        for peer, (start, size) in enumerate(_spans(sent)):
            blocks[self.rank * self.size + peer] = (source.at(start), 0, size)
        for peer, (start, size) in enumerate(_spans(received)):
            own = peer == self.rank
            if own and size != sent[peer]:
                raise UsageError(f"rank {peer} sends {sent[peer]} elements to itself in all_to_all and expects {size}")
            from_address = blocks[self.rank * self.size + peer][0] if own else 0
            blocks[peer * self.size + self.rank] = (from_address, target.at(start), size)
        return self._run(
            "all_to_all", [source, target], blocks, even=even,
            algorithm=algorithm, priority=priority, partition=partition, async_op=async_op, timeout=timeout,
        )  # fmt: skip

    def broadcast(
        self,
        buffer: Any,
        root: int = 0,
        *,
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """Everybody's `buffer` becomes the root's."""
        target = buffer_of(buffer, "the buffer of broadcast", writable=self.rank != root)
        blocks = [(target.address if self.rank == root else 0, target.address, target.elements)]
        return self._run(
            "broadcast", [target], blocks, root=root,
            algorithm=algorithm, priority=priority, partition=partition, async_op=async_op, timeout=timeout,
        )  # fmt: skip

    def reduce(
        self,
        input: Any,
        output: Any = None,
        root: int = 0,
        op: str = "sum",
        *,
        factor: float = 1.0,
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """The root's `output` becomes the sum of all inputs; at the root without `output`, in place."""
        at_root = self.rank == root
        source = buffer_of(input, "the input of reduce", writable=at_root and output is None)
        target = source
        if at_root and output is not None:
            target = buffer_of(output, "the output of reduce", writable=True)
            self._alike("reduce", source, target, source.elements)
        blocks = [(source.address, target.address if at_root else 0, source.elements)]
        return self._run(
            "reduce", [source, target], blocks, root=root, op=op, factor=factor,
            algorithm=algorithm, priority=priority, partition=partition, async_op=async_op, timeout=timeout,
        )  # fmt: skip

    def gather(
        self,
        input: Any,
        output: Any = None,
        root: int = 0,
        counts: Sequence[int] | None = None,
        *,
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """The root's `output` = every rank's input, one after another."""
        source = buffer_of(input, "the input of gather", writable=False)
        sizes = self._sizes("gather", counts, source.elements)
        kept = [source]
        starts = [0] * self.size
        if self.rank == root:
            if output is None:
                raise UsageError(f"rank {root} is the root of gather and needs an output")
            target = buffer_of(output, "the output of gather", writable=True)
            self._alike("gather", source, target, sum(sizes), mine=sizes[self.rank])
            starts = [target.at(start) for start, _ in _spans(sizes)]
            kept.append(target)
        blocks = [(source.address if rank == self.rank else 0, starts[rank], size) for rank, size in enumerate(sizes)]
        return self._run(
            "gather", kept, blocks, root=root, even=counts is None,
            algorithm=algorithm, priority=priority, partition=partition, async_op=async_op, timeout=timeout,
        )  # fmt: skip

    def scatter(
        self,
        input: Any,
        output: Any,
        root: int = 0,
        counts: Sequence[int] | None = None,
        *,
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """Part r of the root's `input` goes to rank r's `output`. `input` is None elsewhere."""
        target = buffer_of(output, "the output of scatter", writable=True)
        sizes = self._sizes("scatter", counts, target.elements)
        kept = [target]
        starts = [0] * self.size
        if self.rank == root:
            if input is None:
                raise UsageError(f"rank {root} is the root of scatter and needs an input")
            source = buffer_of(input, "the input of scatter", writable=False)
            self._alike("scatter", target, source, sum(sizes), mine=sizes[self.rank])
            starts = [source.at(start) for start, _ in _spans(sizes)]
            kept.append(source)
        blocks = [(starts[rank], target.address if rank == self.rank else 0, size) for rank, size in enumerate(sizes)]
        return self._run(
            "scatter", kept, blocks, root=root, even=counts is None,
            algorithm=algorithm, priority=priority, partition=partition, async_op=async_op, timeout=timeout,
        )  # fmt: skip

    def all_reduce_together(
        self,
        arrays: Sequence[Any],
        op: str = "sum",
        *,
        algorithm: str = "auto",
        priority: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """all_reduce of several small arrays of one type in place, as one operation: they travel packed.

        Calls one by one are never fused behind your back: ranks see different queues, and all must fuse alike.
        """
        buffers = [
            buffer_of(array, f"array {i} of all_reduce_together", writable=True) for i, array in enumerate(arrays)
        ]
        if not buffers:
            raise UsageError("all_reduce_together needs at least one array")
        for i, buffer in enumerate(buffers):
            self._alike(f"all_reduce_together (arrays 0 and {i})", buffers[0], buffer, buffer.elements)
        self._meaning("all_reduce_together", op, buffers[0])
        work = self._core.all_reduce_together(
            dtype=buffers[0].dtype,
            op=_OPS[op],
            buffers=[(buffer.address, buffer.address, buffer.elements) for buffer in buffers],
            algorithm=algorithm,
            priority=priority,
            timeout=_seconds(timeout),
            async_op=async_op,
            average=op == "avg",
            keep_alive=[buffer.owner for buffer in buffers] if async_op else None,
        )
        return None if work is None else Work(work)

    def barrier(
        self, *, priority: str | None = None, async_op: bool = False, timeout: float | None = None
    ) -> Work | None:
        """Returns when every rank has called it."""
        work = self._core.barrier(priority=priority, timeout=_seconds(timeout), async_op=async_op)
        return None if work is None else Work(work)

    # ---- messages ---------------------------------------------------------------------------------------------------

    def send(
        self, buffer: Any, destination: int, tag: int = 0, *, async_op: bool = False, timeout: float | None = None
    ) -> Work | None:
        """Sends to one rank, beside all collectives. Done when `buffer` may be used again."""
        source = buffer_of(buffer, "the buffer of send", writable=False)
        size = source.elements * source.itemsize
        to_rank = self._member("the destination of send", destination)
        work = self._core.send(source.address, size, to_rank, _tag(tag), _seconds(timeout), async_op, source.owner)
        return Work(work) if async_op else None

    def recv(
        self,
        buffer: Any,
        source: int | None = None,
        tag: int = 0,
        *,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | int:
        """Receives a message of exactly this size; from any rank when `source` is None. Returns the sender's rank."""
        target = buffer_of(buffer, "the buffer of recv", writable=True)
        size = target.elements * target.itemsize
        from_rank = -1 if source is None else self._member("the source of recv", source)
        work = self._core.receive(target.address, size, from_rank, _tag(tag), _seconds(timeout), async_op, target.owner)
        return Work(work) if async_op else work.source

    # ---- the group --------------------------------------------------------------------------------------------------

    def load(self, path: str | Path) -> str:
        """Proves the schedule, portfolio, program or MSCCL XML in a file and makes it an algorithm; returns its name.

        Of a portfolio, that is an algorithm whose schedule depends on the size. Every rank must load it before one
        uses it. Raises UserError: unreadable, refused by the checker (the first fault is named), for another number of
        ranks, or beyond this runtime.
        """
        from synth.loading import Loaded, prove, read
        from synth.portfolio import Portfolio

        def add(loaded: Loaded, name: str = "") -> str:
            program = prove(loaded, path, self.size)
            self._core.add_program(name or program.name, program.to_core())
            return name or program.name

        loaded = read(path)
        if not isinstance(loaded.content, Portfolio):
            return add(loaded)
        entries = loaded.content.entries
        first = entries[0].schedule
        table = f"portfolio of {first.collective.kind} on {first.topology.name}"
        names = [add(Loaded(entry.schedule), f"{table}, {number}") for number, entry in enumerate(entries)]
        ends = [sys.maxsize if entry.last is None else entry.last for entry in entries]
        turns = [(end, part, "its turn in the portfolio") for end, part in zip(ends, names, strict=True)]
        self._core.set_turns(table, first.collective.kind, turns)
        return table

    def record(self) -> Dump:
        """This group's last operations and how far each came, whatever other threads are doing (recorder.py)."""
        return recorder.parse(self._core.record())

    def dump(self, folder: str | Path) -> list[Path]:
        """Writes `folder/syntony_rank_N` with all groups of this process, for `syntony trace` and `torchfrtrace`."""
        return recorder.dump(folder)

    def counters(self) -> str:
        """This group's counters in Prometheus' text format."""
        return self._core.counters()

    def abort(self, why: str) -> None:
        """Ends the group on every rank: all operations fail, naming this rank and `why`."""
        self._core.abort(why)

    def close(self) -> None:
        """Says goodbye: this rank's exit is then no failure to the others."""
        self._core.shutdown()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort(f"{type(error).__name__}: {error}")
        self.close()

    # ---- helpers ----------------------------------------------------------------------------------------------------

    def _sizes(self, collective: str, counts: Sequence[int] | None, mine: int) -> list[int]:
        if counts is None:
            return [mine] * self.size
        sizes = [_whole(count) for count in counts]
        if len(sizes) != self.size or min(sizes) < 0:
            raise UsageError(f"{collective} takes one count for each of the {self.size} ranks, not {list(counts)}")
        return sizes

    def _member(self, what: str, rank: Any) -> int:
        number = _whole(rank)
        if not 0 <= number < self.size:
            raise UsageError(f"{what} is rank {rank!r}; this group has the ranks 0 to {self.size - 1}")
        return number

    def _alike(self, collective: str, part: Buffer, whole: Buffer, elements: int, mine: int | None = None) -> None:
        if part.dtype != whole.dtype:
            raise UsageError(f"{collective} got {part.dtype} and {whole.dtype}; both arrays must have one element type")
        if whole.elements != elements:
            raise UsageError(f"{collective} needs {elements} elements where it got an array of {whole.elements}")
        if mine is not None and part.elements != mine:
            raise UsageError(f"{collective}: rank {self.rank} has {part.elements} elements, its count says {mine}")

    def _run(
        self,
        collective: str,
        buffers: list[Buffer],
        blocks: list[tuple[int, int, int]],
        *,
        op: str = "sum",
        root: int = 0,
        factor: float = 1.0,
        even: bool = True,
        algorithm: str,
        priority: str | None,
        partition: int | None,
        async_op: bool,
        timeout: float | None,
    ) -> Work | None:
        self._meaning(collective, op, buffers[0])
        if partition is not None and _whole(partition) < 1:
            raise UsageError(f"the partition of {collective} is a number of bytes above 0, not {partition!r}")
        first, last = buffers[0], buffers[-1]
        if (
            first.address != last.address
            and overlap(first, last)
            and any(source and target and source != target for source, target, _ in blocks)
        ):
            raise _overlapping(collective)
        work = self._core.run(
            collective=collective,
            dtype=first.dtype,
            op=_OPS[op],
            root=self._member(f"the root of {collective}", root),
            blocks=blocks,
            algorithm=algorithm,
            priority=priority,
            partition=partition or 0,
            timeout=_seconds(timeout),
            async_op=async_op,
            average=op == "avg",
            factor=factor,
            even=even,
            keep_alive=[buffer.owner for buffer in buffers] if async_op else None,
        )
        return None if work is None else Work(work)

    @staticmethod
    def _meaning(collective: str, op: str, buffer: Buffer) -> None:
        if op not in _OPS:
            raise UsageError(f"unknown op {op!r} for {collective}: possible are {', '.join(_OPS)}")
        if op == "avg" and buffer.dtype == "bool":
            raise UsageError(f"avg of bool has no meaning in {collective}")


def _spans(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """(first element, elements) of consecutive parts."""
    return list(zip([0, *accumulate(sizes)][:-1], sizes, strict=True))


def _whole(number: Any) -> int:
    """-1, which nobody takes, for what is no whole number."""
    try:
        return index(number)
    except TypeError:
        return -1


def _tag(tag: Any) -> int:
    if not 0 <= _whole(tag) < 1 << 64:
        raise UsageError(f"a tag is a whole number from 0 to 2^64 - 1, not {tag!r}")
    return index(tag)


def _seconds(timeout: float | None) -> float:
    """0, which is the group's own, for None."""
    if timeout is None:
        return 0.0
    if not timeout > 0:
        raise UsageError(f"a timeout is a number of seconds above 0, not {timeout!r}")
    return timeout


def _overlapping(collective: str) -> UsageError:
    return UsageError(f"the input and the output of {collective} overlap, and not block on block: keep them apart")
