"""Sketches from files: our TOML (SKETCH.md), or TACCL's JSON, recognized by their first character."""

from __future__ import annotations

from typing import Any

from syntony.base.files.fields import Fields, parse_json
from syntony.base.files.text_file import parse_toml, read_text
from syntony.base.quantity import size
from syntony.synth.engines.taccl.relay_table import relays_at
from syntony.synth.engines.taccl.sketch import CONNECTIONS, Between, Sketch
from syntony.synth.engines.taccl.sketch_json import sketch_of_json

MOST_BYTES = 1 << 20
MOST_CHUNKS = 1024


def read_sketch(path: str, ranks: int) -> Sketch:
    """The sketch in a file, for a collective of so many ranks. Raises FileError naming file and key."""
    text = read_text(path, MOST_BYTES)
    if text.lstrip().startswith("{"):
        return sketch_of_json(parse_json(text, path), path, ranks)
    return sketch_of(parse_toml(text, path), path)


def sketch_of(data: object, where: str) -> Sketch:
    """The sketch that a TOML document says. Raises FileError."""
    top = Fields(data, where)
    known: dict[str, Any] = {}
    if top.has("chunks"):
        known["chunks"] = top.whole("chunks")
        if not 1 <= known["chunks"] <= MOST_CHUNKS:
            raise top.wrong("chunks", f"it must be from 1 to {MOST_CHUNKS}")
    if top.has("size"):
        known["size"] = _size(top)
    if top.has("connections"):
        known["connections"] = top.choice("connections", CONNECTIONS)
    if top.has("detour"):
        known["detour"] = top.number("detour")
        if not 0 <= known["detour"] <= 100:
            raise top.wrong("detour", "it must be from 0 to 100: 0.5 lets a path take half as long again")
    if top.has("symmetry"):
        known["symmetry"] = _symmetry(top)
    if top.has("links"):
        links = top.child("links")
        for key, name in (("only", "only"), ("without", "avoid")):
            if links.has(key):
                known[name] = frozenset(_pairs(links, key, "a pair of ranks such as [0, 1]"))
        links.finish()
    if top.has("between"):
        known["between"] = _between(top.child("between"))
    top.finish()
    return Sketch(where, **known)


def _size(top: Fields) -> int:
    value = top.take("size")
    try:
        whole = size(value.upper().removesuffix("B")) if isinstance(value, str) else value
    except ValueError:
        whole = None
    if type(whole) is not int or whole < 1:
        raise top.wrong("size", 'it must be bytes, such as 65536 or "64K"')
    return whole


def _symmetry(top: Fields) -> tuple[tuple[int, int], ...] | None:
    value = top.take("symmetry")
    if value == "declared":
        return None
    if not isinstance(value, list):
        raise top.wrong("symmetry", 'it must be "declared", or rotations such as [[8, 16]]')
    return tuple(_pairs_of(top, "symmetry", value, "an offset and a group such as [8, 16]"))


def _pairs(fields: Fields, key: str, right: str) -> list[tuple[int, int]]:
    return _pairs_of(fields, key, fields.rows(key), right)


def _pairs_of(fields: Fields, key: str, rows: list[Any], right: str) -> list[tuple[int, int]]:
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 2 or not all(type(end) is int and end >= 0 for end in row):
            raise fields.wrong(key, f"it must be {right}", index)
    return [(row[0], row[1]) for row in rows]


def _between(fields: Fields) -> Between:
    box = fields.whole("box")
    if box < 1:
        raise fields.wrong("box", "it must be the number of ranks of a box")
    more: dict[str, Any] = {}
    if fields.has("relays"):
        more["relays"] = relays_at(fields, "relays", ("same", "all"))
    if fields.has("carries"):
        more["carries"] = relays_at(fields, "carries", ())
    if fields.has("own_first"):
        more["own_first"] = fields.take("own_first")
        if type(more["own_first"]) is not bool:
            raise fields.wrong("own_first", "it must be true or false")
    fields.finish()
    return Between(box, **more)
