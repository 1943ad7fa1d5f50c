"""The bytes that a plan's traffic predicts are those that ranks really send."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from numpy.typing import NDArray

from syntony import Communicator, _core
from syntony.__main__ import main
from syntony.overlap.predict.traffic import collective_bytes
from tests.collectives.ranks import Ranks

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
CASES = [(entry.name, kind) for entry in _core.algorithms() for kind in KINDS if kind in entry.collectives]
SENT = re.compile(r'^syntony_sent_bytes_total\{group="kept",rank="(\d+)",peer="(\d+)"\} (\d+)$', re.MULTILINE)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_collectives_send_the_bytes_of_their_programs(ranks: int) -> None:
    kept = Ranks(ranks)

    def sent(group: Communicator) -> NDArray[np.int64]:
        row = np.zeros(ranks, np.int64)
        for rank, peer, count in SENT.findall(group.counters()):
            if int(rank) == group.rank:
                row[int(peer)] = int(count)
        return row

    def job(algorithm: str, kind: str, elements: int, group: Communicator) -> NDArray[np.int64]:
        before = sent(group)
        whole = np.ones(elements * ranks, np.float32)
        part = np.ones(elements, np.float32)
        if kind == "all_reduce":
            group.all_reduce(whole, algorithm=algorithm)
        elif kind == "all_gather":
            group.all_gather(part, whole, algorithm=algorithm)
        elif kind == "reduce_scatter":
            group.reduce_scatter(whole, part, algorithm=algorithm)
        else:
            group.all_to_all(whole, np.empty_like(whole), algorithm=algorithm)
        after: NDArray[np.int64] = sent(group) - before
        return after

    for algorithm, kind in CASES:
        if algorithm == "shared":
            continue
        for elements in (1, 7, 1000, 70_001):
            measured = np.stack(kept.run(lambda group: job(algorithm, kind, elements, group)))  # noqa: B023
            expected = collective_bytes(kind, algorithm, ranks, 4 * elements * ranks)
            assert np.array_equal(measured, expected), (algorithm, kind, elements, measured, expected)
    kept.close()


def test_messages_are_counted_too() -> None:
    kept = Ranks(2)

    def job(group: Communicator) -> str:
        if group.rank == 0:
            group.send(np.ones(300_000, np.float32), 1)
        else:
            group.recv(np.empty(300_000, np.float32), 0)
        return group.counters()

    found = SENT.findall(kept.run(job)[0])
    assert found == [("0", "1", "1200000")]
    kept.close()


@pytest.mark.parametrize(("schedule", "copies"), [("1f1b", 1), ("chimera", 2)])
def test_copies_of_a_layer_are_summed_in_one_group(
    schedule: str, copies: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group of n ranks sends 2 (n - 1) sizes in an all_reduce, and a layer on two devices has one such group."""
    layout = f"pp=4,dp=2,microbatches=4,schedule={schedule}"
    assert main(["overlap", "traffic", "--model", "gpt2", "--layout", layout, "--json"]) == 0
    sent = json.loads(capsys.readouterr().out)["bytes"]["dp"]
    parameters = 162_148_608
    assert sent == 2 * (2 * copies - 1) * 4 * parameters
