"""MSCCL++ plans: real ones are proven and run, Programs go out and come back, wrong ones get a sentence."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import syntony
from syntony import _core
from syntony.base.files.fields import FileError
from syntony.synth.checker import check_program
from syntony.synth.formats.export_options import ExportOptions
from syntony.synth.formats.loading import load, verify
from syntony.synth.formats.mscclpp.export import mscclpp_text
from syntony.synth.formats.mscclpp.program import read_mscclpp
from syntony.synth.lowering.lower import lower
from syntony.synth.model.program import Program
from syntony.synth.model.target import CONVERSION, TargetError
from tests.sampled import one_in
from tests.synth import random_executor
from tests.synth.formats import plan_executor
from tests.synth.programs import exchange, one_sided_gather, relay_broadcast

FOREIGN = Path(__file__).parents[4] / "shared" / "foreign" / "mscclpp-plans"
NAMES = ("allreduce", "allreduce_packet", "allreduce_pipeline")


def foreign(name: str) -> Path:
    path = FOREIGN / f"{name}.json"
    if not path.exists():
        pytest.skip("the foreign files are not beside this checkout")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_real_plans_are_proven_and_run_right(name: str) -> None:
    program = read_mscclpp(json.loads(foreign(name).read_text()), name)
    assert check_program(program).fault is None
    assert verify(foreign(name))
    assert program.in_place
    assert not program.out_of_place
    for seed in range(5):
        random_executor.run(program, True, random.Random(seed))


@pytest.mark.parametrize("name", NAMES)
def test_real_plans_become_two_sided_for_the_cpu(name: str) -> None:
    program = load(foreign(name))
    assert not program.one_sided
    assert program.in_place
    assert program.out_of_place == (name != "allreduce_packet")  # whose messages need no change
    for seed in range(5):
        random_executor.run(program, seed % 2 == 0 or not program.out_of_place, random.Random(seed))


@pytest.mark.parametrize(("name", "protocol"), one_in(2, NAMES, ["Simple", "LL"]))
def test_real_plans_go_out_and_come_back(name: str, protocol: str) -> None:
    plan = json.loads(
        mscclpp_text(load(foreign(name), target=CONVERSION), ExportOptions(protocol=protocol, in_place=True))
    )
    again = read_mscclpp(plan, name)
    assert check_program(again).fault is None
    assert again.in_place
    plan_executor.run(plan, random.Random(name))


def test_chunks_of_different_weights_become_equal_ones() -> None:
    plan = json.loads(mscclpp_text(relay_broadcast(), ExportOptions()))
    again = read_mscclpp(plan, "again")
    assert check_program(again).fault is None
    assert again.chunks[:, 1].tolist() == [1, 1, 1]
    plan_executor.run(plan, random.Random(1))


@pytest.mark.parametrize(
    ("network", "kind"), [("mesh:3x3", "all_reduce"), ("mesh:4x4", "all_reduce"), ("hypercube:3", "all_reduce")]
)
def test_lanes_that_wait_in_too_many_ways_are_joined(network: str, kind: str) -> None:
    """A rank of these has lanes that would need 19 semaphores or more."""
    schedule = syntony.synthesize(network, kind, engine="greedy")
    plan = json.loads(mscclpp_text(lower(schedule, CONVERSION), ExportOptions()))
    assert max(len(gpu["semaphores"]) for gpu in plan["gpus"]) <= 16
    assert check_program(read_mscclpp(plan, "again")).fault is None
    plan_executor.run(plan, random.Random(network))


@pytest.mark.parametrize(("name", "collective"), [(a.name, c) for a in _core.algorithms() for c in a.collectives])
def test_built_programs_go_out_and_come_back(name: str, collective: str) -> None:
    for ranks, protocol in ((2, "LL"), (3, "Simple"), (4, "LL")):
        program = _core.build(name, collective, ranks)
        in_place = None if collective == "all_to_all" else ranks == 4
        plan = json.loads(mscclpp_text(program, ExportOptions(protocol=protocol, in_place=in_place)))
        again = read_mscclpp(plan, "again")
        assert check_program(again).fault is None
        assert (again.collective, again.ranks) == (collective, ranks)
        plan_executor.run(plan, random.Random(ranks))


NAMED = (
    ("ring:4", "all_gather", "greedy"),
    ("ring:4", "all_reduce", "greedy"),
    ("ring:4", "all_to_all", "flow"),
    ("full:4", "reduce_scatter", "forest"),
    ("full:4", "all_to_all", "flow"),
    ("full:4,slowed=rank0-rank1@10%", "all_gather", "forest"),
    ("full:4,slowed=rank0-rank1@10%", "all_to_all", "flow"),
    ("star:4", "all_reduce", "forest"),
    ("mesh:2x3", "all_reduce", "greedy"),
    ("mesh:2x3", "all_gather", "forest"),
    ("torus:2x3", "reduce_scatter", "greedy"),
    ("hypercube:3", "all_gather", "bfb"),
    ("hypercube:3", "all_to_all", "flow"),
    ("dgx1", "all_gather", "bfb"),
    ("dgx1", "all_gather", "forest"),
    ("dgx1", "all_reduce", "forest"),
    ("dgx1", "reduce_scatter", "forest"),
    ("dgx1", "all_to_all", "flow"),
    ("rail:boxes=2,gpus=2,rails=1", "all_reduce", "greedy"),
    ("rail:boxes=2,gpus=2,rails=2", "all_gather", "forest"),
)
_CHEAP = 6


@pytest.mark.parametrize(
    ("network", "kind", "engine"),
    [pytest.param(*one, marks=() if place < _CHEAP else pytest.mark.sweep) for place, one in enumerate(NAMED)],
)
def test_twenty_schedules_mean_as_plans_what_they_are(network: str, kind: str, engine: str) -> None:
    """Interpreted from their JSON alone; what comes out is what the schedule's collective says."""
    schedule = syntony.synthesize(network, kind, engine=engine)
    assert syntony.verify(schedule)
    for protocol in ("Simple", "LL"):
        plan = json.loads(mscclpp_text(lower(schedule, CONVERSION), ExportOptions(protocol=protocol)))
        assert check_program(read_mscclpp(plan, "again")).fault is None
        plan_executor.run(plan, random.Random(network + kind))


