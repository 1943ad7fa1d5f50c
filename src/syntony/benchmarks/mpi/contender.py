"""An MPI library through mpi4py's buffer methods, in a process that its mpiexec has started."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from syntony.benchmarks.bench.contenders import Call, Test

_TYPES = MappingProxyType(
    {
        "int8": "INT8_T",
        "uint8": "UINT8_T",
        "int16": "INT16_T",
        "uint16": "UINT16_T",
        "int32": "INT32_T",
        "uint32": "UINT32_T",
        "int64": "INT64_T",
        "uint64": "UINT64_T",
        "float": "FLOAT",
        "double": "DOUBLE",
    }
)
"""Half and narrower types are in no MPI of these."""


class Mpi:
    """`world` is MPI.COMM_WORLD of the module `mpi`."""

    def __init__(self, mpi: Any, label: str) -> None:
        self._mpi = mpi
        self._world = mpi.COMM_WORLD
        self.label = label

    def prepare(self, test: Test) -> Call | None:
        mpi, world, root = self._mpi, self._world, test.root
        if test.element.name not in _TYPES or test.operation == "avg":
            return None
        kind = getattr(mpi, _TYPES[test.element.name])
        op = None if test.operation is None else getattr(mpi, test.operation.upper())
        at_root = world.Get_rank() == root
        send: Any = [test.send, test.send.size, kind]
        recv: Any = [test.recv, test.recv.size, kind]
        source = mpi.IN_PLACE if test.in_place else send
        match test.shape.name:
            case "all_reduce":
                return lambda: world.Allreduce(source, recv, op)
            case "all_gather":
                return lambda: world.Allgather(source, [test.recv, kind])
            case "reduce_scatter" if not test.in_place:  # in place, MPI puts the result elsewhere
                return lambda: world.Reduce_scatter_block([test.send, kind], [test.recv, kind], op)
            case "all_to_all":
                return lambda: world.Alltoall([test.send, kind], [test.recv, kind])
            case "broadcast":
                return (lambda: world.Bcast(recv, root)) if test.in_place else None
            case "reduce":
                given = source if at_root else send
                return lambda: world.Reduce(given, recv if at_root else None, op, root)
            case "gather":
                given = source if at_root else send
                return lambda: world.Gather(given, [test.recv, kind] if at_root else None, root)
            case "scatter":
                taken = mpi.IN_PLACE if at_root and test.in_place else recv
                return lambda: world.Scatter([test.send, kind] if at_root else None, taken, root)
            case "sendrecv":
                after, before = (world.Get_rank() + 1) % world.Get_size(), (world.Get_rank() - 1) % world.Get_size()
                return lambda: world.Sendrecv(send, after, 0, recv, before, 0)
        return None

    def barrier(self) -> object:
        return self._world.Barrier()

    def close(self) -> None:
        """MPI ends with the process."""
