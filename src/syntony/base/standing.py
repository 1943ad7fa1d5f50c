"""Standing: how much of a published system stands behind its name here."""

from __future__ import annotations

from enum import StrEnum


class Standing(StrEnum):
    """`W`: the whole idea; `S`: whole, simulated only; `P`: a part of it."""

    WHOLE = "W"
    SIMULATED = "S"
    PARTIAL = "P"


def standing_of(missing: str, simulated: str) -> Standing:
    """Of a row that says what of the idea it does not do, and why it can only be simulated; "": nothing."""
    return Standing.PARTIAL if missing else Standing.SIMULATED if simulated else Standing.WHOLE
