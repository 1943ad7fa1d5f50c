"""The names of topologies: `family:arguments,key=value` or `file:PATH`.

ring:8                      a positional argument fills the family's first parameter
torus:4x4x4,bandwidth=50e9  keyword arguments override the rest
dgx1                        every argument has a default
file:cluster.json           a file in any format of topologies/readers, or the root folder of a machine; everything
                            after the colon is the path, except `,without=`, `,slowed=` and `,group=` at its end

Any family with switches takes `aggregator=PROFILE`, which makes the switches add as the profile describes
(aggregator.py), and `aggregator=PROFILE@PATTERN` for the switches whose names match. `aggregator.KEY=VALUE` after it
changes a number of the profile:

    star:4,aggregator=switchml,aggregator.slots=64
    dgx-h100:4,aggregator=sharp@network

Any name, also that of a file, takes `without=` and `slowed=` for lost and slow parts (degraded.py):

    torus:8x8x8,without=0-1,without=rank5,slowed=8-16@50%

and `group=` for the ranks of a process group; the others then only forward (group.py):

    mesh:8x8,group=0-3+8-11
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from syntony.base import quantity
from syntony.base.quantity import count, rate, ratio
from syntony.base.wording import did_you_mean
from syntony.topologies.aggregator import PROFILES, Aggregator
from syntony.topologies.families import FAMILIES
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.degraded import degraded
from syntony.topologies.graph.group import group_view
from syntony.topologies.topology import Topology, TopologyError


def parse(name: str) -> Topology:
    """The topology called `name`. Raises `TopologyError` that says what is wrong with the name."""
    name = name.strip()
    if name in ("file", "file:"):
        raise TopologyError("file: needs a path, such as file:cluster.json")
    family, changes = _changes(name)
    topology = _intact(family)
    if not any(changes.values()):
        return topology
    damage = degraded(topology, changes["without"], changes["slowed"])
    if changes["group"]:
        members = [rank for text in changes["group"] for rank in _group(topology, text)]
        return group_view(damage.topology, [int(damage.node_at[rank]) for rank in members]).renamed(name)
    return damage.topology.renamed(name)


def _changes(name: str) -> tuple[str, dict[str, list[str]]]:
    """Splits the name into the intact topology's and the values of its `without=`, `slowed=` and `group=`."""
    arguments = name.split(",")
    found: dict[str, list[str]] = {"without": [], "slowed": [], "group": []}
    for argument in arguments:
        if _CHANGE.match(argument):
            key, _, text = argument.strip().partition("=")
            found[key].append(text)
    return ",".join(argument for argument in arguments if not _CHANGE.match(argument)), found


def _group(topology: Topology, text: str) -> Iterator[int]:
    """The ranks of `0-3+8`, as the intact topology numbers them."""
    for part in map(str.strip, text.split("+")):
        try:
            members = quantity.ranks(part)
        except ValueError as error:
            raise TopologyError(f"group={text}: {part!r} is not {error}") from None
        if members[-1] >= topology.ranks:
            raise TopologyError(
                f"group={text}: {topology.name} has no rank {members[-1]}; its ranks are 0..{topology.ranks - 1}"
            )
        yield from members


def _intact(name: str) -> Topology:
    """The topology of a name without damage."""
    if name.startswith("file:"):
        from syntony.topologies.readers import read  # not wanted by names

        return read(name.removeprefix("file:"))
    name = "".join(name.split())
    family_name, colon, text = name.partition(":")
    family = FAMILIES.get(family_name)
    if family is None:
        raise TopologyError(_unknown_family(name, family_name))
    arguments = text.split(",") if colon else []
    adding = [argument for argument in arguments if _KEY.match(argument)]
    topology = family.topology(_values(family, [argument for argument in arguments if not _KEY.match(argument)]))
    for aggregator, pattern in _aggregators(adding):
        topology = topology.with_aggregator(aggregator, pattern)
    return topology.renamed(name)


def _aggregators(arguments: Iterable[str]) -> list[tuple[Aggregator, str]]:
    """The aggregators of `aggregator=` and `aggregator.KEY=`, each with the pattern of its switches' names."""
    found: list[tuple[Aggregator, str]] = []
    for argument in arguments:
        key, _, text = argument.partition("=")
        if key == "aggregator":
            name, _, pattern = text.partition("@")
            if name not in PROFILES:
                raise TopologyError(
                    f"aggregator: unknown profile {name!r}{did_you_mean(name, PROFILES)}; "
                    f"known are {', '.join(PROFILES)}"
                )
            found.append((PROFILES[name].aggregator, pattern or "*"))
            continue
        field = key.removeprefix("aggregator.")
        if field not in _OVERRIDES:
            raise TopologyError(
                f"aggregator: it has no {field!r}{did_you_mean(field, _OVERRIDES)}; "
                f"what can be changed is {', '.join(_OVERRIDES)}"
            )
        if not found:
            raise TopologyError(f"{key} comes before any aggregator=PROFILE whose {field} it could change")
        try:
            found[-1] = (replace(found[-1][0], **{field: _OVERRIDES[field](text)}), found[-1][1])
        except ValueError as error:
            raise TopologyError(f"{key} is {text!r}: {error}") from None
    return found


def _number_formats(text: str) -> tuple[str, ...]:
    """Number formats joined by +: `float32+int32`."""
    return tuple(text.split("+"))


_CHANGE = re.compile(r"\s*(without|slowed|group)=")
_KEY = re.compile(r"aggregator(\.[^=]*)?=")
_OVERRIDES: dict[str, Callable[[str], Any]] = {
    "slots": count,
    "slot_bytes": count,
    "formats": _number_formats,
    "rate": rate,
    "tenants": count,
    "sharing": str,
    "hot": ratio,
}


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
                f"{family.name}: it has no parameter {key!r}{did_you_mean(key, parameters)}; "
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
    if Path(name).suffix in (".json", ".xml", ".txt") or Path(name).is_file():
        return f"unknown topology {name!r}; a topology file is named file:{name}"
    known = [*FAMILIES, "file"]
    guess = did_you_mean(family_name, known)
    return f"unknown topology {family_name!r}{guess}; known are {', '.join(known)}"
