"""What a process holds, so that a table can tell whether it becomes more."""

from __future__ import annotations

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
    """Resident memory of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024