def test_long_lanes_are_cut() -> None:
    """A ring of eight sends 14 messages per lane: more than 64 operations, so lanes go on in others."""
    plan = json.loads(mscclpp_text(_core.build("ring", "all_reduce", 8), ExportOptions()))
    assert all(len(block["ops"]) <= 64 for gpu in plan["gpus"] for block in gpu["threadblocks"])
    assert check_program(read_mscclpp(plan, "ring")).fault is None
    plan_executor.run(plan, random.Random(0))


def test_sizes_and_protocol_are_written() -> None:
    plan = json.loads(mscclpp_text(exchange(3), ExportOptions(1024, 1 << 20, "LL")))
    assert (plan["min_message_size"], plan["max_message_size"]) == (1024, 1 << 20)
    assert (plan["protocol"], plan["use_double_scratch_buffer"]) == ("LL", True)


@pytest.mark.parametrize(
    ("program", "options", "told"),
    [
        (lambda: exchange(3), {"protocol": "LL128"}, "MSCCL++ has no protocol LL128; it must be Simple or LL"),
        (lambda: exchange(12), {}, "adds 12 slots (limit 10)"),
        (
            lambda: _core.build("ring", "broadcast", 3, 1),
            {},
            "MSCCL++ plans have no root; it must be 0, not 1",
        ),
        (
            lambda: _core.build("direct", "all_to_all", 3),
            {"in_place": True},
            "in place, all_to_all would lay blocks of different ranks upon each other",
        ),
    ],
)
def test_what_a_plan_cannot_say_is_refused(program: Callable[[], Program], options: dict[str, Any], told: str) -> None:
    with pytest.raises(TargetError) as error:
        mscclpp_text(program(), ExportOptions(**options))
    assert told in str(error.value)


def test_one_sided_programs_go_out_as_messages() -> None:
    plan = json.loads(mscclpp_text(one_sided_gather(), ExportOptions()))
    assert check_program(read_mscclpp(plan, "gather")).fault is None
    plan_executor.run(plan, random.Random(0))


# --- a small plan, changed --------------------------------------------------------------------------------------------


