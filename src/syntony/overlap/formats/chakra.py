"""Reads and writes Chakra execution traces for ASTRA-sim and other cluster simulators (`*.et`, a file per device).

    file = (length, message)*        the first message is GlobalMetadata, the others are Nodes
    Node   id 1, name 2, type 3, ctrl_deps 4, data_deps 5, start 6 and duration 7 (us), attr 10
    attr   name 1, and a value of one of thirty types; the names read here: comm_type, comm_size, comm_src, comm_dst,
           comm_tag, pg_name, num_ops

After `schema/protobuf/et_def.proto` of mlcommons/chakra. The order of a lane becomes ctrl_deps. Chakra cannot express
layers, pieces and edges into the next step, so a plan's text is stored in an attribute of the metadata, and our own
files are read back unchanged. Traces of other tools become plans too: compute in lane `compute`, collectives in the
lane of their process group, messages in `pp`, all in file order. The two ends of a message are matched by source,
destination and tag.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from syntony.base.command import UserError
from syntony.base.files.whole_file import write_bytes
from syntony.overlap.formats.wire import WireError, field, fields, numbers, packed, read_bytes, varint
from syntony.overlap.policies.orders import in_order
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.op import COMPUTE, Kind, Op
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan

VERSION = "0.0.4"
LARGEST = 1 << 28
"""Largest file that is read, in bytes."""

_METADATA, _COMP, _SEND, _RECV, _COLL = 1, 4, 5, 6, 7
_TYPES = {Kind.SEND: _SEND, Kind.RECV: _RECV}
_COLLECTIVES = {
    Kind.ALL_REDUCE: 0,
    Kind.ALL_GATHER: 2,
    Kind.BROADCAST: 5,
    Kind.ALL_TO_ALL: 6,
    Kind.REDUCE_SCATTER: 7,
}
_KINDS = {number: kind for kind, number in _COLLECTIVES.items()} | {8: Kind.REDUCE_SCATTER}
_VARINTS, _TEXT, _BOOL, _PLAN = {7, 9, 11, 13}, 29, 27, "syntony"
_DEVICE = re.compile(r"(.+)\.(\d+)\.et")
_Told = int | str | bool
Times = Mapping[OpKey, tuple[float, float]]


@dataclass(frozen=True)
class Recorded:
    """The contents of a trace: the step in order, and by Op's key begin and end in seconds, if the trace has them."""

    plan: Plan
    times: Times

    @property
    def seconds(self) -> dict[OpKey, float]:
        """How long each took."""
        return {key: end - begin for key, (begin, end) in self.times.items()}


def write_chakra(plan: Plan, path: str | Path, times: Times = MappingProxyType({})) -> list[Path]:
    """Writes `F.et`, or `F.0.et`, `F.1.et` .. for several devices; `times`: begin and end by Op's key.

    The first begin is time 0. Chakra's times are whole microseconds; shorter Ops get none.

    Raises UserError if a file cannot be written.
    """
    path, graph = Path(path), plan.graph
    ids = {op.key: number for number, op in enumerate(graph)}
    before = {key: ids[last] for order in plan.orders.values() for last, key in pairwise(order)}
    first = min((begin for begin, _ in times.values()), default=0.0)
    metadata = field(1, VERSION) + field(2, _attribute(_PLAN, plan.text))
    written = []
    for device in graph.devices:
        nodes = [_node(op, ids, before, graph) + _when(times.get(op.key), first) for op in graph if op.device == device]
        target = path if len(graph.devices) == 1 else path.with_suffix(f".{device}.et")
        write_bytes(target, b"".join(varint(len(message)) + message for message in [metadata, *nodes]))
        written.append(target)
    return written


def _when(span: tuple[float, float] | None, first: float) -> bytes:
    begin, end = (round((moment - first) * 1e6) for moment in span or (first, first))
    return field(6, begin) + field(7, end - begin) if end > begin else b""


