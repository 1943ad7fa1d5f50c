"""A Plan: the order of Ops on every device's lanes, and the bytes in flight. It is simulated and run as it is.

It is text (JSON, an Op per line), which people can read and ranks can compare: `Plan.hash` is compared before step 0,
and a rank with another plan is named.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from syntony.base.command import UserError
from syntony.base.files.strict_json import FileError, parse, shown
from syntony.base.files.text_file import read_text
from syntony.base.files.whole_file import write_text
from syntony.base.notebook import html_of
from syntony.overlap.step.demand import Demand, Visits
from syntony.overlap.step.graph import CommSpec, Graph, LayerSpec
from syntony.overlap.step.layout import Clip as Clip
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import Kind, Op, Piece
from syntony.overlap.step.op_key import OpKey

Lane = tuple[int, str]  # device, and its lane's name

FORMAT, VERSION = "syntony-plan", 1


@dataclass(frozen=True)
class Plan:
    """One step with all decisions made.

    policy      its name, with the knobs it was made with
    graph       the step after the policy's passes
    orders      per device and queue the keys of its Ops, first to last; every Op is in exactly one
    windows     bytes that may be in flight on a lane; lanes that are missing here have no limit
    priorities  of lanes that share a link: lower goes first; lanes that are missing here have 0
    clip        how gradients are clipped
    simulated   why it can only be simulated, with a triggered graph; "": it runs
    """

    policy: str
    graph: Graph
    orders: Mapping[Lane, tuple[OpKey, ...]]
    windows: Mapping[str, int] = field(default_factory=dict)
    knobs: Mapping[str, object] = field(default_factory=dict)
    clip: Clip = Clip.OFF
    priorities: Mapping[str, int] = field(default_factory=dict)
    simulated: str = ""

    @cached_property
    def parts(self) -> Mapping[OpKey, tuple[OpKey, ...]]:
        """By Op of the recorded step: the planned Ops that represent it, in the order of their lane."""
        found: dict[OpKey, list[OpKey]] = {}
        for order in self.orders.values():
            for key in order:
                for source in self.graph[key].sources:
                    found.setdefault(source, []).append(key)
        return {source: tuple(keys) for source, keys in found.items()}

    def check(self) -> None:
        """Raises UserError for an invalid graph, or unless the orders contain each of its Ops once, in its own lane.

        A simulation shows whether lanes wait for each other forever.
        """
        self.graph.check()
        seen: set[OpKey] = set()
        for (device, lane), keys in self.orders.items():
            for key in keys:
                where = f"the order of lane {lane!r} of device {device}"
                op = self.graph.by_key.get(key)
                if op is None:
                    raise UserError(f"{where} has {key!r}, which the graph does not have")
                if (op.device, op.lane) != (device, lane):
                    raise UserError(f"{where} has {key!r}, which is of lane {op.lane!r} of device {op.device}")
                if key in seen:
                    raise UserError(f"{where} has {key!r} twice")
                seen.add(key)
        if len(seen) < len(self.graph):
            missing = next(op for op in self.graph if op.key not in seen)
            raise UserError(f"no order has {missing.key!r} (lane {missing.lane!r} of device {missing.device})")

    # ---- text -------------------------------------------------------------------------------------------------------

    @cached_property
    def text(self) -> str:
        """The plan as canonical JSON: equal plans have equal texts."""
        graph, names = self.graph, _Names()
        head = {
            "policy": self.policy,
            "knobs": dict(self.knobs),
            "clip": self.clip,
            "simulated": self.simulated,
            "windows": dict(self.windows),
            "priorities": dict(self.priorities),
            "groups": dict(graph.groups),
            "layout": None if graph.layout is None else _shown(graph.layout, names),
        }
        lanes = sorted(self.orders)
        return "".join(
            [
                f'{{"format": "{FORMAT}", "version": {VERSION},\n',
                *(f"{_dump(key)}: {_dump(value)},\n" for key, value in head.items()),
                _rows("layers", (_shown(layer, names) for layer in graph.layers)),
                ",\n",
                _rows("ops", (_shown(op, names) for op in graph)),
                ",\n",
                _rows(
                    "orders",
                    (
                        {"device": key[0], "lane": key[1], "ops": [names[op] for op in self.orders[key]]}
                        for key in lanes
                    ),
                ),
                "}\n",
            ]
        )

    @cached_property
    def hash(self) -> str:
        """sha256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def _repr_html_(self) -> str:
        return html_of(self)

    def write(self, path: str | Path) -> None:
        """Writes the text atomically. Raises UserError."""
        write_text(path, self.text)

    @staticmethod
    def read(path: str | Path) -> Plan:
        """Reads a plan file. Raises UserError naming the line or field that is invalid."""
        return Plan.from_text(read_text(path), str(path))

    @staticmethod
    def from_text(text: str, where: str = "plan") -> Plan:
        """The plan with this text, checked. UserErrors begin with `where`."""
        data = parse(text, where, "plan")
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise FileError(f'{where}: not a plan: "format" must be "{FORMAT}"')
        if data.get("version") != VERSION:
            raise FileError(f"{where}: version {shown(data.get('version'))} of a plan; this reads version {VERSION}")
        for key in (*_FIELDS, *data):
            if key not in data or key not in (*_FIELDS, "format", "version"):
                problem = "is missing" if key not in data else "is not a field of a plan"
                raise FileError(f'{where}: "{key}" {problem}')
        keys = _Keys()
        found = {name: _typed(kind, data[name], where, name, keys) for name, kind in _FIELDS.items()}
        ops, layers, layout = (found.pop(name) for name in ("ops", "layers", "layout"))
        graph = Graph(ops, layers, layout, triggered=bool(found["simulated"]))
        groups = found.pop("groups")
        if groups != graph.groups:
            raise FileError(f'{where}: "groups" is {shown(groups)}; by the layout it is {shown(dict(graph.groups))}')
        orders = {(order.device, order.lane): order.ops for order in found.pop("orders")}
        plan = Plan(graph=graph, orders=orders, **found)
        try:
            plan.check()
        except UserError as error:
            raise FileError(f"{where}: {error}") from None
        return plan