def ends(name: str, src: list[Any], dst: list[Any], **more: Any) -> dict[str, Any]:
    def piece(row: list[Any]) -> dict[str, Any]:
        key = "buffer_id" if isinstance(row[0], int) else "type"
        return {key: row[0], "index": row[1], "size": 1}

    return {"name": name, "src_buff": [piece(p) for p in src], "dst_buff": [piece(p) for p in dst]} | more


ON = {"channel_ids": [0], "channel_type": "memory"}


def exchange_plan() -> dict[str, Any]:
    """Two ranks put their input into each other's scratch, say so, and add."""
    gpus = []
    for rank in range(2):
        terms = [["s", 0], ["i", 0]] if rank else [["i", 0], ["s", 0]]
        ops = [
            ends("put", [["i", 0]], [[0, 0]], channel_type="memory"),
            {"name": "nop"},
            {"name": "signal", **ON},
            {"name": "wait", **ON},
            {"name": "nop"},
            ends("re", terms, [["o", 0]], reduce_op="sum"),
        ]
        block = {
            "id": 0,
            "ops": ops,
            "channels": [{"channel_type": "memory", "channel_ids": [0]}],
            "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
        }
        gpus.append(
            {
                "id": rank,
                "input_chunks": 1,
                "output_chunks": 1,
                "scratch_chunks": 1,
                "threadblocks": [block],
                "channels": [{"channel_type": "memory", "connected_to": [1 - rank]}],
                "remote_buffers": [{"rank": 1 - rank, "type": "s", "access_channel_types": ["memory"]}],
                "semaphores": [],
            }
        )
    return {"name": "pair", "collective": "allreduce", "protocol": "Simple", "inplace": False, "gpus": gpus}


def test_the_small_plan_is_right() -> None:
    program = read_mscclpp(exchange_plan(), "f")
    assert check_program(program).fault is None
    plan_executor.run(exchange_plan(), random.Random(0))
    assert str(program).splitlines()[1:8] == [
        "rank 0",
        "  lane 0",
        "      0  peer_write rank 1's scratch[0] = input[0]",
        "      1  signal -> rank 1",
        "      2  wait for rank 1",
        "      3  reduce output[0] = input[0] + scratch[0]",
        "rank 1",
    ]


def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """Puts `value` at the path; a path that ends in an operation's number replaces the operation."""

    def edit(plan: dict[str, Any]) -> None:
        place: Any = plan["gpus"][0]
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return edit


OPS = ("threadblocks", 0, "ops")


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (at(*OPS, 1, value=None), "op 1 (signal): signals while threads of its block may still touch data or wait"),
        (at(*OPS, 4, value=None), "op 4 (re): data is touched after a wait without a nop in between"),
        (at(*OPS, 5, value={"name": "gstore"}), 'op 5 (gstore): "gstore" has no meaning in a Program; known are'),
        (at(*OPS, 3, value={"name": "rlxwait", **ON}), "op 3 (rlxwait): does not see the data that is waited for"),
        (at(*OPS, 2, value={"name": "rlxsignal", **ON}), "yet what it waits for is an rlxsignal; that must be signal"),
        (at(*OPS, 2, value={"name": "signal"}), "op 2 (signal): names no channel"),
        (at(*OPS, 0, "dst_buff", 0, "index", value=7), "op 0 (put): uses s[7..7] of rank 1, which has 1 chunks there"),
        (at(*OPS, 0, "dst_buff", 0, "buffer_id", value=1), "buffer_id 1 is not among the thread block's memory"),
        (at(*OPS, 0, "name", value="pws"), "op 0 (pws): signals with the data, which only port channels do"),
        (at(*OPS, 0, "name", value="ppkt"), 'op 0 (ppkt): moves packets, yet the protocol is "Simple"'),
        (at(*OPS, 5, "reduce_op", value="max"), 'reduce_op is "max"; it must be "sum"'),
        (at(*OPS, 2, "channel_ids", value=[3]), "ops[2].channel_ids[0] is 3; it must be below 1"),
        (at(*OPS, 1, value={"name": "sem_acquire", "semaphore_ids": [0]}), "semaphore_ids[0] is 0; it must be below 0"),
        (at("id", value=1), "gpus[0].id is 1; gpus are listed in the order of their ranks; it must be 0"),
        (at("input_chunks", value=0), None),
        (at("output_chunks", value=3), "gpus[0].output_chunks is 3; it must be 1 for all_reduce"),
        (at("channels", 0, "connected_to", value=[0]), "connected_to[0] is 0; it must be another rank 0..1"),
        (at("channels", 0, "channel_type", value="wire"), "it must be one of memory, port, switch, none"),
        (at("remote_buffers", 0, "rank", value=2), "remote_buffers[0].rank is 2; ranks are 0..1"),
    ],
)
def test_changed_plans(edit: Callable[[dict[str, Any]], None], told: str | None) -> None:
    plan = copy.deepcopy(exchange_plan())
    edit(plan)
    if told is None:
        assert check_program(read_mscclpp(plan, "f"))
        return
    with pytest.raises(FileError) as error:
        read_mscclpp(plan, "f")
    assert str(error.value).startswith("f: ")
    assert told in str(error.value)


