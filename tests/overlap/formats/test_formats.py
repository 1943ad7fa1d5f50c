"""Traces go out and come back as they were, other readers see what was meant, and hostile files get a sentence."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.overlap.formats.chakra import read_chakra, write_chakra
from syntony.overlap.formats.perfetto import planned, write_trace
from syntony.overlap.formats.wire import field, packed, read_varint, varint
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.op import COMPUTE, Kind
from tests.overlap.plans import COST, LAYOUTS, in_order, key, step
from tests.sampled import examples


@examples(20)
@given(layout=LAYOUTS)
def test_chakra_round_trip(tmp_path_factory: pytest.TempPathFactory, layout: Layout) -> None:
    plan = in_order(step(layout))
    timeline = simulate(plan, COST)
    spans = zip(timeline.start.tolist(), timeline.end.tolist(), strict=True)
    times = dict(zip(timeline.row, spans, strict=True))
    folder = tmp_path_factory.mktemp("traces")
    files = write_chakra(plan, folder / "step.et", times)
    assert len(files) == layout.pp
    found = read_chakra(files[-1])
    assert found.plan.text == plan.text
    first = min(begin for begin, _ in times.values())
    for name, (begin, end) in times.items():
        if end - begin > 1e-6:
            assert found.times[name] == pytest.approx((begin - first, end - first), abs=2e-6)


def _messages() -> Any:
    """The part of et_def.proto that is used, compiled by protobuf itself."""
    descriptor = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory  # type: ignore[import-untyped]

    file = descriptor.FileDescriptorProto(name="et.proto", package="t", syntax="proto3")
    rows: dict[str, list[tuple[str, int, int, bool]]] = {  # name, number, type, repeated
        "Attr": [("name", 1, 9, False), ("int64_val", 9, 3, False), ("bool_val", 27, 8, False),
                 ("string_val", 29, 9, False)],
        "Node": [("id", 1, 4, False), ("name", 2, 9, False), ("type", 3, 5, False), ("ctrl_deps", 4, 4, True),
                 ("data_deps", 5, 4, True), ("duration_micros", 7, 4, False), ("attr", 10, 11, True)],
    }  # fmt: skip
    for name, entries in rows.items():
        message = file.message_type.add(name=name)
        for entry, number, kind, repeated in entries:
            one = message.field.add(name=entry, number=number, type=kind, label=3 if repeated else 1)
            if kind == 11:
                one.type_name = ".t.Attr"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Node"))


def _nodes(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        length, at = read_varint(data, at)
        found.append(data[at : at + length])
        at += length
    return found[1:]


def test_protobuf_reads_what_was_written(tmp_path: Path) -> None:
    node_of = _messages()
    plan = in_order(step(Layout(dp=2, pp=2, microbatches=2, zero=1)))
    for device, file in enumerate(write_chakra(plan, tmp_path / "step.et", {key("fwd.0.0"): (1.0, 1.25)})):
        nodes = [node_of.FromString(node) for node in _nodes(file)]
        assert [node.name for node in nodes] == [str(op.key) for op in plan.graph if op.device == device]
        by_id = {node.id: key(node.name) for node in nodes}
        for node in nodes:
            op = plan.graph[key(node.name)]
            told = {one.name: one for one in node.attr}
            assert {by_id[dep] for dep in node.data_deps} == {
                name for name in op.deps if plan.graph[name].device == device
            }
            order = plan.orders[op.device, op.lane]
            assert [by_id[dep] for dep in node.ctrl_deps] == list(order[: order.index(op.key)][-1:])
            types = {Kind.SEND: 5, Kind.RECV: 6}
            assert node.type == types.get(op.kind, 7 if op.kind.moves else 4)
            if op.kind.moves:
                assert (told["comm_size"].int64_val, told["pg_name"].string_val) == (op.amount, op.lane)
            assert node.duration_micros == (250_000 if op.key == key("fwd.0.0") else 0)


def _foreign(*nodes: bytes) -> bytes:
    return b"".join(varint(len(message)) + message for message in [field(1, "0.0.4"), *nodes])


def _told(**values: int | str) -> bytes:
    return b"".join(
        field(10, field(1, key) + field(9 if isinstance(value, int) else 29, value)) for key, value in values.items()
    )


def _node(number: int, name: str, kind: int, deps: list[int], **values: int | str) -> bytes:
    return field(1, number) + field(2, name) + field(3, kind) + packed(5, deps) + field(7, 1000) + _told(**values)


def test_others_traces_become_plans(tmp_path: Path) -> None:
    (tmp_path / "run.0.et").write_bytes(
        _foreign(
            _node(1, "gemm", 4, [], num_ops=10**9),
            _node(2, "all reduce", 7, [1], comm_type=0, comm_size=4096, pg_name="3"),
            _node(3, "gemm", 4, [2]),
            _node(4, "p2p", 5, [3], comm_size=64, comm_src=0, comm_dst=1, comm_tag=7),
            _node(9, "about", 1, []),
        )
    )
    (tmp_path / "run.1.et").write_bytes(
        _foreign(_node(1, "take", 6, [], comm_size=64, comm_src=0, comm_dst=1, comm_tag=7), _node(2, "end", 4, [1]))
    )
    found = read_chakra(tmp_path / "run.1.et")
    graph = found.plan.graph
    assert [op.key for op in graph] == [
        key("gemm#0.1"),
        key("all reduce"),
        key("gemm#0.3"),
        key("send.0.1.7.1"),
        key("recv.0.1.7.1"),
        key("end"),
    ]
    assert graph[key("all reduce")].lane == "3"
    assert graph[key("all reduce")].kind is Kind.ALL_REDUCE
    assert graph[key("all reduce")].deps == (key("gemm#0.1"),)
    assert graph[key("end")].deps == (key("recv.0.1.7.1"),)
    assert found.seconds[key("gemm#0.1")] == pytest.approx(1e-3)


GOOD = _foreign(
    _node(1, "gemm", 4, [], num_ops=10**9), _node(2, "sum", 7, [1], comm_type=0, comm_size=4096, pg_name="dp")
)


@examples(300)
@given(at=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255), cut=st.booleans())
def test_damaged_traces_get_a_sentence(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, cut: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.et"
    path.write_bytes(GOOD[:at] if cut else GOOD[:at] + bytes([byte]) + GOOD[at + 1 :])
    error = ""
    try:
        read_chakra(path)
    except UserError as refused:
        error = str(refused)
    assert not error or "damaged.et" in error or "circle" in error


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "ends in the middle of a number"),
        (b"\xff" * 30, "longer than 64 bits"),
        (b"\x7fabc", "127 bytes are announced"),
        (_foreign(_node(1, "a", 4, [5])), "waits for node 5, which is not there"),
        (_foreign(_node(1, "a", 4, []), _node(1, "b", 4, [])), "two nodes have the id 1"),
        (_foreign(_node(1, "a", 7, [], comm_size=4)), "no whole number comm_type"),
        (_foreign(_node(1, "a", 7, [], comm_size=4, comm_type=99)), "collective of type 99"),
        (_foreign(_node(1, "a", 6, [], comm_size=4, comm_src=3)), "nobody sends that"),
        (_foreign(_node(1, "a", 4, [2]), _node(2, "b", 4, [1])), "circle"),
    ],
)
def test_refusals(tmp_path: Path, data: bytes, sentence: str) -> None:
    path = tmp_path / "bad.et"
    path.write_bytes(data)
    with pytest.raises(UserError, match=sentence):
        read_chakra(path)


def test_a_picture_has_every_op_in_its_place(tmp_path: Path) -> None:
    plan = in_order(step(Layout(dp=2, pp=2, tp=2, microbatches=4, zero=1)))
    timeline = simulate(plan, COST)
    write_trace(planned(timeline), tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    boxes = [event for event in events if event["ph"] == "X"]
    assert sorted(box["name"] for box in boxes) == sorted(str(op.key) for op in plan.graph)
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    for box in boxes:
        op = plan.graph[key(box["name"])]
        assert (box["pid"], names[box["pid"], box["tid"]]) == (op.device, op.lane)
        assert box["ts"] == pytest.approx(1e6 * timeline.start[timeline.row[op.key]])
    for device in (0, 1):
        spans = sorted(
            (b["ts"], b["ts"] + b["dur"]) for b in boxes if b["pid"] == device and names[device, b["tid"]] == COMPUTE
        )
        assert all(a[1] <= b[0] + 1e-6 for a, b in itertools.pairwise(spans))
    arrows = {event["id"]: event for event in events if event["ph"] == "s"}
    assert arrows
    assert {event["id"] for event in events if event["ph"] == "f"} == arrows.keys()
