"""The topology file: JSON, version 1, described in FORMAT.md beside this file.

The reader checks every field. An error names the file, the field and its position, its value, and what would be right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from syntony.base.files.fields import Fields
from syntony.base.files.strict_json import FileError, parse
from syntony.base.files.whole_file import write_text
from syntony.base.quantity import rate, seconds
from syntony.base.wording import did_you_mean
from syntony.topologies.aggregator import NUMBER_FORMATS, PLACEMENTS, SHARINGS, Aggregator
from syntony.topologies.topology import NODE_KINDS, Link, Node, Permutation, Topology, TopologyError

FORMAT = "syntony-topology"
VERSION = 1

_RATE = 'it must be bytes/s, positive, such as 25e9, "25GB/s", "200Gbit/s" or "100/3"'
_Choice = TypeVar("_Choice", bound=str)


def to_dict(topology: Topology) -> dict[str, Any]:
    """The object of the file, in plain JSON types (FORMAT.md)."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": topology.name,
        **({"about": topology.about} if topology.about else {}),
        "nodes": [_node_to_dict(node) for node in topology.nodes],
        "links": [
            {"src": link.src, "dst": link.dst, "alpha": link.alpha, "bandwidth": str(link.bandwidth)}
            for link in topology.links
        ],
        "generators": [list(generator) for generator in topology.generators],
    }