def test_a_missing_wait_is_a_race() -> None:
    plan = exchange_plan()
    plan["gpus"][0]["threadblocks"][0]["ops"][3:5] = []
    plan["gpus"][1]["threadblocks"][0]["ops"][2] = {"name": "nop"}
    verdict = check_program(read_mscclpp(plan, "f"))
    assert not verdict
    assert "scratch[0] of rank 0" in (verdict.fault or "")


def test_groups_of_thread_blocks_share_chunks() -> None:
    """Two thread blocks of a group put half a chunk each; one that takes the wrong half leaves the other unwritten."""
    plan = exchange_plan()
    for gpu in plan["gpus"]:
        (block,) = gpu["threadblocks"]
        gpu["channels"][0]["connected_to"] *= 2
        gpu["threadblocks"] = []
        for number in range(2):
            twin = copy.deepcopy(block)
            twin["id"] = twin["channels"][0]["channel_ids"][0] = number
            for op in (twin["ops"][0], twin["ops"][5]):
                op["tbg_info"] = {"tb_id": number, "tbg_size": 2}
            gpu["threadblocks"].append(twin)
    program = read_mscclpp(plan, "f")
    assert len(program.chunks) == 2
    assert check_program(program).fault is None
    plan["gpus"][0]["threadblocks"][0]["ops"][5]["tbg_info"]["tb_id"] = 1
    assert not check_program(read_mscclpp(plan, "f"))


def port_plan(signal: list[dict[str, Any]]) -> dict[str, Any]:
    """Rank 0 puts its block into rank 1's output through a port channel and then overwrites what it sent."""
    on = {"channel_ids": [0], "channel_type": "port"}
    ops = [
        ends("copy", [["i", 0]], [["o", 0]]),
        ends("copy", [["i", 0]], [["s", 0]]),
        {"name": "nop"},
        ends("put", [["s", 0]], [[0, 0]], **on),
        {"name": "signal", **on},
        *signal,
        {"name": "nop"},
        ends("copy", [["i", 0]], [["s", 0]]),
    ]
    ops = [op for op in ops if op]
    ops.insert(4, {"name": "nop"})
    buffers = [{"access_channel_type": "port", "remote_buffer_ids": [0]}]
    channels = [{"channel_type": "port", "channel_ids": [0]}]
    root = {"id": 0, "ops": ops, "channels": channels, "remote_buffer_refs": buffers}
    leaf = {"id": 0, "ops": [{"name": "wait", **on}], "channels": channels, "remote_buffer_refs": []}
    gpus = [
        {
            "id": rank,
            "input_chunks": 1,
            "output_chunks": 1,
            "scratch_chunks": 1,
            "threadblocks": [block],
            "channels": [{"channel_type": "port", "connected_to": [1 - rank]}],
            "remote_buffers": [{"rank": 1, "type": "o", "access_channel_types": ["port"]}] if rank == 0 else [],
        }
        for rank, block in enumerate((root, leaf))
    ]
    return {"name": "port", "collective": "broadcast", "protocol": "Simple", "inplace": False, "gpus": gpus}


def test_ports_put_when_they_get_there() -> None:
    """What a port channel sends must stay until it is flushed."""
    flush = {"name": "flush", "channel_ids": [0], "channel_type": "port"}
    assert check_program(read_mscclpp(port_plan([flush]), "f")).fault is None
    verdict = check_program(read_mscclpp(port_plan([]), "f"))
    assert "races with" in (verdict.fault or "")
