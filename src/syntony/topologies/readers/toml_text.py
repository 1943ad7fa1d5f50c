"""A network written by hand, in a few lines of TOML: how many nodes there are, and groups of cables.

    name = "two hosts"                ranks are rank0, rank1, ..; switches and NICs have the names given,
    ranks = 8                         or, where a number is given, switch0, .. and nic0, ..
    switches = ["tor"]
    nics = 4

    [[cables]]
    ring = ["rank0-3", "rank4-7"]     two rings: each with the next, and the last with the first; `line`: without that;
    bandwidth = "50GB/s"              `mesh`: each with each other
    alpha = "1us"

    [[cables]]
    each = "nic0-3"                   every one of `each` with every one of `to`
    to = "tor"
    bandwidth = "200Gbit/s"
    alpha = "2us"

    [[cables]]
    between = [["rank0", "nic0"]]     pairs; `one_way = true` makes links from the first to the second of each
    ..

Errors name the line of the group at fault. The reader also checks that every rank can reach every other.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from pathlib import Path

from syntony.base.files.strict_json import FileError
from syntony.base.files.text_file import decoded
from syntony.base.wording import did_you_mean
from syntony.topologies.file_format import LinkFields
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.topology import Topology, TopologyError

_BEGINS = re.compile(r"(\s*#.*\n|\s*\n)*\s*(name|about|ranks|switches|nics)\s*=|(\s*#.*\n|\s*\n)*\s*\[\[cables\]\]")
_GROUP = re.compile(r"\s*\[\[\s*cables\s*\]\]")
_RANGE = re.compile(r"(.*?)(\d+)-(\d+)")
_PATTERNS = ("between", "each", "ring", "line", "mesh")
MOST_NODES = 100_000


def recognizes(head: str) -> bool:
    """Whether a text begins like such a file."""
    return _BEGINS.match(head) is not None


def read(content: bytes, where: str) -> Topology:
    """The network. Raises TopologyError that names the file, the line, and what would be right."""
    try:
        text = decoded(content, where)
        data = tomllib.loads(text)
    except FileError as error:
        raise TopologyError(str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise TopologyError(f"{where}: no TOML: {error}") from None
    fields = LinkFields(data, where)
    wiring = Wiring(fields.string("name", optional=True) or Path(where).stem)
    named = {
        "rank": _names(fields, "ranks", "rank"),
        "switch": _names(fields, "switches", "switch"),
        "nic": _names(fields, "nics", "nic"),
    }
    groups = fields.rows("cables", optional=True)
    fields.finish()
    numbers: dict[str, int] = {}
    for kind, names in named.items():
        for name in names:
            if name in numbers:
                raise TopologyError(f"{where}: two nodes are called {name!r}; each needs a name of its own")
            if kind == "rank":
                numbers[name] = wiring.rank()
            else:
                numbers[name] = (wiring.switch if kind == "switch" else wiring.nic)(name)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if _GROUP.match(line)]
    for position, group in enumerate(groups):
        line = f":{lines[position]}" if len(lines) == len(groups) else ""
        _wire(wiring, LinkFields(group, f"{where}{line}", f"cables[{position}]"), numbers)
    topology = wiring.topology()
    _require_reachable(topology, where)
    return topology


def _names(fields: LinkFields, key: str, stem: str) -> list[str]:
    """Of the ranks, which every network has, or of the switches or NICs."""
    value = fields.take(key, optional=stem != "rank")
    if value is None:
        return []
    least = 1 if stem == "rank" else 0
    if type(value) is int and least <= value <= MOST_NODES:
        return [f"{stem}{number}" for number in range(value)]
    if stem != "rank" and isinstance(value, list) and all(isinstance(name, str) and name for name in value):
        return value
    right = f"a number from {least} to {MOST_NODES}" + (
        "" if stem == "rank" else f", or names, such as ['{stem}0', '{stem}1']"
    )
    raise fields.wrong(key, f"it must be {right}")


def _wire(wiring: Wiring, fields: LinkFields, numbers: Mapping[str, int]) -> None:
    """Adds the cables of a group."""
    given = [pattern for pattern in _PATTERNS if fields.has(pattern)]
    if len(given) != 1:
        raise fields.refused(f"says {' and '.join(given) or 'not'} what is joined; give one of {', '.join(_PATTERNS)}")
    pairs = list(_pairs(fields, given[0], numbers))
    bandwidth, alpha = fields.bandwidth("bandwidth"), fields.latency("alpha")
    one_way = fields.flag("one_way")
    fields.finish()
    for one, other in pairs:
        if one == other:
            raise fields.refused(f"joins node {one} with itself")
        (wiring.link if one_way else wiring.cable)(one, other, bandwidth, alpha)


def _pairs(fields: LinkFields, pattern: str, numbers: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    if pattern == "between":
        for index, pair in enumerate(fields.rows("between")):
            if not isinstance(pair, list) or len(pair) != 2:
                raise fields.wrong("between", "a cable has two ends: [node, node]", index)
            here, there = (_listed(fields, "between", end, numbers) for end in pair)
            if len(here) != len(there):
                counts = f"{len(here)} nodes cannot be joined with {len(there)}"
                raise fields.wrong("between", f"{counts}, one by one", index)
            yield from zip(here, there, strict=True)
        return
    if pattern == "each":
        here, there = (_listed(fields, key, fields.take(key), numbers) for key in ("each", "to"))
        yield from product(here, there)
        return
    for part in _parts(fields, pattern, numbers):
        yield from combinations(part, 2) if pattern == "mesh" else pairwise(part)
        if pattern == "ring" and len(part) > 2:
            yield part[-1], part[0]


def _parts(fields: LinkFields, key: str, numbers: Mapping[str, int]) -> list[list[int]]:
    """`"rank0-3"` is one part; `["rank0-3", "rank4-7"]` are two."""
    value = fields.take(key)
    several = isinstance(value, list)
    parts = [_listed(fields, key, part, numbers) for part in (value if several else [value])]
    for index, part in enumerate(parts):
        if len(part) < 2:
            right = f"that is one node, and a {key} has two or more, in one text: 'rank0, rank1'"
            raise fields.wrong(key, right, index if several else None)
    return parts


def _listed(fields: LinkFields, key: str, value: object, numbers: Mapping[str, int]) -> list[int]:
    """`"rank0-3, nic1"` names five nodes."""
    texts: Sequence[object] = value if isinstance(value, list) else [value]
    found = []
    for text in texts:
        if not isinstance(text, str):
            raise fields.wrong(key, "nodes are named, such as 'rank0-3, tor'")
        for name in text.split(","):
            found += [_number(fields, key, one, numbers) for one in _spelled(name.strip(), numbers)]
    return found


def _spelled(name: str, numbers: Mapping[str, int]) -> Iterator[str]:
    ranged = _RANGE.fullmatch(name)
    if ranged and name not in numbers and int(ranged[2]) <= int(ranged[3]) <= MOST_NODES:
        yield from (f"{ranged[1]}{number}" for number in range(int(ranged[2]), int(ranged[3]) + 1))
    else:
        yield name


def _number(fields: LinkFields, key: str, name: str, numbers: Mapping[str, int]) -> int:
    if name not in numbers:
        raise fields.wrong(key, f"there is no node {name!r}{did_you_mean(name, numbers)}")
    return numbers[name]


def _require_reachable(topology: Topology, where: str) -> None:
    """Checks that rank 0 reaches all other ranks and they reach it, so that each reaches each."""
    for forwards in (True, False):
        out: dict[int, list[int]] = {}
        for link in topology.links:
            here, there = (link.src, link.dst) if forwards else (link.dst, link.src)
            out.setdefault(here, []).append(there)
        seen, ahead = {0}, [0]
        while ahead:
            for there in out.get(ahead.pop(), ()):
                if there not in seen:
                    seen.add(there)
                    ahead.append(there)
        lost = [node.name for node in topology.nodes if node.kind == "rank" and node.id not in seen]
        if lost:
            way = "cannot be reached from rank0" if forwards else "cannot reach rank0"
            more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
            raise TopologyError(f"{where}: {lost[0]}{more} {way}; a group of cables is missing")
