"""What left by the network devices of this host, a network namespace of the lab."""

from __future__ import annotations

from pathlib import Path

_DEVICES = Path("/sys/class/net")


def sent() -> tuple[int, ...]:
    """Bytes since the devices exist, in the order of their names, loopback left out."""
    names = sorted(device.name for device in _DEVICES.iterdir() if device.name != "lo")
    return tuple(int((_DEVICES / name / "statistics/tx_bytes").read_text()) for name in names)