def _node(op: Op, ids: Mapping[OpKey, int], before: Mapping[OpKey, int], graph: Graph) -> bytes:
    kind = _TYPES.get(op.kind, _COLL if op.kind.moves else _COMP)
    message = field(1, ids[op.key]) + field(2, str(op.key)) + field(3, kind)
    message += packed(4, [before[op.key]] if op.key in before else [])
    message += packed(5, [ids[key] for key in op.deps if graph[key].device == op.device])
    told: dict[str, _Told] = {"is_cpu_op": False}
    if kind == _COMP:
        told |= {"num_ops": round(op.amount), "tensor_size": 0}
    else:
        told |= {"comm_size": round(op.amount), "pg_name": op.lane}
    if kind == _COLL:
        told["comm_type"] = _COLLECTIVES[Kind.ALL_TO_ALL if op.kind is Kind.SHIFT else op.kind]
    elif kind in (_SEND, _RECV):
        ends = (op.device, op.peer) if kind == _SEND else (op.peer, op.device)
        told |= {"comm_src": ends[0], "comm_dst": ends[1], "comm_tag": ids.get(op.key.sender, ids[op.key])}
    return message + b"".join(field(10, _attribute(name, value)) for name, value in told.items())


def _attribute(name: str, value: _Told) -> bytes:
    number = _BOOL if isinstance(value, bool) else 9 if isinstance(value, int) else _TEXT
    return field(1, name) + field(number, value)


