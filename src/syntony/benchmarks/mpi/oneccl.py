"""Intel's oneCCL, in a process that Intel MPI's mpiexec has started.

It has a C++ interface alone, so oneccl.cpp is compiled against the installed headers, once.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

from syntony.base.command import UserError
from syntony.benchmarks.bench.contenders import Call, Test

NAME = "oneccl"

_TYPES = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16",
)  # fmt: skip
_OPS = (None, "prod", "min", "max")
"""By oneCCL's numbers; 0 is the sum, and what moves without one."""

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Those of oneCCL's that take part."""

_ROOM = 4096  # bytes, for an address


def compiled_in(folder: Path) -> Path:
    """The shared library of oneccl.cpp in `folder`, where oneCCL is installed. Raises UserError where it cannot be."""
    library = folder / "lib" / "libsyntony_oneccl.so"
    source = Path(__file__).with_suffix(".cpp")
    if library.exists() and library.stat().st_mtime >= source.stat().st_mtime:
        return library
    compiler = shutil.which("c++")
    if compiler is None:
        raise UserError(f"peer {NAME} is compiled by a C++ compiler, and there is none (c++)")
    flags = ("-std=c++17", "-O2", "-shared", "-fPIC", f"-I{folder / 'include'}", f"-L{folder / 'lib'}")
    command = (compiler, *flags, "-o", str(library), str(source), "-lccl")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"peer {NAME} cannot be compiled: {(done.stderr.splitlines() or [''])[0]}")
    return library


class OneCcl:
    """`world` is MPI.COMM_WORLD; oneCCL sends through the same MPI. Collective."""

    label = NAME

    def __init__(self, world: Any, library: Path) -> None:
        self._functions, self._ranks = ctypes.CDLL(str(library)), world.Get_size()
        address = ctypes.create_string_buffer(_ROOM)
        if world.Get_rank() == 0:
            self._call("address", address, ctypes.c_size_t(_ROOM))
        world.Bcast(address, 0)
        self._call("join", world.Get_size(), world.Get_rank(), address)

    def prepare(self, test: Test) -> Call | None:
        operation = None if test.operation == "sum" else test.operation
        if test.shape.name not in COLLECTIVES or test.element.name not in _TYPES or operation not in _OPS:
            return None
        if test.in_place and test.shape.name != "all_reduce":
            return None
        parts = self._ranks if test.shape.name in ("reduce_scatter", "all_to_all") else 1
        function = self._function(test.shape.name)
        arguments = (
            ctypes.c_void_p((test.recv if test.in_place else test.send).ctypes.data),
            ctypes.c_void_p(test.recv.ctypes.data),
            ctypes.c_size_t(test.send.size // parts),
            _TYPES.index(test.element.name),
            _OPS.index(operation),
        )
        return lambda: _check(function(*arguments))

    def barrier(self) -> object:
        self._call("barrier")
        return None

    def close(self) -> None:
        """oneCCL ends with the process."""

    def _function(self, name: str) -> Any:
        function = getattr(self._functions, f"oneccl_{name}")
        function.restype = ctypes.c_char_p
        return function

    def _call(self, name: str, *arguments: Any) -> None:
        _check(self._function(name)(*arguments))


def _check(trouble: bytes | None) -> None:
    if trouble is not None:
        raise RuntimeError(f"oneCCL: {trouble.decode(errors='replace')}")
