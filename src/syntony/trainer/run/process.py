"""Process-wide settings of a training process, made before it computes."""

from __future__ import annotations

import ctypes
import os

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_NEVER = (1 << 31) - 1


def be_reproducible(threads: int) -> None:
    """Makes the same operands give the same bits wherever they are in memory; uses `threads` threads for torch.

    MKL may choose another kernel for operands with another alignment (on AMD's processors it does, for few rows), and a
    tensor's address depends on the layout. Its conditional numerical reproducibility mode prevents that at no
    measurable cost, but must be set before MKL's first multiplication.
    """
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    torch.set_num_threads(threads)


def keep_freed_memory() -> None:
    """Keeps memory freed by a step in the process, since the next step needs as much.

    By default glibc returns the top of its heap whenever a backward has freed a layer's activations, and the kernel
    clears the same pages again in the next forward: thousands of page faults a step, a few percent of its time. In
    return the process holds its peak memory between two steps. Does nothing if the C library has no such setting.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_TRIM_THRESHOLD, _NEVER)
        choose(_MMAP_THRESHOLD, 1 << 30)
