"""Family: a named way to build topologies, as data from which the parser, the help and the documentation are made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from syntony.topologies.topology import Topology


@dataclass(frozen=True)
class Parameter:
    """One argument: `read` turns its text into the value (`base/quantity.py`); `meaning` is a phrase with units."""

    name: str
    read: Callable[[str], Any]
    meaning: str


@dataclass(frozen=True)
class Family:
    """`build` takes the parameters as keyword arguments; a parameter without a default there must be given.

    Arguments without a key fill the parameters in order. `summary` is one line; `source` says where the shape and the
    default rates come from.
    """

    name: str
    build: Callable[..., Topology]
    parameters: tuple[Parameter, ...]
    summary: str
    source: str
    example: str

    def defaults(self) -> Mapping[str, Any]:
        """Default values by parameter name; required parameters are absent."""
        declared = inspect.signature(self.build).parameters
        return {
            parameter.name: declared[parameter.name].default
            for parameter in self.parameters
            if declared[parameter.name].default is not inspect.Parameter.empty
        }

    def signature(self) -> str:
        """The form of its names: `torus:SHAPE,bandwidth=1e9,alpha=1e-06`."""
        defaults = self.defaults()
        words = [
            f"{parameter.name}={written(defaults[parameter.name])}"
            if parameter.name in defaults
            else parameter.name.upper()
            for parameter in self.parameters
        ]
        return f"{self.name}:{','.join(words)}" if words else self.name


def written(value: object) -> str:
    """A value as it stands in a name: 25000000000 bytes/s is `25e9`."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return "x".join(written(part) for part in value)
    if isinstance(value, Fraction) and value.denominator == 1 and value >= 10**6:
        exponent = 9 if value >= 10**9 else 6
        mantissa = value / 10**exponent
        text = f"{float(mantissa):.12g}"
        return f"{text}e{exponent}" if Fraction(text) == mantissa else str(value)
    return str(value)
