"""The checker of Programs: right ones are proven, and each kind of wrong one is named by its first fault."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.checker import check_program, least_fifo_depth, prove
from syntony.synth.checker.programs.memory import Sums
from syntony.synth.formats.program_file import from_dict, program_text
from syntony.synth.model.instructions import INSTRUCTION_FIELDS, Opcode
from syntony.synth.model.program import Program
from tests.synth import random_executor
from tests.synth.programs import exchange, one_sided_gather, one_sided_relay, program, relay_broadcast, ring_all_reduce
from tests.synth.unvalidated import unvalidated

VALID: dict[str, Callable[[], Program]] = {
    "ring 2": lambda: ring_all_reduce(2),
    "ring 3": lambda: ring_all_reduce(3),
    "ring 7": lambda: ring_all_reduce(7),
    "exchange 2": lambda: exchange(2),
    "exchange 5": lambda: exchange(5),
    "relay": relay_broadcast,
    "one-sided gather": one_sided_gather,
    "one-sided relay": lambda: one_sided_relay(order=True),
}


def edit(original: Program, row: int, **values: int) -> Program:
    """The Program with some fields of one instruction changed."""
    instructions = original.instructions.copy()
    for name, value in values.items():
        instructions[row, INSTRUCTION_FIELDS.index(name)] = value
    return original.replace(instructions=instructions)


@pytest.mark.parametrize("name", VALID)
def test_valid_programs_are_proven_and_run_right(name: str) -> None:
    found = VALID[name]()
    assert prove(found).fault is None
    for seed in range(10):
        for in_place in (False, True):
            random_executor.run(found, in_place, random.Random(seed))


@given(st.integers(2, 12))
def test_ring_needs_fifo_depth_two(ranks: int) -> None:
    """Each rank sends on as a whole (message and room at once), so a full ring of depth 1 stands still."""
    found = ring_all_reduce(ranks)
    assert least_fifo_depth(found) == 2
    verdict = check_program(found, 1)
    assert not verdict.valid
    assert verdict.fault is not None
    assert verdict.fault.startswith("rank 0, lane 0, instruction 1 (recv_reduce_")
    assert f"deadlock at FIFO depth 1 after {ranks} of {2 * ranks * ranks - ranks} instructions" in verdict.fault
    assert len(verdict.timeline) == ranks + 1
    assert verdict.timeline[-1].count("->") == ranks


def test_a_lane_that_waits_for_itself() -> None:
    lanes = [[{"op": "copy", "dst": ["output", 0], "src": ["input", 0], "after": [[0, 1]]}, {"op": "nop"}]]
    verdict = check_program(unvalidated("all_reduce", [[0, 1]], [([0], [0], [], lanes)]))
    assert "deadlock at any FIFO depth after 0 of 2 instructions" in (verdict.fault or "")
    assert "in a circle of 1 lane" in (verdict.fault or "")
    assert verdict.timeline == (
        "rank 0 lane 0 [!.]" + " " * 22 + " 0 (copy) waits for rank 0, lane 0, instruction 1 (nop)",
        "circle: rank 0 lane 0 -> rank 0 lane 0",
    )


def test_a_circle_of_messages_closes_at_any_depth() -> None:
    """Both ranks receive before they send, in one lane; a full ring elsewhere does not hide it."""
    lane = [{"op": "recv", "dst": ["output", 1], "from": 1}, {"op": "send", "src": ["input", 0], "to": 1}]
    mirrored = [{"op": "recv", "dst": ["output", 0], "from": 0}, {"op": "send", "src": ["input", 0], "to": 0}]
    found = program("all_gather", [[0, 1], [1, 1]], [([0], [0, 1], [], [lane]), ([1], [0, 1], [], [mirrored])])
    assert least_fifo_depth(found) is None
    assert "deadlock at any FIFO depth after 0 of 4 instructions" in fault_of(found)


def fault_of(found: Program) -> str:
    verdict = check_program(found)
    assert not verdict.valid
    assert verdict.fault is not None
    return verdict.fault


def test_missing_dependency_is_a_race() -> None:
    found = relay_broadcast()
    instructions = found.instructions.copy()
    row = next(i for i, values in enumerate(instructions) if values[0] == 1 and values[1] == 1)
    instructions[row, INSTRUCTION_FIELDS.index("dependency_count")] = 0
    broken = found.replace(instructions=instructions, dependencies=found.dependencies[1:])
    told = (
        "rank 1, lane 1, instruction 0 (send): races with rank 1, lane 0, instruction 0 (recv) for output[0] of rank 1"
    )
    assert fault_of(broken).startswith(told)


def test_in_place_alone_can_be_wrong() -> None:
    """Out of place the sum may overwrite the output at any time; in place the senders still read it."""
    found = exchange(3)
    keep = found.dependencies[:, 0] >= 2  # the sum no longer waits for its rank's two senders
    instructions = found.instructions.copy()
    instructions[instructions[:, 2] == Opcode.reduce, INSTRUCTION_FIELDS.index("dependency_count")] = 2
    broken = found.replace(instructions=instructions, dependencies=found.dependencies[keep])
    assert "lane 0, instruction 0 (send) for input[0] of rank" in fault_of(broken)
    assert "(in place)" in fault_of(broken)
    assert check_program(broken.replace(in_place=False)).valid


def test_order_through_other_ranks_counts_for_the_same_chunk() -> None:
    """Rank 0 sends from scratch and reuses the slot in another lane once the message has come back."""
    first = [
        {"op": "copy", "dst": ["scratch", 0], "src": ["input", 0]},
        {"op": "send", "src": ["scratch", 0], "to": 1},
    ]
    second = [
        {"op": "recv", "dst": ["scratch", 0], "from": 1},
        {"op": "copy", "dst": ["output", 0], "src": ["scratch", 0]},
    ]
    echo = [{"op": "recv", "dst": ["output", 0], "from": 0}, {"op": "send", "src": ["output", 0], "to": 0}]
    found = program("broadcast", [[0, 1]], [([0], [0], [0], [first, second]), ([], [0], [], [echo])])
    assert prove(found).valid


def test_order_through_another_chunk_does_not_count() -> None:
    """Where chunk 1 is empty, its messages are not sent: they order nothing for chunk 0."""
    first = [
        {"op": "copy", "dst": ["scratch", 0], "src": ["input", 0]},
        {"op": "send", "src": ["input", 1], "to": 1},
        {"op": "send", "src": ["input", 0], "to": 1, "channel": 1},
    ]
    second = [
        {"op": "recv", "dst": ["output", 1], "from": 1},
        {"op": "copy", "dst": ["output", 0], "src": ["scratch", 0]},
    ]
    echo = [
        {"op": "recv", "dst": ["output", 1], "from": 0},
        {"op": "send", "src": ["output", 1], "to": 0},
        {"op": "recv", "dst": ["output", 0], "from": 0, "channel": 1},
    ]
    agents = [([0, 1], [0, 1], [0], [first, second]), ([], [0, 1], [], [echo])]
    found = program("broadcast", [[0, 1], [0, 1]], agents)
    assert "races with rank 0, lane 0, instruction 0 (copy) for scratch[0] of rank 0 (chunk 0)" in fault_of(found)


def test_one_sided_access_without_a_signal_is_refused() -> None:
    fault = fault_of(one_sided_relay(order=False))
    assert fault.startswith("rank 1, lane 0, instruction 0 (copy): ")
    assert "races with rank 0, lane 0, instruction 0 (peer_write) for scratch[0] of rank 1 (chunk 0)" in fault


def test_one_sided_write_races_with_its_owner() -> None:
    """Rank 0 overwrites what rank 1 may still be reading."""
    write = {"op": "peer_write", "dst": ["scratch", 0], "src": ["input", 0], "to": 1}
    root = [[write, {"op": "signal", "to": 1}, write], [{"op": "copy", "dst": ["output", 0], "src": ["input", 0]}]]
    reader = [[{"op": "wait", "from": 0}, {"op": "copy", "dst": ["output", 0], "src": ["scratch", 0]}]]
    found = program("broadcast", [[0, 1]], [([0], [0], [], root), ([], [0], [0], reader)])
    assert "races with" in fault_of(found)


def test_each_contribution_once() -> None:
    lanes = [[{"op": "reduce", "dst": ["output", 0], "src": ["input", 0], "operands": [["input", 0]]}]]
    found = program("all_reduce", [[0, 1]], [([0], [0], [], lanes)], in_place=False)
    assert "sums the contribution of rank 0 to chunk 0 twice (out of place)" in fault_of(found)


def test_missing_contribution() -> None:
    found = ring_all_reduce(3)
    row = next(i for i, op in enumerate(found.field("opcode")) if op == Opcode.recv_reduce_send)
    fault = fault_of(edit(found, row, opcode=Opcode.recv_copy_send, dst_space=1, dst_index=2))
    assert "ends without the contribution of rank 0" in fault


def test_sums_in_different_orders_are_not_equal_to_the_bit() -> None:
    found = exchange(3)
    operands = found.operands.copy()
    instructions = found.instructions.copy()
    row = int(np.flatnonzero(instructions[:, 2] == Opcode.reduce)[1])  # rank 1 sums 0 + 1 + 2
    instructions[row, 5:7], operands[3] = operands[3].copy(), instructions[row, 5:7].copy()  # now 2 + 1 + 0
    fault = fault_of(found.replace(operands=operands, instructions=instructions))
    assert "is summed as" in fault
    assert "rank 0 sums it as ((0 + 1) + 2)" in fault or "(0 + 1 + 2)" in fault


def test_rounding_must_be_admitted() -> None:
    assert "yet the program does not say rounds_per_hop" in fault_of(ring_all_reduce(3, rounds_per_hop=False))


def test_two_lanes_on_one_connection() -> None:
    lanes = [[{"op": "send", "src": ["input", k], "to": 1}] for k in range(2)]
    copies = [{"op": "copy", "dst": ["output", 0], "src": ["input", 0], "count": 2}]
    receive = [{"op": "recv", "dst": ["output", k], "from": 0} for k in range(2)]
    agents = [([0, 1], [0, 1], [], [*lanes, copies]), ([], [0, 1], [], [receive])]
    found = unvalidated("broadcast", [[0, 1]] * 2, agents)
    fault = fault_of(found)
    assert fault == (
        "rank 0, lane 1, instruction 0 (send): rank 0 -> rank 1 on channel 0 is already fed by "
        "rank 0, lane 0, instruction 0 (send); a connection must be fed by one lane, so that order matches messages"
    )


def test_messages_that_do_not_match() -> None:
    found = relay_broadcast()
    assert "which nobody sends" in fault_of(edit(found, 1, opcode=Opcode.nop, send_peer=-1))
    last = len(found.instructions) - 1
    assert "which nobody receives" in fault_of(edit(found, last, opcode=Opcode.nop, recv_peer=-1))
    swapped = edit(edit(found, last - 1, dst_index=1), last, dst_index=0)
    verdict = check_program(swapped)
    assert (verdict.agent, verdict.lane, verdict.instruction, verdict.chunk) == (2, 0, 0, 0)
    assert "takes chunk 0 in a slot of another chunk, output[1] of rank 2 (chunk 1)" in (verdict.fault or "")


def test_a_signal_is_no_data() -> None:
    root = [[{"op": "signal", "to": 1}], [{"op": "copy", "dst": ["output", 0], "src": ["input", 0]}]]
    found = program(
        "broadcast",
        [[0, 1]],
        [([0], [0], [], root), ([], [0], [], [[{"op": "recv", "dst": ["output", 0], "from": 0}]])],
    )
    assert "a wait takes signals, and only they" in fault_of(found)


def test_the_users_input_is_not_written() -> None:
    lanes = [
        [
            {"op": "copy", "dst": ["output", 0], "src": ["input", 0]},
            {"op": "copy", "dst": ["input", 0], "src": ["output", 0]},
        ]
    ]
    agents = [([0], [0], [], lanes)]
    assert "which is the user's" in fault_of(unvalidated("all_reduce", [[0, 1]], agents))
    assert prove(program("all_reduce", [[0, 1]], agents, out_of_place=False)).valid


def test_ranks_may_choose_their_memory_mode_one_by_one() -> None:
    """After the sum, `input` is the own contribution out of place and the sum in place."""
    found = exchange(2)
    lanes = json.loads(program_text(found))["agents"][0]["lanes"]
    lanes[2].append({"op": "copy", "dst": ["scratch", 1], "src": ["input", 0]})
    document = json.loads(program_text(found))
    document["agents"][0] |= {"lanes": lanes, "scratch": [0, 0]}
    fault = fault_of(from_dict(document, "here"))
    assert fault == (
        "rank 0, lane 2, instruction 1 (copy): gives 0 out of place but (0 + 1) in place; "
        "ranks that choose differently would disagree"
    )


def test_deep_sums_are_told_in_short() -> None:
    """The tree of a long ring is deeper than Python recurses."""
    sums = Sums(5000)
    total = 0
    for rank in range(1, 5000):
        total = sums.add([rank, total])
    assert sums.text(total).startswith("(4999 + (4998 + (")
    assert len(sums.text(total)) < 80


def test_overlap_inside_one_instruction() -> None:
    lanes = [
        [
            {"op": "copy", "dst": ["scratch", 0], "src": ["input", 0]},
            {"op": "copy", "dst": ["scratch", 1], "src": ["input", 0]},
            {"op": "copy", "dst": ["scratch", 1], "src": ["scratch", 0], "count": 2},
            {"op": "copy", "dst": ["output", 0], "src": ["scratch", 2]},
        ]
    ]
    found = program("all_reduce", [[0, 1]], [([0], [0], [0, 0, 0], lanes)])
    assert "overwrites scratch[1] of rank 0 (chunk 0) while reading it" in fault_of(found)


@pytest.mark.parametrize(
    ("inputs", "outputs", "told"),
    [
        ([1, 0], [0, 1], "rank 0: input slot 0 is chunk 1; it must be chunk 0"),
        ([0], [0, 1], "rank 0: input has 1 slots; the collective gives it 2"),
        ([0, 1], [0, 1, 0], "rank 0: output has 3 slots; the collective gives it 2"),
    ],
)
def test_layout(inputs: list[int], outputs: list[int], told: str) -> None:
    lanes = [[{"op": "nop"}]]
    assert fault_of(unvalidated("all_reduce", [[0, 1]] * 2, [(inputs, outputs, [], lanes)])) == told


def test_blocks_are_those_of_the_collective() -> None:
    found = unvalidated("all_reduce", [[0, 1], [1, 1]], [([0], [0], [], [[{"op": "nop"}]])])
    assert fault_of(found) == "all_reduce on 1 ranks has 1 blocks, not 2"


def test_unwritten_output() -> None:
    verdict = check_program(program("all_gather", [[0, 1]], [([0], [0], [], [[{"op": "nop"}]])]))
    assert verdict.fault == "rank 0: output[0] of rank 0 (chunk 0) is never written (out of place)"
    assert prove(program("all_gather", [[0, 1]], [([0], [0], [], [])], out_of_place=False)).valid
