"""The contenders: Syntony with one algorithm or schedule, and its peers. All use the same memory.

A contender turns a test into a prepared call without arguments, so that the timing covers only the operation and the
thinnest Python path to it: a Communicator's method here, the process group's method for torch backends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from syntony.benchmarks.bench.elements import Array, Element
from syntony.benchmarks.bench.shapes import Shape
from syntony.benchmarks.bench.torch_store import open_store
from syntony.collectives.bootstrap.launch import Exchange

Call = Callable[[], object]


@dataclass(frozen=True)
class Test:
    """One row of the table on one rank: the operation, and its memory.

    `send` and `recv` are storage views (elements.py). They overlap if `in_place`. In a rooted collective, ranks without
    data on one side still have the memory.
    """

    shape: Shape
    element: Element
    operation: str | None
    root: int
    send: Array
    recv: Array
    in_place: bool


class Contender(Protocol):
    """Something that can run tests."""

    @property
    def label(self) -> str: ...

    def prepare(self, test: Test) -> Call | None:
        """The call that runs `test` once to completion, or None if this contender lacks the operation."""
        ...

    def barrier(self) -> object: ...

    def close(self) -> None: ...


class Communicator(Protocol):
    """The part of syntony.Communicator that is measured."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_reduce(self, input: Any, output: Any = None, op: str = "sum", *, algorithm: str = "auto") -> object: ...
    def all_gather(self, input: Any, output: Any, *, algorithm: str = "auto") -> object: ...
    def reduce_scatter(self, input: Any, output: Any, op: str = "sum", *, algorithm: str = "auto") -> object: ...
    def all_to_all(self, input: Any, output: Any, *, algorithm: str = "auto") -> object: ...
    def broadcast(self, buffer: Any, root: int = 0, *, algorithm: str = "auto") -> object: ...
    def reduce(
        self, input: Any, output: Any = None, root: int = 0, op: str = "sum", *, algorithm: str = "auto"
    ) -> object: ...
    def gather(self, input: Any, output: Any = None, root: int = 0, *, algorithm: str = "auto") -> object: ...
    def scatter(self, input: Any, output: Any, root: int = 0, *, algorithm: str = "auto") -> object: ...
    def send(self, buffer: Any, destination: int, *, async_op: bool = False) -> Any: ...
    def recv(self, buffer: Any, source: int) -> object: ...
    def barrier(self) -> object: ...
    def load(self, path: Path) -> str: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Syntony:
    """Our communicator with one algorithm: a builder's name, a loaded schedule's name, or `auto`."""

    communicator: Communicator
    algorithm: str = "auto"

    @property
    def label(self) -> str:
        return self.algorithm

    def prepare(self, test: Test) -> Call | None:
        comm, algorithm, root = self.communicator, self.algorithm, test.root
        view = (lambda memory: memory) if test.element.numpy_native else test.element.as_tensor
        send, recv = view(test.send), view(test.recv)
        op = "product" if test.operation == "prod" else test.operation or "sum"
        at_root = comm.rank == root
        named = {} if algorithm == "auto" else {"algorithm": algorithm}  # passed only if it is not the default
        match test.shape.name:
            case "all_reduce":
                return partial(comm.all_reduce, send, recv, op, **named)
            case "all_gather":
                return partial(comm.all_gather, send, recv, **named)
            case "reduce_scatter":
                return partial(comm.reduce_scatter, send, recv, op, **named)
            case "all_to_all":
                return partial(comm.all_to_all, send, recv, **named)
            case "broadcast":
                return partial(comm.broadcast, recv, root, **named) if test.in_place else None
            case "reduce":
                return partial(comm.reduce, send, recv if at_root else None, root, op, **named)
            case "gather":
                return partial(comm.gather, send, recv if at_root else None, root, **named)
            case "scatter":
                return partial(comm.scatter, send if at_root else None, recv, root, **named)
        return lambda: self._pass_on(send, recv)

    def _pass_on(self, send: Any, recv: Any) -> None:
        comm = self.communicator
        sent = comm.send(send, (comm.rank + 1) % comm.size, async_op=True)
        comm.recv(recv, (comm.rank - 1) % comm.size)
        sent.wait()

    def barrier(self) -> object:
        return self.communicator.barrier()

    def close(self) -> None:
        """Does nothing: all algorithms share the communicator, which its creator closes."""


