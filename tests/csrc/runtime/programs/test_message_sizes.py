"""Messages of more slots than a frame has room for elements, and chunks so heavy that elements times weight take more
than 64 bits: they run right, over shared memory and over TCP.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syntony import _core
from syntony.synth.checker import check_program
from tests.csrc.runtime.harness import Rank, run_as_processes
from tests.csrc.runtime.programs.test_programs import INPUT, OUTPUT, Columns, Table
from tests.sampled import one_in

HOSTS = pytest.mark.parametrize("hosts", ["", "abc", "aab"])
RANKS = 3


def chain(chunks: int, weight: int = 1) -> Columns:
    """A broadcast from rank to rank, of all chunks in one message."""
    slots = [[0, INPUT, chunk] for chunk in range(chunks)]
    slots += [[rank, OUTPUT, chunk] for rank in range(RANKS) for chunk in range(chunks)]
    table = Table()
    table.add(0, 0, "copy", (OUTPUT, 0), (INPUT, 0), chunks)
    table.add(0, 0, "send", src=(INPUT, 0), count=chunks, send=1)
    table.add(1, 0, "recv_copy_send", (OUTPUT, 0), count=chunks, recv=0, send=2)
    table.add(2, 0, "recv", (OUTPUT, 0), count=chunks, recv=1)
    return {
        "name": "chain", "collective": "broadcast", "root": 0, "ranks": RANKS, "fifo_depth": 1,
        "out_of_place": True, "in_place": True, "rounds_per_hop": False,
        "chunks": np.array([[0, weight]] * chunks, np.int32), "slots": np.array(slots, np.int32),
        "instructions": np.array(table.rows, np.int32), "operands": np.zeros((0, 2), np.int32),
        "dependencies": np.zeros((0, 2), np.int32),
    }  # fmt: skip


def broadcast(rank: Rank, columns: Columns, dtype: str, count: int, options: dict[str, Any]) -> int:
    """How many elements came out wrong."""
    group = rank.join()
    group.raw.add_program("p", _core.Program(**columns))
    sent = np.arange(count).astype(dtype)
    result = sent.copy() if rank.rank == 0 else np.zeros(count, dtype)
    group.broadcast(result, algorithm="p", **options)
    group.shutdown()
    return int((result != sent).sum())


@HOSTS
@pytest.mark.parametrize(("dtype", "options"), one_in(2, ["float64", "complex128"], [{}, {"priority": "low"}]))
def test_twenty_thousand_chunks_in_one_message(hosts: str, dtype: str, options: dict[str, Any]) -> None:
    assert run_as_processes(broadcast, RANKS, chain(20_000), dtype, 80_000, options, hosts=hosts) == [0] * RANKS


@HOSTS
def test_chunks_of_the_greatest_weight(hosts: str) -> None:
    columns = chain(1024, 2**31 - 1)
    assert run_as_processes(broadcast, RANKS, columns, "uint8", 9_000_000, {}, hosts=hosts) == [0] * RANKS


def test_these_programs_are_proven() -> None:
    for columns in (chain(20_000), chain(1024, 2**31 - 1)):
        assert check_program(_core.Program(**columns)).valid


def repeated(rank: Rank) -> str:
    """One chunk more often in a message than a frame takes."""
    times = 9000
    columns = chain(1)
    table = Table()
    table.add(0, 0, "copy", (OUTPUT, 0), (INPUT, 0))
    for slot in range(times):
        table.add(0, 0, "copy", (2, slot), (INPUT, 0))
    table.add(0, 0, "send", src=(2, 0), count=times, send=1)
    table.add(1, 0, "recv", (2, 0), count=times, recv=0)
    table.add(1, 0, "copy", (OUTPUT, 0), (2, 0))
    table.add(1, 0, "send", src=(OUTPUT, 0), send=2)
    table.add(2, 0, "recv", (OUTPUT, 0), recv=1)
    columns["slots"] = np.array(
        [[0, INPUT, 0], [0, OUTPUT, 0], *[[0, 2, 0]] * times, [1, OUTPUT, 0], *[[1, 2, 0]] * times, [2, OUTPUT, 0]],
        np.int32,
    )
    columns["instructions"] = np.array(table.rows, np.int32)
    group = rank.join()
    with pytest.raises(ValueError, match="one message") as refusal:
        group.raw.add_program("p", _core.Program(**columns))
    group.barrier()
    group.shutdown()
    return str(refusal.value)


def test_what_no_slicing_can_fit_is_refused_before_anything_moves() -> None:
    for sentence in run_as_processes(repeated, RANKS):
        assert "the schedule p sends a chunk 9000 times in one message; a slot of SYNTONY_SLOT_BYTES=131072" in sentence
