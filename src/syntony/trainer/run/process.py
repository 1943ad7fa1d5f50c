"""What a training process chooses for itself, before it computes."""

from __future__ import annotations

import ctypes
import os

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_NEVER = (1 << 31) - 1


def be_reproducible(threads: int) -> None:
    """The same operands give the same bits, wherever they lie in memory; with so many threads for torch.

    MKL may choose another kernel for operands that are aligned otherwise (on AMD's processors it does, for few rows),
    and a tensor's place depends on the layout. Its conditional numerical reproducibility ends that, at no measurable
    cost; MKL only hears it before it multiplies for the first time.
    """
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    torch.set_num_threads(threads)


def keep_freed_memory() -> None:
    """Memory that a step has freed stays with the process, since the next step asks for as much.

    By default glibc gives the top of its heap back whenever a backward has freed a layer's activations, and the kernel
    clears the same pages again in the next forward: thousands of page faults a step, a few percent of its time. In
    return the process holds between two steps what it holds at their peak. Does nothing where the C library has no such
    choice.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_TRIM_THRESHOLD, _NEVER)
        choose(_MMAP_THRESHOLD, 1 << 30)
