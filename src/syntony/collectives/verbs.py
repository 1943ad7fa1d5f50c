"""The operations of a group: collectives and point-to-point messages on arrays, in place.

A thin layer over `syntony._core.Communicator`: each method says which part of its arrays goes where. calls.py checks
the arguments; the runtime does everything else.
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

    Operations on GPU arrays run in a stream of the group, after the work that their library's current stream holds at
    the call; the arrays are kept alive until then. wait() makes the library's current stream wait for the operation. It
    does not block the host for operations done by kernels; between hosts it blocks until the transfer is done. For a
    library that exposes no stream, the host waits to the end. wait() raises errors known by then; later ones are raised
    by the next call or by close().
    """

    def __init__(self, work: _core.Work | StreamFuture) -> None:
        self._work = work

    @property
    def done(self) -> bool:
        return self._work.done

    @property
    def source(self) -> int:
        """The sender of a receive, once it is done."""
        return self._work.source

    def wait(self, timeout: float | None = None) -> bool:
        """Drives the operation to completion and raises its error. Returns False if `timeout` seconds pass first."""
        return self._work.wait(timeout)


class CallOptions(TypedDict, total=False):
    """The keyword arguments of every collective."""

    algorithm: str
    """A builder (`ring`, `dbt`, `hierarchical`, .. : docs/tuning.md), a name that load() returned, or `auto` (default).
    """
    priority: str | None
    """`low`, `normal` or `high`. More urgent calls overtake less urgent ones, even those already started, in all groups
    of the process. Ranks must agree on the order of calls within each priority, but not between priorities. Without
    it, the collective's usual priority applies (`high` for all_to_all, `normal` for the rest), and all such calls must
    be made in one order."""
    partition: int | None
    """Bytes: run it as consecutive parts of at most this size; sums may then be associated differently."""
    async_op: bool
    """Return a Work at once instead of None at the end."""
    timeout: float | None
    """Seconds; default: the group's."""


class Verbs:
    """One rank's end of a group. Every rank calls the same collectives in the same order.

    `input` and `output` may share memory if their blocks coincide (all_reduce; all_gather with `input` being this
    rank's part of `output`; ..). Collectives take the keywords of CallOptions: algorithm, priority, partition,
    async_op, timeout.

    Operations on GPU arrays are queued in the current stream of their library: on one host as kernels, between hosts
    through host memory (cuda/group.py and cuda/staging.py list what they do not support).

    Signal handlers run while a call waits. If one raises (Ctrl-C: KeyboardInterrupt), the wait ends. A Work's operation
    then continues; a synchronous call aborts its group first, so that nothing touches its arrays later.

    Raises ValueError (UsageError) for an invalid call, before anything is sent, and CommunicationError for failures
    between ranks.
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

        `op`: sum, product, min, max, band, bor, bxor, avg. `factor` scales this rank's input (sums of floats).
        """
        if factor == 1.0 and self._core.run_even("all_reduce", input, output, op, options):
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
        """output = every rank's input, in rank order. `counts`: elements of each rank if they differ."""
        if counts is None and self._core.run_even("all_gather", input, output, "sum", options):
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
        """output = this rank's part of the sum of all inputs. `counts`: elements of each part if they differ."""
        usual = counts is None and factor == 1.0
        if usual and self._core.run_even("reduce_scatter", input, output, op, options):
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

        The counts (elements sent to and received from each rank) are given both or not at all; without them all parts
        are equal.
        """
        usual = input_counts is None and output_counts is None
        if usual and self._core.run_even("all_to_all", input, output, "sum", options):
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
        """Copies the root's `buffer` to every rank's."""
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
        """The root's `output` becomes the sum of all inputs; in place at the root without `output`."""
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
        """The root's `output` = every rank's input, in rank order."""
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
        """Part r of the root's `input` goes to rank r's `output`. `input` is None on the other ranks."""
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
        """all_reduce of several small arrays of one type in place, packed into one operation.

        Separate calls are never fused implicitly: ranks see different queues, and all must fuse alike.
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
        """Sends to one rank, independently of collectives. Done when `buffer` may be reused."""
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
        """Receives a message of exactly this size, from any rank if `source` is None. Returns the sender's rank."""
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
        """`inputs`: elements of `source`'s part for each destination if these have separate blocks, otherwise of all of
        it; `outputs`: likewise of `target`'s part from each source. An array is None if this rank has none."""
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
                raise UsageError(f"{collective} of arrays on GPUs takes no priority, partition or factor")
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
