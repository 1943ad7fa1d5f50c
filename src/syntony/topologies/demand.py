"""Demand: how much each rank of a job sends to each other rank. Optical fabrics are wired for it.

A demand is written as a pattern or as the path of a file. Only proportions matter; in the patterns, each rank
contributes one byte to each collective.

    ring            every rank sends to the next
    all_to_all      every rank sends to every other
    all_reduce      all ranks sum a buffer
    dp4xpp2xtp8     rank = (dp, pp, tp), the last varies fastest: dp and tp axes sum a buffer, ep axes send all to all,
                    pp axes send to the stage before and the stage after

    FILE.csv        a matrix, one line per sender: bytes to each receiver, comma-separated
    FILE.json       such a matrix as a list of lists, or an object with any of
                    "all_reduce": [{"members": [0, 1], "bytes": 1e9}, ...]      bytes: of the buffer
                    "all_to_all": [{"members": [0, 1], "bytes": 1e9}, ...]      bytes: that one member sends in all
                    "sends": [[from, to, bytes], ...]

all_reduces are kept apart from the rest, because their traffic is mutable (TopoOpt, section 2): any ring through the
members can carry it, so the fabric chooses the ring.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from syntony.base.files.strict_json import FileError, parse, shown
from syntony.base.files.text_file import read_text
from syntony.topologies.topology import Permutation, TopologyError

_MOST_PAIRS = 1_000_000  # of all_to_alls; refuses a mistyped size before it fills the memory
_AXES = re.compile(r"(dp|tp|pp|ep)[1-9][0-9]{0,5}(x(dp|tp|pp|ep)[1-9][0-9]{0,5})*")


@dataclass(frozen=True)
class AllReduce:
    """The members sum a buffer of `bytes`; on a ring each of them then sends 2 (n-1)/n of it."""

    members: tuple[int, ...]
    bytes: float

    @property
    def sent(self) -> float:
        """Bytes that one member sends."""
        return 2 * (len(self.members) - 1) / len(self.members) * self.bytes


@dataclass(frozen=True, eq=False)
class Demand:
    """What `ranks` ranks send: all_reduces, and the rest as pairs: `bytes[i]` from `src[i]` to `dst[i]`.

    No pair occurs twice, none is a rank with itself, all bytes are positive. `turns` are permutations of the ranks that
    map the demand to itself.
    """

    ranks: int
    all_reduces: tuple[AllReduce, ...]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    bytes: NDArray[np.float64]
    turns: tuple[Permutation, ...] = ()

    def as_pairs(self) -> Demand:
        """The same with every all_reduce as the ring through its members in order."""
        rings = [
            (one, other, group.sent)
            for group in self.all_reduces
            for one, other in zip(group.members, (*group.members[1:], group.members[0]), strict=True)
        ]
        own = zip(self.src.tolist(), self.dst.tolist(), self.bytes.tolist(), strict=True)
        return demand_of(self.ranks, (), [*own, *rings], self.turns)


def read_demand(text: str, ranks: int, where: str) -> Demand:
    """The demand that `text` names, of `ranks` >= 2 ranks; error messages begin with `where`."""
    every = tuple(range(ranks))
    turn = ((*every[1:], 0),)
    if text == "ring":
        return demand_of(ranks, (), [(rank, (rank + 1) % ranks, 1.0) for rank in every], turn)
    if text == "all_to_all":
        sends: list[_Send] = []
        _exchange(sends, every, 1.0, where)
        return demand_of(ranks, (), sends, turn)
    if text == "all_reduce":
        return demand_of(ranks, (AllReduce(every, 1.0),), [], turn)
    if _AXES.fullmatch(text):
        return _of_axes([(axis[:2], int(axis[2:])) for axis in text.split("x")], ranks, where)
    if Path(text).suffix in (".json", ".csv"):
        return _of_file(Path(text), ranks)
    raise TopologyError(
        f"{where} is {text!r}; it must be ring, all_to_all, all_reduce, axes such as dp4xtp8, "
        "or the path of a .json or .csv file"
    )


_Send = tuple[int, int, float]


def demand_of(
    ranks: int, all_reduces: Iterable[AllReduce], sends: Sequence[_Send], turns: Sequence[Permutation] = ()
) -> Demand:
    """The demand of these all_reduces and of sends (from, to, bytes): those of a pair are added up, and those of zero
    bytes dropped."""
    columns = np.array(sends, dtype=np.float64).reshape(-1, 3)
    columns = columns[(columns[:, 2] > 0) & (columns[:, 0] != columns[:, 1])]
    keys, place = np.unique(
        columns[:, 0].astype(np.int64) * ranks + columns[:, 1].astype(np.int64), return_inverse=True
    )
    total = np.bincount(place, weights=columns[:, 2], minlength=len(keys)).astype(np.float64)
    groups = tuple(group for group in all_reduces if len(group.members) > 1 and group.bytes > 0)
    return Demand(ranks, groups, keys // ranks, keys % ranks, total, tuple(turns))


def _exchange(sends: list[_Send], members: Sequence[int], each: float, where: str) -> None:
    """Adds an all_to_all to `sends`: every member sends `each` bytes in all."""
    if len(sends) + len(members) * (len(members) - 1) > _MOST_PAIRS:
        raise TopologyError(f"{where}: all_to_all of {len(members)} ranks makes more than {_MOST_PAIRS} pairs")
    sends += [(one, other, each / (len(members) - 1)) for one, other in itertools.permutations(members, 2)]


def _of_axes(axes: list[tuple[str, int]], ranks: int, where: str) -> Demand:
    sizes = [size for _, size in axes]
    if math.prod(sizes) != ranks:
        raise TopologyError(f"{where}: {'x'.join(map(str, sizes))} is {math.prod(sizes)} ranks, but there are {ranks}")
    grid = np.arange(ranks).reshape(sizes)
    all_reduces: list[AllReduce] = []
    sends: list[_Send] = []
    turns: list[Permutation] = []
    for axis, (kind, size) in enumerate(axes):
        for line in np.moveaxis(grid, axis, -1).reshape(-1, size).tolist():
            if kind == "pp":
                for one, other in itertools.pairwise(line):
                    sends += [(one, other, 1.0), (other, one, 1.0)]
            elif kind == "ep":
                _exchange(sends, line, 1.0, where)
            else:
                all_reduces.append(AllReduce(tuple(line), 1.0))
        if kind != "pp":
            turns.append(tuple(np.roll(grid, -1, axis).reshape(-1).tolist()))
    return demand_of(ranks, all_reduces, sends, turns)


# Files ------------------------------------------------------------------------------------------------------------


def _of_file(path: Path, ranks: int) -> Demand:
    try:
        text = read_text(path)
        data = None if path.suffix == ".csv" else parse(text, str(path), "traffic file")
    except FileError as error:
        raise TopologyError(str(error)) from None
    if path.suffix == ".csv":
        rows: list[object] = [line.split(",") for line in text.splitlines() if line.strip()]
        return _of_matrix(rows, ranks, str(path), "line")
    if isinstance(data, list):
        return _of_matrix(data, ranks, str(path), "row")
    if not isinstance(data, dict):
        raise TopologyError(f"{path}: it holds {shown(data)}; it must be a matrix or an object")
    return _of_object(data, ranks, str(path))


def _of_matrix(rows: list[object], ranks: int, where: str, row_is: str) -> Demand:
    if len(rows) != ranks:
        raise TopologyError(f"{where}: the matrix has {len(rows)} {row_is}s, but there are {ranks} ranks")
    sends = []
    for src, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != ranks:
            size = f"{len(row)} numbers" if isinstance(row, list) else shown(row)
            raise TopologyError(f"{where}, {row_is} {src + 1}: it has {size}; it must have {ranks}, one per rank")
        for dst, entry in enumerate(row):
            volume = _bytes(entry, f"{where}, {row_is} {src + 1}, number {dst + 1}")
            if volume:
                sends.append((src, dst, volume))
    return demand_of(ranks, (), sends, ())


def _of_object(data: dict[str, object], ranks: int, where: str) -> Demand:
    known = ("all_reduce", "all_to_all", "sends")
    for key in data:
        if key not in known:
            raise TopologyError(f'{where}: it has the field "{key}"; known are {", ".join(known)}')
    groups = {
        key: [_group(row, ranks, f'{where}, "{key}" {i}') for i, row in enumerate(_rows(data, key, where))]
        for key in known[:2]
    }
    sends: list[_Send] = []
    for group in groups["all_to_all"]:
        _exchange(sends, group.members, group.bytes, where)
    for i, row in enumerate(_rows(data, "sends", where)):
        at = f'{where}, "sends" {i}'
        if not isinstance(row, list) or len(row) != 3:
            raise TopologyError(f"{at}: it is {shown(row)}; it must be [from, to, bytes]")
        sends.append((_rank(row[0], ranks, at), _rank(row[1], ranks, at), _bytes(row[2], at)))
    return demand_of(ranks, groups["all_reduce"], sends, ())


def _rows(data: dict[str, object], key: str, where: str) -> list[object]:
    rows = data.get(key, [])
    if not isinstance(rows, list):
        raise TopologyError(f'{where}: "{key}" is {shown(rows)}; it must be a list')
    return rows


def _group(row: object, ranks: int, where: str) -> AllReduce:
    if not isinstance(row, dict) or set(row) != {"members", "bytes"} or not isinstance(row["members"], list):
        raise TopologyError(f'{where}: it is {shown(row)}; it must be an object of "members" and "bytes"')
    members = tuple(_rank(member, ranks, where) for member in row["members"])
    if len(set(members)) != len(members):
        raise TopologyError(f"{where}: a rank is a member twice")
    return AllReduce(members, _bytes(row["bytes"], where))


def _rank(value: object, ranks: int, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < ranks:
        raise TopologyError(f"{where}: {shown(value)} is not a rank; ranks are 0 to {ranks - 1}")
    return value


def _bytes(value: object, where: str) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise TopologyError(f"{where}: {shown(value)} is not a number of bytes; it must be finite and not negative")
    return number
