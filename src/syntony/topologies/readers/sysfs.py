"""Tolerant readers of Linux's /sys and /proc: a missing or malformed file gives None or nothing, not an error."""

from __future__ import annotations

import re
from pathlib import Path

PCI_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"

_LONGEST_RANGE = 1 << 20


def read(path: Path) -> str | None:
    """The stripped text of a file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):
        return None


def whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,18}", text) else None


def entries(folder: Path, pattern: str) -> list[Path]:
    """The entries of `folder` whose whole name matches, in natural order; empty if there is no such folder."""
    try:
        found = [path for path in folder.iterdir() if re.fullmatch(pattern, path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: re.sub(r"[0-9]+", lambda digits: digits.group().zfill(20), path.name))


def pci_functions(root: Path) -> list[Path]:
    """The folders of all PCI functions of a machine, in the order of their addresses, which are hexadecimal."""
    found = entries(root / "sys/bus/pci/devices", PCI_ADDRESS)
    return sorted(found, key=lambda path: [int(part, 16) for part in re.split(r"[:.]", path.name)])


def field(text: str, key: str) -> str | None:
    """The value in a line `key : value`."""
    found = re.search(rf"^{re.escape(key)}\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else None


def kib(text: str | None) -> int | None:
    """`64 kB` in bytes."""
    found = re.fullmatch(r"([0-9]{1,18}) kB", text or "")
    return int(found.group(1)) * 1024 if found else None


def id_list(text: str | None) -> tuple[int, ...]:
    """The kernel's list format: `0-3,8` is 0, 1, 2, 3, 8."""
    ids: list[int] = []
    for first, last in re.findall(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", text or ""):
        if int(last or first) - int(first) < _LONGEST_RANGE:
            ids.extend(range(int(first), int(last or first) + 1))
    return tuple(ids)
