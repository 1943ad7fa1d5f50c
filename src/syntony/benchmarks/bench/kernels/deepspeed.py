"""DeepSpeed's shared-memory kernel for inference on CPUs: sums in place.

DeepSpeed ships its sources and compiles them where they are used, with flags for that processor. Importing DeepSpeed
itself would need a dozen packages that the kernel does not; so only its sources are installed, in a separate folder,
and torch compiles them there as DeepSpeed's ShareMemCommBuilder does:

    python -m pip install --no-deps --no-build-isolation --target VENV/peers/deepspeed deepspeed

The kernel waits by spinning without a limit, even for a dead rank; the bench's own timeout ends that.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from syntony import _core
from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Call, Test
from syntony.benchmarks.bench.kernels import folder
from syntony.collectives.bootstrap.launch import Exchange

NAME = "deepspeed"

_TYPES = frozenset({"half", "bfloat16", "float"})
_EXTENSION = "deepspeed_shm_comm"
_VECTORS = 2
"""What DeepSpeed calls AVX-512: below it, its sums of half and bfloat16 end the process."""


def require() -> None:
    """Compiles the kernel if that is still to be done. Raises UserError that says what is missing."""
    folder.require(NAME, _sources() / "shm.cpp", "--no-build-isolation deepspeed")
    if not (_built() / f"{_EXTENSION}.so").exists():
        if shutil.which("ninja") is None:
            raise UserError(
                f"peer {NAME} is compiled by torch, which needs ninja: {sys.executable} -m pip install ninja"
            )
        print(f"peer {NAME}: compiling its kernel, once", file=sys.stderr)
        _extension()


def _sources() -> Path:
    return folder.folder(NAME) / "deepspeed" / "ops" / "csrc" / "cpu" / "comm"


def _built() -> Path:
    return folder.folder(NAME) / "build"


def _extension() -> Any:
    """The module, compiled if it is not yet. Its sums are operations of torch's."""
    from torch.utils import cpp_extension

    _built().mkdir(exist_ok=True)
    try:
        return cpp_extension.load(
            name=_EXTENSION,
            sources=[str(_sources() / name) for name in ("shm_interface.cpp", "shm.cpp")],
            extra_cflags=["-O2", "-fopenmp", "-march=native"],
            build_directory=str(_built()),
        )
    except RuntimeError as error:
        raise UserError(f"peer {NAME} cannot be compiled: {str(error).splitlines()[0]}") from None


class DeepSpeedKernels:
    """A group of ranks on one host. Collective."""

    label = NAME

    def __init__(self, exchange: Exchange) -> None:
        import torch

        kernels = _extension()
        if kernels.vector_kernel_level() < _VECTORS:
            raise UserError(f"peer {NAME}: its sums of bfloat16 need a processor with AVX-512")
        self._exchange, self._rounds = exchange, 0
        # Not torch.set_num_threads: a wheel of torch has an OpenMP of its own.
        ctypes.CDLL("libgomp.so.1").omp_set_num_threads(max(1, _core.usable_cpus() // exchange.size))
        name = exchange.all_gather(f"{NAME} name", f"syntony-{os.getpid()}".encode())[0].decode()
        # Its own names for "all ranks are on this host" and for what is in the names of its segments.
        os.environ.update(LOCAL_SIZE=str(exchange.size), MASTER_ADDR=name, MASTER_PORT="0")
        kernels.initialize(exchange.size, exchange.rank)
        self._sum: Any = torch.ops.deepspeed.inference_all_reduce_
        self.barrier()
        for segment in Path("/dev/shm").glob(f"*{name}_0_{exchange.rank}"):  # mapped by all; it would outlive them
            segment.unlink()

    def prepare(self, test: Test) -> Call | None:
        if test.element.name not in _TYPES or test.shape.name != "all_reduce":
            return None
        if not test.in_place or test.operation != "sum":
            return None
        recv = test.element.as_tensor(test.recv)
        kernel = self._sum
        return lambda: kernel(recv)

    def barrier(self) -> object:
        """The kernels have none."""
        self._rounds += 1
        return self._exchange.all_gather(f"{NAME} {self._rounds}", b"")

    def close(self) -> None:
        """The group ends with its process."""
