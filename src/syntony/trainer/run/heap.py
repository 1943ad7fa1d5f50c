"""Memory that a step has freed stays with the process, since the next step asks for as much.

By default glibc gives the top of its heap back whenever a backward has freed a layer's activations, and the kernel
clears the same pages again in the next forward: thousands of page faults a step, a few percent of its time. In return
the process holds between two steps what it holds at their peak.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_NEVER = (1 << 31) - 1


def keep_freed_memory() -> None:
    """Of this process. Does nothing where the C library has no such choice."""
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_TRIM_THRESHOLD, _NEVER)
        choose(_MMAP_THRESHOLD, 1 << 30)
