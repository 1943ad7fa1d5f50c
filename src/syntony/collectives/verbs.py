"""The verbs of a group: collectives and messages on arrays, in place.

Thin over `syntony._core.Communicator`: a verb says which part of its arrays goes to whom and comes from whom; what a
call may say is calls.py's; everything else is the runtime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from syntony import _core
from syntony.collectives import calls
from syntony.collectives.buffers import Buffer, UsageError, buffer_of, host_buffer_of
from syntony.collectives.cuda.call import Call

if TYPE_CHECKING:
    from syntony.collectives.cuda.group import CudaGroup
    from syntony.collectives.cuda.staging import StagedGroup
    from syntony.collectives.cuda.stream_future import StreamFuture


class Work:
    """An operation in flight (`async_op=True`). Its arrays must not be touched before it is done.

    Arrays on a GPU are worked on in a stream of the group's, behind what their library's current stream holds at the
    call, and kept for as long. wait() lets what that library's then current stream gets from here on come after it, and
    holds the host no longer than that takes: nothing by kernels, until the wire is done with it between hosts. Of a
    library that tells no stream, the host waits to the end. wait() raises what has gone wrong by then, the next call or
    close() what does later.
    """

    def __init__(self, work: _core.Work | StreamFuture) -> None:
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


class CallOptions(TypedDict, total=False):
    """What every collective may be told, by keyword."""

    algorithm: str
    """A builder (`ring`, `dbt`, `hierarchical`, .. : docs/tuning.md), a name that load() has returned, or `auto`, the
    default."""
    priority: str | None
    """`low`, `normal` or `high`: what is more urgent goes ahead of what is less, in all groups of the process, also of
    what has begun. Ranks must keep the order of calls of each priority, and may differ in the order between them.
    Without it, what is usual for the collective (an all_to_all is `high`, all else `normal`), and one order over all
    such calls."""
    partition: int | None
    """Bytes: run it as parts of at most so many, one behind the other; a sum may then be associated otherwise."""
    async_op: bool
    """Return a Work at once instead of None at the end."""
    timeout: float | None
    """Seconds; default: the group's."""