class TorchGroup:
    """A torch process group on the same ranks, called as torch.distributed's Python wrappers call it."""

    _TYPES = frozenset({"int8", "uint8", "int32", "int64", "half", "bfloat16", "float", "double"})  # gloo's

    def __init__(self, exchange: Exchange, label: str, timeout: float) -> None:
        """`label`: "gloo", or "torch" for our own backend. Collective."""
        import torch.distributed

        self.label = label
        dist: Any = torch.distributed
        self._dist = dist
        self._store = open_store(exchange, label, timeout)
        limit = timedelta(seconds=timeout)
        if label == "gloo":
            self._group: Any = dist.ProcessGroupGloo(self._store, exchange.rank, exchange.size, limit)
        else:
            from syntony.collectives.torch_backend.backend import create_backend

            self._group = create_backend(
                SimpleNamespace(
                    store=self._store,
                    group_rank=exchange.rank,
                    group_size=exchange.size,
                    timeout=limit,
                    group_id=label,
                    global_ranks_in_group=[],
                )
            )

    def prepare(self, test: Test) -> Call | None:
        natural = test.shape.in_place == "same"  # torch's all_reduce, broadcast and reduce have one buffer
        if test.element.name not in self._TYPES or test.in_place != natural:
            return None
        if test.operation == "avg" and test.element.integer:
            return None
        dist, group, root = self._dist, self._group, test.root
        send, recv = test.element.as_tensor(test.send), test.element.as_tensor(test.recv)
        at_root = group.rank() == root
        match test.shape.name:
            case "all_reduce":
                options = self._options(dist.AllreduceOptions(), test)
                return lambda: _finish(group.allreduce([recv], options))
            case "all_gather":
                options = self._options(dist.distributed_c10d.AllgatherOptions(), test)
                return lambda: _finish(group._allgather_base(recv, send, options))
            case "reduce_scatter":
                options = self._options(dist.ReduceScatterOptions(), test)
                return lambda: _finish(group._reduce_scatter_base(recv, send, options))
            case "all_to_all":
                options = self._options(dist.AllToAllOptions(), test)
                return lambda: _finish(group.alltoall_base(recv, send, [], [], options))
            case "broadcast":
                options = self._options(dist.BroadcastOptions(), test)
                return lambda: _finish(group.broadcast([recv], options))
            case "reduce":
                options = self._options(dist.ReduceOptions(), test)
                return lambda: _finish(group.reduce([recv], options))
            case "gather":
                options = self._options(dist.GatherOptions(), test)
                outputs = [list(recv.chunk(group.size()))] if at_root else []
                return lambda: _finish(group.gather(outputs, [send], options))
            case "scatter":
                options = self._options(dist.ScatterOptions(), test)
                inputs = [list(send.chunk(group.size()))] if at_root else []
                return lambda: _finish(group.scatter([recv], inputs, options))
        return lambda: self._pass_on(send, recv)

    def all_gather(self, send: Any, recv: Any) -> None:
        """All tensors in rank order."""
        _finish(self._group._allgather_base(recv, send))

    def _options(self, options: Any, test: Test) -> Any:
        options.asyncOp = False
        names = {"sum": "SUM", "prod": "PRODUCT", "avg": "AVG"}
        if test.operation is not None:
            options.reduceOp = getattr(self._dist.ReduceOp, names.get(test.operation, test.operation.upper()))
        if test.shape.rooted:
            options.rootRank = test.root
        return options

    def _pass_on(self, send: Any, recv: Any) -> None:
        rank, size = self._group.rank(), self._group.size()
        sent = self._group.send([send], (rank + 1) % size, 0)
        _finish(self._group.recv([recv], (rank - 1) % size, 0))
        _finish(sent)

    def barrier(self) -> object:
        return self._group.barrier().wait()

    def close(self) -> None:
        del self._group, self._store


def _finish(work: Any) -> None:
    """Waits for an operation; a synchronous one may return no Work."""
    if work is not None:
        work.wait()