def to_json(topology: Topology) -> str:
    """The text of the file: one node, link or generator per line."""
    entries = []
    for key, value in to_dict(topology).items():
        if isinstance(value, list) and value:
            rows = ",\n".join("    " + json.dumps(row, ensure_ascii=False) for row in value)
            entries.append(f'  "{key}": [\n{rows}\n  ]')
        else:
            entries.append(f'  "{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(entries) + "\n}\n"


def from_json(text: str, where: str = "topology") -> Topology:
    """Inverse of `to_json`; raises `TopologyError` naming `where`, the field and its position."""
    try:
        data = parse(text, where, "topology file")
    except FileError as error:
        raise TopologyError(str(error)) from None
    return from_dict(data, where)


def from_dict(data: object, where: str = "topology") -> Topology:
    """Inverse of `to_dict`; the message of every `TopologyError` begins with `where`."""
    fields = LinkFields(data, where)
    if fields.take("format") != FORMAT:
        raise fields.wrong("format", f'it must be "{FORMAT}"; is this a topology file?')
    if fields.take("version") != VERSION:
        raise fields.wrong("version", f"this program reads version {VERSION}")
    name = fields.string("name")
    about = fields.string("about", optional=True)
    nodes = tuple(_node(i, row, where) for i, row in enumerate(fields.children("nodes")))
    numbers = {node.name: node.id for node in nodes}
    links = tuple(_numbered(end for row in fields.children("links") for end in _links(row, numbers)))
    generators = tuple(
        _generator_from_list(i, row, where) for i, row in enumerate(fields.rows("generators", optional=True))
    )
    fields.finish()
    try:
        return Topology(name, nodes, links, generators, about)
    except TopologyError as error:
        raise TopologyError(f"{where}: {error}") from None


def write(topology: Topology, path: str | Path) -> None:
    """Writes a topology file."""
    write_text(path, to_json(topology))


def _node_to_dict(node: Node) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": node.kind, "name": node.name}
    if node.multicast:
        row["multicast"] = True
    if node.reduces:
        row["reduces"] = True
    if node.place is not None:
        row["place"] = list(node.place)
    if node.aggregator is not None:
        row["aggregator"] = _aggregator_to_dict(node.aggregator)
    return row


def _node(position: int, fields: LinkFields, where: str) -> Node:
    kind = fields.string("kind")
    if kind not in NODE_KINDS:
        raise fields.wrong("kind", f"a node is one of {', '.join(NODE_KINDS)}")
    node = Node(
        position,
        kind,
        fields.string("name"),
        fields.flag("multicast"),
        fields.flag("reduces"),
        fields.place("place"),
        _aggregator_from_dict(fields.take("aggregator", optional=True), where, f"nodes[{position}].aggregator"),
    )
    fields.finish()
    return node


def _aggregator_to_dict(aggregator: Aggregator) -> dict[str, Any]:
    return {
        "name": aggregator.name,
        "slots": aggregator.slots,
        "slot_bytes": aggregator.slot_bytes,
        "formats": list(aggregator.formats),
        "rate": None if aggregator.rate is None else str(aggregator.rate),
        "tenants": aggregator.tenants,
        "sharing": aggregator.sharing,
        "placement": aggregator.placement,
        "multicast": aggregator.multicast,
        "hot": str(aggregator.hot),
    }


def _aggregator_from_dict(row: object, where: str, what: str) -> Aggregator | None:
    if row is None:
        return None
    fields = LinkFields(row, where, what)
    try:
        aggregator = Aggregator(
            name=fields.string("name"),
            slots=None if fields.null("slots") else fields.whole("slots"),
            slot_bytes=fields.whole("slot_bytes"),
            formats=tuple(fields.choices("formats", NUMBER_FORMATS)),
            rate=None if fields.null("rate") else fields.bandwidth("rate"),
            tenants=fields.whole("tenants"),
            sharing=fields.choice("sharing", SHARINGS),
            placement=fields.choice("placement", PLACEMENTS),
            multicast=fields.flag("multicast"),
            hot=fields.bandwidth("hot", 'it must be a share such as "1/2"'),
        )
    except ValueError as error:
        if isinstance(error, TopologyError):
            raise
        raise TopologyError(f"{where}: {what}: {error}") from None
    fields.finish()
    return aggregator


def _links(fields: LinkFields, numbers: Mapping[str, int]) -> Iterator[Link]:
    """One link from `src` to `dst`, or the two links of a cable `between` two nodes; ids are assigned later."""
    if fields.has("between"):
        one, other = fields.ends("between", numbers)
        ways = [(one, other), (other, one)]
    else:
        ways = [(fields.end("src", numbers), fields.end("dst", numbers))]
    alpha, bandwidth = fields.latency("alpha"), fields.bandwidth("bandwidth")
    fields.finish()
    yield from (Link(0, src, dst, alpha, bandwidth) for src, dst in ways)


def _numbered(links: Iterable[Link]) -> Iterator[Link]:
    yield from (replace(link, id=number) for number, link in enumerate(links))


def _generator_from_list(position: int, row: object, where: str) -> Permutation:
    if not isinstance(row, list) or not all(type(image) is int for image in row):
        raise TopologyError(f"{where}: generators[{position}] must be a list of node numbers")
    return tuple(row)


class LinkFields(Fields):
    """Fields with the quantities of links."""

    error = TopologyError

    def refused(self, what: str) -> TopologyError:
        """The error to raise about all of the fields."""
        return TopologyError(f"{self._where}: {self._path} {what}")

    def null(self, key: str) -> bool:
        """Whether the key holds null; if so, the key is consumed."""
        return self._rest.get(key, ...) is None and self.take(key) is None

    def choices(self, key: str, choices: tuple[_Choice, ...]) -> list[_Choice]:
        values = self.rows(key)
        found = [known for value in values for known in choices if known == value]
        if len(found) != len(values):
            raise self.wrong(key, f"it must be a list of some of {', '.join(map(str, choices))}")
        return found

    def bandwidth(self, key: str, right: str = _RATE) -> Fraction:
        value = self.take(key)
        if type(value) is float and 0 < value < 1e30:
            return Fraction(value)
        if isinstance(value, str) or type(value) is int:
            try:
                return rate(str(value))
            except ValueError:
                pass
        raise self.wrong(key, right)

    def latency(self, key: str) -> float:
        """Seconds, as a number or with a unit."""
        if not isinstance(self._rest.get(key), str):
            return self.number(key)
        try:
            return seconds(self.take(key))
        except ValueError:
            raise self.wrong(key, 'it must be seconds, such as 1e-6 or "1us"') from None

    def end(self, key: str, numbers: Mapping[str, int]) -> int:
        """A node, by its number or name."""
        if not isinstance(self._rest.get(key), str):
            return self.whole(key)
        return self._node(key, self.take(key), numbers, None)

    def ends(self, key: str, numbers: Mapping[str, int]) -> tuple[int, int]:
        """Two nodes, by number or name."""
        values = self.rows(key)
        if len(values) != 2:
            raise self.wrong(key, "a cable has two ends: [node, node]")
        one, other = (
            value if type(value) is int else self._node(key, value, numbers, at) for at, value in enumerate(values)
        )
        return one, other

    def _node(self, key: str, value: object, numbers: Mapping[str, int], index: int | None) -> int:
        if not isinstance(value, str):
            raise self.wrong(key, "a node is named by its number or its name", index)
        if value not in numbers:
            raise self.wrong(key, f"there is no node of that name{did_you_mean(value, numbers)}", index)
        return numbers[value]

    def place(self, key: str) -> tuple[float, float] | None:
        value = self.take(key, optional=True)
        if value is None:
            return None
        if isinstance(value, list) and len(value) == 2 and all(_is_near(part) for part in value):
            return float(value[0]), float(value[1])
        raise self.wrong(key, "it must be two numbers, [x, y]")


def _is_near(coordinate: object) -> bool:
    return isinstance(coordinate, (int, float)) and not isinstance(coordinate, bool) and abs(coordinate) < 1e6