class Verbs:
    """One rank's end of a group: what it says and hears. Every rank calls the same collectives in the same order.

    `input` and `output` may be the same memory wherever their blocks are (all_reduce; all_gather with `input` being
    this rank's part of `output`; ..). Collectives take the keywords of
    CallOptions: algorithm, priority, partition, async_op, timeout.

    Arrays on a GPU are queued in the current stream of their library, on one host by kernels, on several by way of the
    hosts' memory (cuda/group.py and cuda/staging.py say what is not done for them).

    Signal handlers run while a call waits. What one raises (Ctrl-C: KeyboardInterrupt) ends the wait: of a Work, whose
    operation goes on, or of a synchronous call, whose group is aborted first, so that nobody touches its arrays later.

    Raises ValueError (UsageError) for a call that cannot mean anything, before anything has been sent;
    CommunicationError for what goes wrong between ranks.
    """

    def __init__(self, core: _core.Communicator) -> None:
        self._core = core
        self.rank: int = core.rank
        self.size: int = core.size
        self._gpus: CudaGroup | StagedGroup | None = None  # formed by the first call with arrays on GPUs

    # ---- collectives ------------------------------------------------------------------------------------------------

    def all_reduce(
        self,
        input: Any,
        output: Any = None,
        op: str = "sum",
        *,
        factor: float = 1.0,
        **options: Unpack[CallOptions],
    ) -> Work | None:
        """output = input[rank 0] + input[rank 1] + ..; without `output`, in place.

        `op`: sum, product, min, max, band, bor, bxor, avg. `factor` weights this rank's input (sums of floats).
        """
        run = self._core.run_even
        if factor == 1.0 and (  # without options, no dictionary: a twentieth of what a small call takes
            run("all_reduce", input, output, op, **options) if options else run("all_reduce", input, output, op)
        ):
            return None
        source = buffer_of(input, "the input of all_reduce", writable=output is None)
        target = source if output is None else buffer_of(output, "the output of all_reduce", writable=True)
        calls.alike("all_reduce", source, target, source.elements)
        whole = [source.elements]
        return self._run("all_reduce", source, target, whole, whole, op=op, factor=factor, **options)

    def all_gather(
        self,
        input: Any,
        output: Any,
        counts: Sequence[int] | None = None,
        **options: Unpack[CallOptions],
    ) -> Work | None:
        """output = every rank's input, one after another. `counts`: elements of each rank where they differ."""
        if counts is None and self._core.run_even("all_gather", input, output, "sum", **options):
            return None
        source = buffer_of(input, "the input of all_gather", writable=False)
        target = buffer_of(output, "the output of all_gather", writable=True)
        sizes = calls.sizes("all_gather", counts, source.elements, self.size)
        calls.divided("all_gather", self.rank, source, target, sizes)
        return self._run("all_gather", source, target, [source.elements], sizes, even=counts is None, **options)

    def reduce_scatter(
        self,
        input: Any,
        output: Any,
        op: str = "sum",
        counts: Sequence[int] | None = None,
        *,
        factor: float = 1.0,
        **options: Unpack[CallOptions],
    ) -> Work | None:
        """output = this rank's part of the sum of all inputs. `counts`: elements of each part where they differ."""
        usual = counts is None and factor == 1.0
        if usual and self._core.run_even("reduce_scatter", input, output, op, **options):
            return None
        source = buffer_of(input, "the input of reduce_scatter", writable=False)
        target = buffer_of(output, "the output of reduce_scatter", writable=True)
        sizes = calls.sizes("reduce_scatter", counts, target.elements, self.size)
        calls.divided("reduce_scatter", self.rank, target, source, sizes)
        own = [target.elements]
        even = counts is None
        return self._run("reduce_scatter", source, target, sizes, own, op=op, factor=factor, even=even, **options)

    def all_to_all(
        self,
        input: Any,
        output: Any,
        input_counts: Sequence[int] | None = None,
        output_counts: Sequence[int] | None = None,
        **options: Unpack[CallOptions],
    ) -> Work | None:
        """Part d of `input` goes to rank d; part s of `output` comes from rank s.

        The counts (elements sent to, received from each rank) go together; without them all parts are equal.
        """
        usual = input_counts is None and output_counts is None
        if usual and self._core.run_even("all_to_all", input, output, "sum", **options):
            return None
        source = buffer_of(input, "the input of all_to_all", writable=False)
        target = buffer_of(output, "the output of all_to_all", writable=True)
        if (input_counts is None) != (output_counts is None):
            raise UsageError("all_to_all takes input_counts and output_counts together, or neither")
        even = input_counts is None
        if even and source.elements % self.size:
            raise UsageError(f"{source.elements} elements do not divide among the {self.size} ranks of all_to_all")
        part = source.elements // self.size
        sent = calls.sizes("all_to_all", input_counts, part, self.size)
        received = calls.sizes("all_to_all", output_counts, part, self.size)
        if source.elements != sum(sent):
            raise UsageError(f"the input of all_to_all has {source.elements} elements, input_counts {sum(sent)}")
        calls.alike("all_to_all", source, target, sum(received))
        calls.exchanged(self.rank, source, target, sent, received)
        return self._run("all_to_all", source, target, sent, received, even=even, **options)

    def broadcast(
        self,
        buffer: Any,
        root: int = 0,
        **options: Unpack[CallOptions],
    ) -> Work | None:
        """Everybody's `buffer` becomes the root's."""
        target = buffer_of(buffer, "the buffer of broadcast", writable=self.rank != root)
        whole = [target.elements]
        return self._run("broadcast", target, target, whole, whole, root=root, **options)

    def reduce(
        self,
        input: Any,
        output: Any = None,
        root: int = 0,
        op: str = "sum",
        *,
        factor: float = 1.0,
        **options: Unpack[CallOptions],
    ) -> Work | None:
        """The root's `output` becomes the sum of all inputs; at the root without `output`, in place."""
        at_root = self.rank == root
        source = buffer_of(input, "the input of reduce", writable=at_root and output is None)
        target = source
        if at_root and output is not None:
            target = buffer_of(output, "the output of reduce", writable=True)
            calls.alike("reduce", source, target, source.elements)
        whole = [source.elements]
        return self._run("reduce", source, target, whole, whole, root=root, op=op, factor=factor, **options)

    def gather(
        self,
        input: Any,
        output: Any = None,
        root: int = 0,
        counts: Sequence[int] | None = None,
        **options: Unpack[CallOptions],
    ) -> Work | None:
        """The root's `output` = every rank's input, one after another."""
        source = buffer_of(input, "the input of gather", writable=False)
        sizes = calls.sizes("gather", counts, source.elements, self.size)
        target = None
        if self.rank == root:
            if output is None:
                raise UsageError(f"rank {root} is the root of gather and needs an output")
            target = buffer_of(output, "the output of gather", writable=True)
            calls.divided("gather", self.rank, source, target, sizes)
        own = [source.elements]
        return self._run("gather", source, target, own, sizes, root=root, even=counts is None, **options)

    def scatter(
        self,
        input: Any,
        output: Any,
        root: int = 0,
        counts: Sequence[int] | None = None,
        **options: Unpack[CallOptions],
    ) -> Work | None:
        """Part r of the root's `input` goes to rank r's `output`. `input` is None elsewhere."""
        target = buffer_of(output, "the output of scatter", writable=True)
        sizes = calls.sizes("scatter", counts, target.elements, self.size)
        source = None
        if self.rank == root:
            if input is None:
                raise UsageError(f"rank {root} is the root of scatter and needs an input")
            source = buffer_of(input, "the input of scatter", writable=False)
            calls.divided("scatter", self.rank, target, source, sizes)
        own = [target.elements]
        return self._run("scatter", source, target, sizes, own, root=root, even=counts is None, **options)

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
            host_buffer_of(array, f"array {i} of all_reduce_together", writable=True) for i, array in enumerate(arrays)
        ]
        if not buffers:
            raise UsageError("all_reduce_together needs at least one array")
        for i, buffer in enumerate(buffers):
            calls.alike(f"all_reduce_together (arrays 0 and {i})", buffers[0], buffer, buffer.elements)
        work = self._core.all_reduce_together(
            dtype=buffers[0].dtype,
            op=calls.reduction("all_reduce_together", op, buffers[0]),
            buffers=[(buffer.address, buffer.address, buffer.elements) for buffer in buffers],
            algorithm=algorithm,
            priority=priority,
            timeout=calls.seconds(timeout),
            async_op=async_op,
            average=op == "avg",
            keep_alive=[buffer.owner for buffer in buffers] if async_op else None,
        )
        return None if work is None else Work(work)

    def barrier(
        self, *, priority: str | None = None, async_op: bool = False, timeout: float | None = None
    ) -> Work | None:
        """Returns when every rank has called it."""
        work = self._core.barrier(priority=priority, timeout=calls.seconds(timeout), async_op=async_op)
        return None if work is None else Work(work)

    # ---- messages ---------------------------------------------------------------------------------------------------

    def send(
        self, buffer: Any, destination: int, tag: int = 0, *, async_op: bool = False, timeout: float | None = None
    ) -> Work | None:
        """Sends to one rank, beside all collectives. Done when `buffer` may be used again."""
        source = host_buffer_of(buffer, "the buffer of send", writable=False)
        size = source.elements * source.itemsize
        to_rank = calls.member("the destination of send", destination, self.size)
        work = self._core.send(
            source.address, size, to_rank, calls.tag(tag), calls.seconds(timeout), async_op, source.owner
        )
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
        target = host_buffer_of(buffer, "the buffer of recv", writable=True)
        size = target.elements * target.itemsize
        from_rank = -1 if source is None else calls.member("the source of recv", source, self.size)
        work = self._core.receive(
            target.address, size, from_rank, calls.tag(tag), calls.seconds(timeout), async_op, target.owner
        )
        return Work(work) if async_op else work.source

    def _run(
        self,
        collective: str,
        source: Buffer | None,
        target: Buffer | None,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        op: str = "sum",
        root: int = 0,
        factor: float = 1.0,
        even: bool = True,
        algorithm: str = "auto",
        priority: str | None = None,
        partition: int | None = None,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> Work | None:
        """`inputs`: elements of `source`'s part for each destination where these have blocks of their own, else of all
        of it; `outputs`: of `target`'s part from each source, likewise. An array is None where this rank has none."""
        buffers = [buffer for buffer in (source, target) if buffer is not None]
        root = calls.member(f"the root of {collective}", root, self.size)
        blocks = self._core.blocks_of(
            collective,
            root,
            source.address if source else 0,
            inputs,
            target.address if target else 0,
            outputs,
            buffers[0].itemsize,
            even,
        )
        calls.apart(collective, buffers, blocks)
        reduction = calls.reduction(collective, op, buffers[0])
        if max(buffer.device for buffer in buffers) >= 0:
            if factor != 1.0 or priority is not None or partition is not None:
                raise UsageError(f"{collective} of arrays on GPUs knows no priority, partition or factor")
            call = Call(collective, reduction, root, blocks, even, algorithm)
            return self._run_on_gpu(call, buffers, op == "avg", timeout, async_op)
        work = self._core.run(
            collective=collective,
            dtype=buffers[0].dtype,
            op=reduction,
            root=root,
            blocks=blocks,
            algorithm=algorithm,
            priority=priority,
            partition=calls.parts(collective, partition),
            timeout=calls.seconds(timeout),
            async_op=async_op,
            average=op == "avg",
            factor=factor,
            even=even,
            keep_alive=[buffer.owner for buffer in buffers] if async_op else None,
        )
        return None if work is None else Work(work)

    def _run_on_gpu(
        self, call: Call, buffers: list[Buffer], average: bool, timeout: float | None, async_op: bool
    ) -> Work | None:
        """Queues it on or beside the current stream (collectives/cuda)."""
        from syntony.collectives.cuda.group import CudaGroup
        from syntony.collectives.cuda.staging import StagedGroup

        if self._gpus is None:
            by = CudaGroup if len(self._core.boxes) == 1 else StagedGroup
            self._gpus = by(self._core, max(buffer.device for buffer in buffers))
        future = self._gpus.run(call, buffers, average, calls.seconds(timeout) or self._core.timeout, async_op)
        return None if future is None else Work(future)
