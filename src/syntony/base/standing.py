"""Standing: how much of a published system is implemented under its name here."""

from __future__ import annotations

from enum import StrEnum


class Standing(StrEnum):
    """`W`: the whole design; `S`: the whole, but only simulated; `P`: a part of it."""

    WHOLE = "W"
    SIMULATED = "S"
    PARTIAL = "P"


def standing_of(missing: str, simulated: str) -> Standing:
    """The standing of a row that says what it does not implement, and why it is only simulated; "": nothing."""
    return Standing.PARTIAL if missing else Standing.SIMULATED if simulated else Standing.WHOLE
