"""What a process holds, so that a table can tell whether it becomes more."""

from __future__ import annotations

import ctypes
from pathlib import Path


def descriptors() -> list[str]:
    """What each open descriptor of this process leads to: "socket:[12345]", "/memfd:.. (deleted)", .."""
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            targets.append(str(descriptor.readlink()))
        except OSError:
            continue  # the listing's own
    return targets


def resident_bytes() -> int:
    """Resident memory of this process, without what the C library keeps for later: threads that allocate by turns leave
    holes, some of them for minutes, which is no leak."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
