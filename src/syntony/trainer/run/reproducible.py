"""The same operands give the same bits, wherever they lie in memory.

MKL may choose another kernel for operands that are aligned otherwise (on AMD's processors it does, for few rows), and a
tensor's place depends on the layout. Its conditional numerical reproducibility ends that, at no measurable cost.
"""

from __future__ import annotations

import os

import torch


def be_reproducible(threads: int) -> None:
    """Of this process, with so many threads for torch. MKL only hears it before it multiplies for the first time."""
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    torch.set_num_threads(threads)
