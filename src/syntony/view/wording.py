"""Numbers as displayed on pages."""

from __future__ import annotations


def size_name(size: float) -> str:
    """Bytes for people, in powers of 1024: `64 MiB`."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size:.4g} bytes"
