"""Knobs of policies, and the values that a search tries."""

from __future__ import annotations

from typing import Any, NamedTuple

from syntony.base.command import UserError
from syntony.base.quantity import size

K, M = 1 << 10, 1 << 20
SIZES = (256 * K, 512 * K, M, 2 * M, 4 * M, 8 * M, 16 * M)
DEGREES = (1, 2, 4, 8)


class Knob(NamedTuple):
    """A knob: its default, and the values that a search tries."""

    default: Any
    grid: tuple[Any, ...]

    def read(self, value: Any, whose: str) -> Any:
        """Parses text to the type of the default (sizes: 256K, 1M). Raises UserError that begins with `whose`."""
        if isinstance(value, str) and not isinstance(self.default, str):
            try:
                value = size(value) if isinstance(self.default, int) else float(value)
            except ValueError:
                raise UserError(f"{whose} is {value!r}; it must be a number such as {self.default}") from None
        if isinstance(value, (int, float)) and value < 0:
            raise UserError(f"{whose} is {value}; it must not be negative")
        return value
