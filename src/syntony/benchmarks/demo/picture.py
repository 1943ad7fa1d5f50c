"""Curves in one line of text."""

from __future__ import annotations

from collections.abc import Sequence

_LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """One character per value, from `low` (▁) to `high` (█)."""
    scale = (len(_LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(_LEVELS[round((min(max(value, low), high) - low) * scale)] for value in values)
