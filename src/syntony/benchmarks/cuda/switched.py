"""NVLink switches as a contender: `nvls` (csrc/cuda/switches/nvls.hpp): all_reduce, all_gather, reduce_scatter."""

from __future__ import annotations

import json
from typing import Any

from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Call, Test
from syntony.benchmarks.cuda.executed import OPERATORS, waited_in_vain
from syntony.benchmarks.cuda.gpu import Gpu, GpuMemory, block_of


class Switched:
    """One rank's side of a group behind the same switches."""

    label = "nvls"

    def __init__(self, gpu: Gpu, memory: GpuMemory, timeout: float) -> None:
        """Collective. Raises UserError, at all ranks, where the ranks' GPUs share no switch or are shared."""
        self._gpu, self._memory = gpu, memory
        _check_gpus(gpu)
        cuda, ranks = gpu.cuda, gpu.exchange.size
        self._shape = cuda.SwitchedShape(ranks)
        made = cuda.Multicast(gpu.number, ranks, self._shape.bytes) if gpu.exchange.rank == 0 else None
        blob = bytes.fromhex(gpu.gather("" if made is None else made.exported().hex())[0])
        self._multicast = made or cuda.Multicast(gpu.number, ranks, self._shape.bytes, blob)
        self._multicast.join()
        gpu.meet()
        self._multicast.bind()
        gpu.meet()
        self._group: Any = cuda.SwitchedGroup(self._multicast, gpu.exchange.rank, self._shape)
        self._group.set_timeout(timeout)
        gpu.checks.append(self._check)

    def prepare(self, test: Test) -> Call | None:
        if test.operation == "avg":
            return None  # no switch divides
        collective, dtype = test.shape.name, test.element.torch
        op = OPERATORS.get(test.operation, test.operation)
        self._gpu.cuda.check_switched(collective, dtype, op, self._shape)
        send, recv = self._memory.addresses(test)
        elements, stream = block_of(test, self._memory.ranks), self._gpu.stream.handle
        return lambda: self._group.launch(collective, dtype, op, send, recv, elements, stream)

    def barrier(self) -> object:
        self._gpu.meet()
        return None

    def close(self) -> None:
        """It goes with its GPU."""

    def _check(self) -> None:
        waited_in_vain(self._gpu.exchange.rank, self._group.trouble())


def _check_gpus(gpu: Gpu) -> None:
    told = gpu.gather([gpu.number, gpu.facts["name"], gpu.facts["multicast"], list(gpu.sharing)])
    for number, name, multicast, sharing in told:
        if len(sharing) > 1:
            raise UserError(
                f"nvls needs a GPU for each rank: ranks {json.dumps(sharing)[1:-1]} share GPU {number}, and a switch "
                "has nothing to do within one"
            )
        if not multicast:
            raise UserError(
                f"nvls needs GPUs that NVLink switches connect, Hopper or later: GPU {number} ({name}) cannot join a "
                "multicast object"
            )
