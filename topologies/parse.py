"""The names of topologies: `family:arguments,key=value` or `file:PATH`.

ring:8                      a positional argument fills the family's first parameter
torus:4x4x4,bandwidth=50e9  keyword arguments override the rest
dgx1                        every argument has a default
file:cluster.json           a topology file (FORMAT.md); everything after the colon is the path
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from topologies.families import FAMILIES
from topologies.family import Family, Parameter
from topologies.file_format import read
from topologies.topology import Topology, TopologyError


def parse(name: str) -> Topology:
    """The topology that `name` names; raises `TopologyError` with one sentence about what is wrong with it."""
    name = name.strip()
    if name in ("file", "file:"):
        raise TopologyError("file: needs a path, such as file:cluster.json")
    if name.startswith("file:"):
        return read(name.removeprefix("file:"))
    name = "".join(name.split())
    family_name, colon, arguments = name.partition(":")
    family = FAMILIES.get(family_name)
    if family is None:
        raise TopologyError(_unknown_family(name, family_name))
    values = _values(family, arguments.split(",") if colon else [])
    return family.build(**values).renamed(name)


def _values(family: Family, arguments: Iterable[str]) -> dict[str, Any]:
    parameters = {parameter.name: parameter for parameter in family.parameters}
    values: dict[str, Any] = {}
    for position, argument in enumerate(arguments):
        key, equals, text = argument.partition("=")
        if not equals:
            if position >= len(family.parameters):
                raise TopologyError(
                    f"{family.name}: argument {position + 1}, {argument!r}, is one too many; "
                    f"the family is written {family.signature()}"
                )
            key, text = family.parameters[position].name, argument
        if key not in parameters:
            raise TopologyError(
                f"{family.name}: it has no parameter {key!r}{_did_you_mean(key, parameters)}; "
                f"the family is written {family.signature()}"
            )
        if key in values:
            raise TopologyError(f"{family.name}: {key} is given twice")
        values[key] = _read(family, parameters[key], text)
    for parameter in family.parameters:
        if parameter.name not in values and parameter.name not in family.defaults():
            raise TopologyError(
                f"{family.name}: {parameter.name} ({parameter.meaning}) is missing; an example is {family.example}"
            )
    return values


def _read(family: Family, parameter: Parameter, text: str) -> Any:
    try:
        return parameter.read(text)
    except ValueError as error:
        raise TopologyError(f"{family.name}: {parameter.name} is {text!r}; it must be {error}") from None


def _unknown_family(name: str, family_name: str) -> str:
    if Path(name).suffix == ".json" or Path(name).is_file():
        return f"unknown topology {name!r}; a topology file is named file:{name}"
    known = [*FAMILIES, "file"]
    guess = _did_you_mean(family_name, known)
    return f"unknown topology {family_name!r}{guess}; known are {', '.join(known)}"


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    matches = get_close_matches(word.lower(), list(known), n=1)
    return f" (did you mean {matches[0]}?)" if matches else ""