@dataclass(frozen=True)
class _Order:
    device: int
    lane: str
    ops: tuple[OpKey, ...]


_arguments = cache(get_args)
_OBJECTS = (Op, LayerSpec, CommSpec, Piece, Layout, Demand, Visits, _Order)
_FIELDS: Mapping[str, Any] = {
    "policy": str,
    "knobs": dict,
    "clip": Clip,
    "simulated": str,
    "windows": dict[str, int],
    "priorities": dict[str, int],
    "groups": dict[str, int],
    "layout": Layout | None,
    "layers": tuple[LayerSpec, ...],
    "ops": tuple[Op, ...],
    "orders": tuple[_Order, ...],
}


_dump = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False).encode


def _rows(key: str, rows: Iterator[object]) -> str:
    return f'"{key}": [\n' + ",\n".join(map(_dump, rows)) + "]"


@cache
def _fields(kind: Any) -> Mapping[str, tuple[str, Any, object]]:
    """By name in the file: attribute, type and default of each field of a dataclass, or of Op."""
    defaults = Op._field_defaults if kind is Op else {one.name: one.default for one in fields(kind)}
    return {
        "name" if type_ is OpKey else attribute: (attribute, type_, defaults.get(attribute))
        for attribute, type_ in get_type_hints(kind).items()
    }


class _Names(dict[OpKey, str]):
    """Keys as text, each converted once."""

    def __missing__(self, key: OpKey) -> str:
        return self.setdefault(key, str(key))


class _Keys(dict[str, OpKey]):
    """Text as keys, each converted once."""

    def __missing__(self, name: str) -> OpKey:
        return self.setdefault(name, OpKey.parse(name))


def _shown(thing: Any, names: _Names) -> dict[str, object]:
    """The fields that differ from their defaults."""
    shown: dict[str, object] = {}
    for name, (attribute, _, default) in _fields(thing.__class__).items():
        value = getattr(thing, attribute)
        if value != default:
            if value.__class__ is not tuple:
                shown[name] = _described(value, names)
            elif value and value[0].__class__ is OpKey:
                shown[name] = [names[key] for key in value]
            else:
                shown[name] = [_described(each, names) for each in value]
    return shown


def _described(value: object, names: _Names) -> object:
    if isinstance(value, OpKey):
        return names[value]
    return _shown(value, names) if isinstance(value, (Piece, CommSpec, LayerSpec, Demand, Visits)) else value


def _typed(kind: Any, value: object, where: str, name: str, keys: _Keys) -> Any:
    """The value of a field of this type."""
    if kind is OpKey and isinstance(value, str):
        return keys[value]
    kind = str if get_origin(kind) is Literal else kind  # the user of the value checks it
    parts = _arguments(kind)
    if not parts:
        return _read(kind, value, f"{where}: {name}", keys) if kind in _OBJECTS else _value(name, kind, value, where)
    if NoneType in parts:
        return None if value is None else _typed(parts[0], value, where, name, keys)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise FileError(f"{where}: {name} is {shown(value)}; it must be a list")
        if parts[0] is OpKey and all(isinstance(each, str) for each in value):
            return tuple([keys[each] for each in value])
        return tuple([_typed(parts[0], each, where, f"{name}[{i}]", keys) for i, each in enumerate(value)])
    if not isinstance(value, dict):
        raise FileError(f"{where}: {name} is {shown(value)}; it must be an object")
    return {key: _typed(parts[1], each, f"{where}: {name}", key, keys) for key, each in value.items()}


def _read(kind: Any, row: object, where: str, keys: _Keys) -> Any:
    """A dataclass from its fields."""
    if not isinstance(row, dict):
        raise FileError(f"{where} is {shown(row)}; it must be an object")
    known = _fields(kind)
    found = {}
    for name, value in row.items():
        if name not in known:
            raise FileError(f'{where} has "{name}"; it may have {", ".join(known)}')
        attribute, type_, _ = known[name]
        found[attribute] = value if value.__class__ is type_ else _typed(type_, value, where, name, keys)
    try:
        return kind(**found)
    except TypeError:
        missing = [name for name, (attribute, *_) in known.items() if attribute not in found]
        raise FileError(f"{where} lacks one of {', '.join(missing)}") from None
    except UserError as error:
        raise FileError(f"{where}: {error}") from None


def _value(name: str, kind: Any, value: object, where: str) -> Any:
    if kind in (Kind, Clip):
        try:
            return kind(value)
        except ValueError:
            raise FileError(
                f'{where}: "{name}" is {shown(value)}; it must be one of {", ".join(one.value for one in kind)}'
            ) from None
    fits = isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (kind is bool)
    if not fits:
        word = {
            int: "a whole number",
            float: "a number",
            str: "text",
            OpKey: "text",
            bool: "true or false",
            dict: "an object",
        }[kind]
        raise FileError(f'{where}: "{name}" is {shown(value)}; it must be {word}')
    return value
