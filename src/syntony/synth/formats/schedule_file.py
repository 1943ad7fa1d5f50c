"""The schedule file, version 1: JSON, with a binary sidecar for large schedules. FORMAT.md describes it.

The reader trusts nothing: every index is checked against its table, so users of the Schedule need no further checks.
The checker decides whether the schedule is *correct*. Writing is atomic.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.base.command import UserError
from syntony.base.files.fields import Fields, FileError, parse_json
from syntony.base.files.text_file import read_text
from syntony.base.files.whole_file import write_bytes
from syntony.synth.model.bound import Bounds, Cut, Distance, Latency, Partition, Prices, Throughput, Witness
from syntony.synth.model.collective import KINDS, ChunkTable, Collective
from syntony.synth.model.schedule import TRANSFER_COLUMNS, Generator, Schedule, Transfers
from syntony.synth.model.values import Values
from syntony.topologies import file_format
from syntony.topologies.aggregator import NUMBER_FORMATS
from syntony.topologies.topology import Topology

FORMAT = "syntony-schedule"
VERSION = 1
FEATURES = ("in_switch_reduction", "multicast")
SIDECAR_ROWS = 50_000
"""Schedules with more values or transfers than this keep them in a sidecar."""
_MOST_UNPACKED = 1 << 30  # bytes of a sidecar: about thirty million rows

_VALUE_COLUMNS = ("chunk", "rank", "offset", "operand")
_Arrays = Mapping[str, NDArray[np.signedinteger]]


def content_hash(schedule: Schedule) -> str:
    """SHA-256 over everything that a proof depends on, in hexadecimal."""
    digest = hashlib.sha256(json.dumps(_head(schedule), sort_keys=True).encode())
    for name, column in _arrays(schedule).items():
        digest.update(f"{name}:{len(column)}:".encode())
        digest.update(np.ascontiguousarray(column, "<i8").tobytes())
    return digest.hexdigest()


def write(schedule: Schedule, path: str | Path, sidecar_rows: int = SIDECAR_ROWS) -> None:
    """Writes the file, and a sidecar if the schedule has more than `sidecar_rows` rows. Raises FileError."""
    path = Path(path)
    document: dict[str, Any] = {"format": FORMAT, "version": VERSION, "features": _features(schedule)} | _head(schedule)
    document |= {
        "engine": schedule.engine,
        "proof": schedule.proof,
        "bounds": None if schedule.bounds is None else schedule.bounds.to_dict(),
        "values": None,
        "transfers": None,
        "sidecar": None,
    }
    if max(len(schedule.transfers), len(schedule.values)) > sidecar_rows:
        packed = io.BytesIO()
        np.savez_compressed(packed, **_arrays(schedule))  # type: ignore[arg-type]
        sidecar = path.with_suffix(".npz")
        if sidecar == path:
            raise FileError(f"{path}: the name is that of the sidecar; a schedule file ends in .json")
        write_bytes(sidecar, packed.getvalue())
        document["sidecar"] = {"file": sidecar.name, "sha256": hashlib.sha256(packed.getvalue()).hexdigest()}
    else:
        document["values"] = _table(schedule.values.columns(), "operand", "operands")
        document["transfers"] = _table(schedule.transfers.columns(), "link", "route")
    lines = ",\n".join(f"  {json.dumps(key)}: {_pretty(value)}" for key, value in document.items())
    write_bytes(path, f"{{\n{lines}\n}}\n".encode())


def read(path: str | Path) -> Schedule:
    """Reads the schedule. Raises FileError that names file and field."""
    where = str(path)
    return from_dict(parse_json(read_text(path), where), where, Path(path).parent)


def from_dict(data: object, where: str, folder: Path | None = None) -> Schedule:
    """The schedule in a parsed file; its sidecar is in `folder`."""
    fields = Fields(data, where)
    if fields.take("format") != FORMAT:
        raise fields.wrong("format", f'it must be "{FORMAT}"; is this a schedule file?')
    if fields.take("version") != VERSION:
        raise fields.wrong("version", f"this program reads version {VERSION}")
    for index, feature in enumerate(fields.rows("features")):
        if feature not in FEATURES:
            raise fields.wrong("features", "this feature is not known", index)
    topology = file_format.from_dict(fields.take("topology"), f"{where}: topology")
    collective = _collective(fields.child("collective"), where, topology)
    values, transfers = _tables(fields, where, folder)
    rounds = fields.column("rounds")
    if np.any(rounds < 1):
        raise fields.wrong("rounds", "a step lasts at least 1 round", int(np.argmax(rounds < 1)))
    schedule = Schedule(
        topology,
        collective,
        values,
        transfers,
        rounds,
        fields.string("engine"),
        _bounds(fields.child("bounds")) if fields.has("bounds") else fields.take("bounds"),
        fields.string("proof"),
        tuple(_generator(generator) for generator in fields.children("symmetry")),
        fields.choice("number_format", NUMBER_FORMATS) if fields.has("number_format") else "",
    )
    fields.take("stamp", optional=True)  # in older files; anybody can write one, so it is ignored
    fields.finish()
    _check_indices(schedule, where)
    if fields.seen("features") != _features(schedule):
        needed = ", ".join(_features(schedule)) or "none"
        raise fields.wrong("features", f"what its transfers ask of switches is: {needed}")
    return schedule


def _features(schedule: Schedule) -> list[str]:
    """The switch abilities that its transfers require: adding what arrives, sending copies of what a switch holds."""
    ranks, moved = schedule.collective.ranks, schedule.transfers
    asked = (moved.reduces & (moved.dst >= ranks), ~moved.reduces & (moved.src >= ranks))
    return [feature for feature, rows in zip(FEATURES, asked, strict=True) if rows.any()]


def _head(schedule: Schedule) -> dict[str, Any]:
    collective = schedule.collective
    chunks = {"block": collective.chunks.block.tolist(), "weight": collective.chunks.weight.tolist()}
    number_format = {"number_format": schedule.number_format} if schedule.number_format else {}
    return number_format | {
        "topology": file_format.to_dict(schedule.topology),
        "collective": {
            "kind": collective.kind,
            "ranks": collective.ranks,
            "root": collective.root,
            "members": list(collective.members),
            "chunks": chunks,
        },
        "rounds": schedule.rounds.tolist(),
        "symmetry": [{"nodes": list(g.nodes), "chunks": list(g.chunks)} for g in schedule.symmetry],
    }


def _arrays(schedule: Schedule) -> dict[str, NDArray[np.signedinteger]]:
    values = {f"values.{name}": column for name, column in schedule.values.columns().items()}
    return values | {f"transfers.{name}": column for name, column in schedule.transfers.columns().items()}


def _table(columns: _Arrays, flat: str, ragged: str) -> dict[str, Any]:
    """Columns as JSON lists; offsets and the flat column become one list of lists."""
    plain = {name: column.tolist() for name, column in columns.items() if name not in ("offset", flat)}
    offset, items = columns["offset"].tolist(), columns[flat].tolist()
    return plain | {ragged: [items[a:b] for a, b in pairwise(offset)]}


def _pretty(value: Any) -> str:
    """Formats objects of columns with one column per line, anything else on one line."""
    if isinstance(value, dict) and any(isinstance(item, (list, dict)) for item in value.values()):
        lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(item)}" for key, item in value.items())
        return f"{{\n{lines}\n  }}"
    return json.dumps(value)


def _collective(fields: Fields, where: str, topology: Topology) -> Collective:
    chunks = fields.child("chunks")
    kind = fields.choice("kind", KINDS)
    block, weight = chunks.column("block"), chunks.column("weight")
    ranks, root = fields.whole("ranks"), fields.whole("root")
    members = tuple(fields.column("members").tolist())
    chunks.finish()
    fields.finish()
    try:
        collective = Collective(kind, ranks, ChunkTable(block, weight), root, members)
    except UserError as error:
        raise FileError(f"{where}: collective: {error}") from None
    for index, member in enumerate(members):
        if member >= topology.ranks:
            raise fields.wrong("members", f"{topology.name} has only ranks 0..{topology.ranks - 1}", index)
    return collective


def _tables(fields: Fields, where: str, folder: Path | None) -> tuple[Values, Transfers]:
    if fields.has("sidecar"):
        for name in ("values", "transfers"):
            if fields.take(name) is not None:
                raise fields.wrong(name, "it must be null where there is a sidecar")
        arrays = _read_sidecar(fields.child("sidecar"), where, folder)
        values = {name: arrays[f"values.{name}"] for name in _VALUE_COLUMNS}
        transfers = {name: arrays[f"transfers.{name}"] for name in TRANSFER_COLUMNS}
    else:
        fields.take("sidecar")
        table = fields.child("values")
        values = {name: table.column(name) for name in ("chunk", "rank")}
        values["offset"], values["operand"] = table.ragged("operands")
        table.finish()
        table = fields.child("transfers")
        transfers = {name: table.column(name) for name in TRANSFER_COLUMNS[:5]}
        transfers["offset"], transfers["link"] = table.ragged("route")
        table.finish()
    _check_lengths(values, "values", where)
    _check_lengths(transfers, "transfers", where)
    return Values(**values), Transfers(**transfers)


def _read_sidecar(fields: Fields, where: str, folder: Path | None) -> dict[str, NDArray[np.signedinteger]]:
    name, promised = fields.string("file"), fields.string("sha256")
    fields.finish()
    if name != Path(name).name or folder is None:
        raise fields.wrong("file", "it must be the name of a file beside this one")
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise FileError(f"{where}: its sidecar {name} cannot be read: {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != promised:
        raise FileError(f"{where}: its sidecar {name} is not the one that was written with it (sha256 differs)")
    expected = [f"values.{column}" for column in _VALUE_COLUMNS]
    expected += [f"transfers.{column}" for column in TRANSFER_COLUMNS]
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            unpacked = sum(entry.file_size for entry in packed.infolist())
        if unpacked > _MOST_UNPACKED:
            raise FileError(
                f"{where}: its sidecar {name} is {unpacked:,} bytes when unpacked; at most {_MOST_UNPACKED:,} are read"
            )
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, EOFError, MemoryError, NotImplementedError, zlib.error, zipfile.BadZipFile) as error:
        raise FileError(f"{where}: its sidecar {name} is not a NumPy archive: {error}") from None
    if sorted(arrays) != sorted(expected):
        raise FileError(f"{where}: its sidecar {name} holds {', '.join(arrays)}; it must hold {', '.join(expected)}")
    for key, array in arrays.items():
        wanted = np.dtype(np.int64 if key.endswith(".offset") else np.int32)
        if array.ndim != 1 or array.dtype != wanted:
            raise FileError(f"{where}: {key} of its sidecar {name} must be a column of {wanted}")
    return arrays


def _check_lengths(columns: _Arrays, table: str, where: str) -> None:
    flat = "operand" if table == "values" else "link"
    lengths = {name: len(column) for name, column in columns.items() if name not in ("offset", flat)}
    lengths["operands" if table == "values" else "route"] = len(columns["offset"]) - 1
    if len(set(lengths.values())) != 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise FileError(f"{where}: the columns of {table} must be equally long: {told}")
    offset = columns["offset"]
    if offset[0] != 0 or offset[-1] != len(columns[flat]) or np.any(np.diff(offset) < 0):
        raise FileError(f"{where}: {table}.offset must rise from 0 to the length of {flat}, {len(columns[flat])}")


def _check_indices(schedule: Schedule, where: str) -> None:
    """Rejects the first index out of range."""
    values, transfers, ranks = schedule.values, schedule.transfers, schedule.collective.ranks

    def within(name: str, column: NDArray[np.signedinteger], low: int, end: int, what: str) -> None:
        bad = np.flatnonzero((column < low) | (column >= end))
        if len(bad):
            raise FileError(f"{where}: {name}[{bad[0]}] is {column[bad[0]]}; {what} are {low}..{end - 1}")

    within("values.chunk", values.chunk, 0, len(schedule.collective.chunks), "chunks")
    within("values.rank", values.rank, -1, ranks, "ranks (or -1 for a sum)")
    counts = np.diff(values.offset)
    owner = np.repeat(np.arange(len(values)), counts)
    for bad, right in (
        ((values.rank >= 0) & (counts > 0), "a contribution has no operands"),
        ((values.rank < 0) & (counts < 2), "a sum has at least two operands"),
        (
            np.bincount(owner[(values.operand < 0) | (values.operand >= owner)], minlength=len(values)) > 0,
            "operands are earlier values",
        ),
    ):
        if bad.any():
            value = int(np.argmax(bad))
            raise FileError(f"{where}: values.operands[{value}] is {list(values.operands(value))}; {right}")
    strange = values.chunk[values.operand] != values.chunk[owner]
    if strange.any():
        value = int(owner[np.argmax(strange)])
        raise FileError(f"{where}: values.operands[{value}] sums values of other chunks; one sum is of one chunk")
    for name, column in (("value", transfers.value), ("result", transfers.result)):
        within(f"transfers.{name}", column, 0, len(values), "values")
    for name, column in (("src", transfers.src), ("dst", transfers.dst)):
        agents = len(schedule.agents)
        what = "ranks" if agents == ranks else f"ranks 0..{ranks - 1} and able switches"
        within(f"transfers.{name}", column, 0, agents, what)
    steps = len(schedule.rounds) or np.iinfo(np.int32).max
    within("transfers.step", transfers.step, 0, steps, "steps")
    lost = np.flatnonzero((transfers.link < 0) | (transfers.link >= len(schedule.topology.links)))
    if len(lost):
        row = int(np.searchsorted(transfers.offset, lost[0], side="right")) - 1
        raise FileError(
            f"{where}: transfers.route[{row}] names link {transfers.link[lost[0]]}; "
            f"links are 0..{len(schedule.topology.links) - 1}"
        )


def _generator(fields: Fields) -> Generator:
    generator = Generator(tuple(fields.column("nodes").tolist()), tuple(fields.column("chunks").tolist()))
    fields.finish()
    return generator


def _bounds(fields: Fields) -> Bounds:
    told = fields.child("latency")
    witness = told.child("witness")
    farthest = _distance(witness, "steps"), _distance(witness, "seconds")
    latency = Latency(told.whole("steps"), told.number("seconds"), *farthest)
    witness.finish()
    told.finish()
    told = fields.child("throughput")
    told.take("algbw")
    rate = told.fraction("seconds_per_byte")
    throughput = Throughput(rate, _witness(told.child("witness")) if told.has("witness") else told.take("witness"))
    told.finish()
    fields.finish()
    return Bounds(latency, throughput)


def _distance(fields: Fields, key: str) -> Distance | None:
    if not fields.has(key):
        fields.take(key)
        return None
    told = fields.child(key)
    distance = Distance(told.whole("chunk"), told.whole("src"), told.whole("dst"))
    told.finish()
    return distance


def _witness(fields: Fields) -> Witness:
    kind = fields.choice("kind", ("cut", "partition", "prices"))
    links = tuple(fields.column("links").tolist())
    share, bandwidth = fields.fraction("share"), fields.fraction("bandwidth")
    witness: Witness
    if kind == "prices":
        witness = Prices(links, fields.fractions("prices"), share, bandwidth)
    else:
        entering = fields.choice("direction", ("leaving", "entering")) == "entering"
        if kind == "cut":
            witness = Cut(tuple(fields.column("nodes").tolist()), links, share, bandwidth, entering)
        else:
            offset, flat = fields.ragged("parts")
            parts = tuple(tuple(part.tolist()) for part in np.split(flat, offset[1:-1]))
            adders = tuple(fields.column("adders").tolist()) if fields.has("adders") else ()
            witness = Partition(parts, links, share, bandwidth, entering, adders)
    fields.finish()
    return witness
