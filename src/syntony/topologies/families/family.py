"""Family: a named way to build topologies, as data from which the parser, the help and the documentation are made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from syntony.topologies.topology import Topology


@dataclass(frozen=True)
class Parameter:
    """One argument: `read` turns its text into the value (`base/quantity.py`); `meaning` is a phrase with units.

    `within`: the argument of the builder of which it is a field, a dataclass; empty if it is an argument of its own.
    """

    name: str
    read: Callable[[str], Any]
    meaning: str
    within: str = ""


@dataclass(frozen=True)
class Family:
    """`build` takes the parameters as keyword arguments; one without a default there must be given to `topology`.

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
        declared = self._declared()
        return {
            parameter.name: getattr(declared[parameter.within], parameter.name)
            if parameter.within
            else declared[parameter.name]
            for parameter in self.parameters
            if parameter.within or parameter.name in declared
        }

    def topology(self, values: Mapping[str, Any]) -> Topology:
        """Builds it from values by parameter name, and defaults for the others."""
        declared = self._declared()
        arguments: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.name not in values:
                continue
            value = values[parameter.name]
            if parameter.within:
                whole = arguments.get(parameter.within, declared[parameter.within])
                arguments[parameter.within] = replace(whole, **{parameter.name: value})
            else:
                arguments[parameter.name] = value
        return self.build(**arguments)

    def _declared(self) -> Mapping[str, Any]:
        """The builder's own defaults."""
        declared = inspect.signature(self.build).parameters
        return {
            name: argument.default
            for name, argument in declared.items()
            if argument.default is not inspect.Parameter.empty
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