def read_chakra(path: str | Path) -> Recorded:
    """Reads a trace, or all devices' if `path` is one of `F.0.et`, `F.1.et` ..

    Raises UserError that names file and node if a file is unreadable or not a trace.
    """
    path = Path(path)
    match = _DEVICE.fullmatch(path.name)
    found = {0: path}
    if match:
        beside = ((_DEVICE.fullmatch(other.name), other) for other in sorted(path.parent.glob("*.et")))
        found = {int(own[2]): other for own, other in beside if own and own[1] == match[1]} or found
    ops: list[tuple[Op, int]] = []  # with the tags of messages
    times: dict[OpKey, tuple[float, float]] = {}
    text = ""
    for device, file in sorted(found.items()):
        try:
            text = _read(file, device, ops, times) or text
        except (WireError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: not a Chakra trace: {error}") from None
    if text:
        plan = Plan.from_text(text, f"{path}: its plan")
        return Recorded(plan, {key: span for key, span in times.items() if key in plan.graph.by_key})
    graph = Graph(tuple(_paired(ops, path)))
    plan = Plan("recorded", graph, in_order(graph))
    plan.check()
    return Recorded(plan, {key: span for key, span in times.items() if key in graph.by_key})


def _read(file: Path, device: int, ops: list[tuple[Op, int]], times: dict[OpKey, tuple[float, float]]) -> str:
    """Adds a device's Ops; returns the plan's text, if the trace contains one."""
    try:
        if file.stat().st_size > LARGEST:
            raise UserError(f"{file} has {file.stat().st_size} bytes; traces are read up to {LARGEST}")
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    metadata, at = read_bytes(data, 0)
    told = dict(
        _read_attribute(value) for number, value in fields(metadata) if number == 2 and isinstance(value, bytes)
    )
    nodes: dict[int, _Node] = {}
    while at < len(data):
        message, at = read_bytes(data, at)
        node = _Node.read(message)
        if node.id in nodes:
            raise UserError(f"{file}: two nodes have the id {node.id}")
        nodes[node.id] = node
    for node in nodes.values():
        for dep in node.deps:
            if dep not in nodes:
                raise UserError(f"{file}: node {node.id} ({node.name}) waits for node {dep}, which is not there")
    # Metadata nodes are not tasks. Their names need not be unique, but those of tasks must be.
    tasks = {id: node for id, node in nodes.items() if node.type != _METADATA}
    often, taken = Counter(node.name for node in tasks.values()), {str(op.key) for op, _ in ops}
    keys = {
        id: OpKey.parse(node.name if often[node.name] == 1 and node.name not in taken else f"{node.name}#{device}.{id}")
        for id, node in tasks.items()
    }
    for id, node in tasks.items():
        ops.append(node.op(device, keys[id], tuple(keys[dep] for dep in node.deps if dep in keys), file))
        if node.microseconds:
            times[keys[id]] = (node.start / 1e6, (node.start + node.microseconds) / 1e6)
    return str(told.get(_PLAN) or "")


@dataclass(frozen=True)
class _Node:
    id: int
    name: str
    type: int
    deps: tuple[int, ...]
    start: int
    microseconds: int
    told: Mapping[str, object]

    @classmethod
    def read(cls, message: bytes) -> _Node:
        whole = dict.fromkeys((1, 3, 6, 7), 0)
        name, deps, told = "", list[int](), dict[str, object]()
        for number, value in fields(message):
            if number in whole and isinstance(value, int):
                whole[number] = value
            elif number == 2 and isinstance(value, bytes):
                name = value.decode()
            elif number in (4, 5):
                deps += numbers(value)
            elif number == 10 and isinstance(value, bytes):
                key, one = _read_attribute(value)
                told[key] = one
        return cls(whole[1], name or f"node {whole[1]}", whole[3], tuple(dict.fromkeys(deps)), whole[6], whole[7], told)

    def op(self, device: int, key: OpKey, deps: tuple[OpKey, ...], file: Path) -> tuple[Op, int]:
        """The Op that the node represents, and its tag."""
        if self.type not in (_SEND, _RECV, _COLL):
            return Op(key, Kind.FORWARD, device, COMPUTE, float(self._whole("num_ops", file, 0)), deps), 0
        size = float(self._whole("comm_size", file))
        if self.type == _COLL:
            number = self._whole("comm_type", file)
            if number not in _KINDS:
                raise UserError(
                    f"{file}: node {self.id} ({self.name}) is a collective of type {number}; "
                    f"known are {', '.join(map(str, sorted(_KINDS)))}"
                )
            return Op(key, _KINDS[number], device, str(self.told.get("pg_name") or "group"), size, deps), 0
        kind, end = (Kind.SEND, "comm_dst") if self.type == _SEND else (Kind.RECV, "comm_src")
        return Op(key, kind, device, "pp", size, deps, peer=self._whole(end, file)), self._whole("comm_tag", file, 0)

    def _whole(self, name: str, file: Path, otherwise: int | None = None) -> int:
        value = self.told.get(name, otherwise)
        if not isinstance(value, int):
            raise UserError(f"{file}: node {self.id} ({self.name}) has no whole number {name}")
        return value


def _read_attribute(data: bytes) -> tuple[str, object]:
    """Name and value; None for types that are not used here."""
    name = ""
    told: object = None
    for number, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            name = value.decode()
        elif number in _VARINTS and isinstance(value, int):
            told = value - 2**64 if number in (7, 9) and value >= 2**63 else value
        elif number == _TEXT and isinstance(value, bytes):
            told = value.decode()
    return name, told


def _paired(ops: list[tuple[Op, int]], path: Path) -> Iterator[Op]:
    """Renames messages so that both ends match: send.X and recv.X. Raises UserError if one end is missing."""
    keys: dict[OpKey, OpKey] = {}
    sends: dict[tuple[int, int, int], list[Op]] = {}
    for op, tag in ops:
        if op.kind is Kind.SEND:
            sends.setdefault((op.device, op.peer, tag), []).append(op)
    for op, tag in ops:
        if op.kind is Kind.RECV:
            waiting = sends.get((op.peer, op.device, tag))
            if not waiting:
                raise UserError(f"{path}: {op.key!r} receives from device {op.peer} with tag {tag}: nobody sends that")
            received = OpKey.parse(f"recv.{op.peer}.{op.device}.{tag}.{len(waiting)}")
            keys |= {waiting.pop(0).key: received.sender, op.key: received}
    for left in sends.values():
        for op in left:
            raise UserError(f"{path}: {op.key!r} sends to device {op.peer}, where nothing receives it")
    for op, _ in ops:
        yield op._replace(key=keys.get(op.key, op.key), deps=tuple(keys.get(dep, dep) for dep in op.deps))
