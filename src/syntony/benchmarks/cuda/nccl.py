"""NCCL as a peer: its C functions, in the same stream on the same memory.

The library is that of pip's nvidia-nccl-cu13 or -cu12 where one is installed, else the system's. Its ABI is plain C and
has been stable for years, so neither torch nor cupy is needed.

Several ranks on one GPU: NCCL refuses that unless NCCL_MULTI_RANK_GPU_ENABLE=1, which it has since 2.30 and calls
experimental. It is set here where ranks share a GPU, and said in the output.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Call, Test
from syntony.benchmarks.cuda.gpu import Gpu, GpuMemory, block_of
from syntony.collectives.bootstrap.launch import RankError

SHARED_GPU_SWITCH = "NCCL_MULTI_RANK_GPU_ENABLE"
SHARES_GPUS_SINCE = 23000
"""2.30.0, as ncclGetVersion says it."""

_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "half": 6, "float": 7, "double": 8, "bfloat16": 9, "f8e4m3": 10, "f8e5m2": 11,
}  # fmt: skip
"""ncclDataType_t."""
_OPERATIONS = {name: number for number, name in enumerate(("sum", "prod", "max", "min", "avg"))}
"""ncclRedOp_t."""


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


class Library:
    """libnccl: functions that raise RankError with NCCL's own words."""

    def __init__(self, path: str) -> None:
        """Raises UserError where it cannot be loaded."""
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise UserError(f"peer nccl cannot be loaded: {error}") from None
        library, size, pointer, number = self._library, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
        library.ncclGetErrorString.restype = ctypes.c_char_p
        library.ncclCommInitRank.argtypes = [pointer, number, _UniqueId, number]
        library.ncclAllReduce.argtypes = [pointer, pointer, size, number, number, pointer, pointer]
        library.ncclReduceScatter.argtypes = library.ncclAllReduce.argtypes
        library.ncclReduce.argtypes = [pointer, pointer, size, number, number, number, pointer, pointer]
        library.ncclBroadcast.argtypes = [pointer, pointer, size, number, number, pointer, pointer]
        library.ncclAllGather.argtypes = [pointer, pointer, size, number, pointer, pointer]
        library.ncclSend.argtypes = [pointer, size, number, number, pointer, pointer]
        library.ncclRecv.argtypes = library.ncclSend.argtypes
        library.ncclCommDestroy.argtypes = [pointer]

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"nccl{name}")(*arguments)
        if status != 0:
            raise RankError(f"nccl{name} failed: {self._library.ncclGetErrorString(status).decode()}")

    @property
    def version(self) -> int:
        """23007 is 2.30.7."""
        number = ctypes.c_int()
        self("GetVersion", ctypes.byref(number))
        return number.value


def find() -> str:
    """Where libnccl lies, or the name under which the system may have it."""
    for folder in _folders_of_pip():
        for path in sorted(folder.glob("libnccl.so*")):
            return str(path)
    return "libnccl.so.2"


def _folders_of_pip() -> Iterator[Path]:
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        yield Path(folder) / "lib"


def name_of(version: int) -> str:
    """2.30.7 for 23007."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


class Nccl:
    """A communicator of NCCL on the bench's ranks."""

    label = "nccl"

    def __init__(self, gpu: Gpu, memory: GpuMemory, path: str | None = None) -> None:
        """Collective. Raises UserError, at all ranks, where NCCL is missing or too old for ranks that share a GPU."""
        self._gpu, self._memory = gpu, memory
        shares = len(gpu.sharing) > 1
        if shares:
            os.environ.setdefault(SHARED_GPU_SWITCH, "1")  # NCCL reads it when it starts
        self._nccl = Library(path or find())
        self.version = self._nccl.version
        if shares and self.version < SHARES_GPUS_SINCE:
            raise UserError(
                f"peer nccl is {name_of(self.version)}, and ranks {gpu.sharing[0]} and {gpu.sharing[1]} share GPU "
                f"{gpu.number}: NCCL has that since 2.30 (pip install 'nvidia-nccl-cu13>=2.30')"
            )
        unique = _UniqueId()
        if gpu.exchange.rank == 0:
            self._nccl("GetUniqueId", ctypes.byref(unique))
        blob = gpu.exchange.all_gather("nccl", bytes(unique))[0]
        gpu.cuda.use(gpu.number)  # of this thread; NCCL joins with it
        self._comm = ctypes.c_void_p()
        self._nccl(
            "CommInitRank", ctypes.byref(self._comm), gpu.exchange.size, _UniqueId.from_buffer_copy(blob),
            gpu.exchange.rank,
        )  # fmt: skip

    @property
    def remark(self) -> str:
        """What readers of its figures must know."""
        shared = (
            f", several ranks on one GPU by its experimental switch {SHARED_GPU_SWITCH}"
            if len(self._gpu.sharing) > 1
            else ""
        )
        return f"nccl is {name_of(self.version)}{shared}"

    def prepare(self, test: Test) -> Call | None:
        if test.element.name not in _TYPES or (test.operation or "sum") not in _OPERATIONS:
            return None
        nccl, comm, stream = self._nccl, self._comm, self._gpu.stream.handle
        dtype, op = _TYPES[test.element.name], _OPERATIONS[test.operation or "sum"]
        send, recv = self._memory.addresses(test)
        ranks, root = self._memory.ranks, test.root
        count = block_of(test, ranks)
        match test.shape.name:
            case "all_reduce":
                return lambda: nccl("AllReduce", send, recv, count, dtype, op, comm, stream)
            case "all_gather":
                return lambda: nccl("AllGather", send, recv, count, dtype, comm, stream)
            case "reduce_scatter":
                return lambda: nccl("ReduceScatter", send, recv, count, dtype, op, comm, stream)
            case "broadcast":
                return lambda: nccl("Broadcast", send, recv, count, dtype, root, comm, stream)
            case "reduce":
                return lambda: nccl("Reduce", send, recv, count, dtype, op, root, comm, stream)
        step = count * test.element.item_bytes
        return self._grouped(list(self._messages(test, send, recv, step)), count, dtype)

    def _messages(self, test: Test, send: int, recv: int, step: int) -> Iterator[tuple[str, int, int]]:
        """Send or Recv, address and peer, of what NCCL builds from point to point: all_to_all, gather, scatter."""
        at_root = self._memory.rank == test.root
        everybody = range(self._memory.ranks)
        match test.shape.name:
            case "all_to_all":
                yield from (("Send", send + peer * step, peer) for peer in everybody)
                yield from (("Recv", recv + peer * step, peer) for peer in everybody)
            case "gather":
                yield ("Send", send, test.root)
                yield from (("Recv", recv + peer * step, peer) for peer in everybody if at_root)
            case "scatter":
                yield from (("Send", send + peer * step, peer) for peer in everybody if at_root)
                yield ("Recv", recv, test.root)

    def _grouped(self, messages: list[tuple[str, int, int]], count: int, dtype: int) -> Callable[[], None]:
        nccl, comm, stream = self._nccl, self._comm, self._gpu.stream.handle

        def call() -> None:
            nccl("GroupStart")
            for name, address, peer in messages:
                nccl(name, address, count, dtype, peer, comm, stream)
            nccl("GroupEnd")

        return call

    def barrier(self) -> object:
        self._gpu.meet()
        return None

    def close(self) -> None:
        self._nccl("CommDestroy", self._comm)
