"""What should move, and when: collectives, schedules, bounds, engines, checker, simulator, formats.

`synth.load` reads, proves and lowers a schedule or program file (synth/loading.py); it is looked up when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth.loading import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from synth.loading import load

        return load
    raise AttributeError(f"module 'synth' has no attribute '{name}'")
