"""What should move, and when: collectives, schedules, bounds, engines, checker, simulator, formats.

`syntony.synth.load` reads, proves and lowers a schedule or program file (formats/loading.py); it is looked up when
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syntony.synth.formats.loading import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from syntony.synth.formats.loading import load

        return load
    raise AttributeError(f"module 'syntony.synth' has no attribute '{name}'")
