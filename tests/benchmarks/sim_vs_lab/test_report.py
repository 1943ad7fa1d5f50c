"""Verdicts, lines and the command's refusals; and what ranks take for right."""

from __future__ import annotations

import json

import numpy as np
import pytest

from syntony.benchmarks.sim_vs_lab.__main__ import main
from syntony.benchmarks.sim_vs_lab.cells import CASES, FABRICS, Cell
from syntony.benchmarks.sim_vs_lab.prediction import Prediction
from syntony.benchmarks.sim_vs_lab.rank import Job, _buffers
from syntony.benchmarks.sim_vs_lab.report import Row, document, summary
from syntony.lab.lab_spec import LabError


def row(simulated: float, *measured: float) -> Row:
    return Row(Cell(FABRICS[0], CASES[0], 4 << 20), Prediction(simulated, 0.5), measured)


def test_verdicts() -> None:
    assert row(0.95, 3.0, 1.0, 1.0).holds  # of the median
    assert row(0.901, 1.0).holds
    assert not row(0.899, 1.0).holds
    assert row(1.099, 1.0).holds
    assert not row(1.101, 1.0).holds


def test_lines() -> None:
    line = row(0.2527, 0.250, 0.260, 0.255).line()
    assert line.split() == [
        "ring", "all_reduce", "4", "500.0", "252.7", "255.0", "3.9%", "0.991", "within", "10", "%",
    ]  # fmt: skip
    assert row(1.2, 1.0).line().endswith("1.200  OFF by +20%")


def test_summary_names_the_furthest_off() -> None:
    text = summary([row(1.0, 1.0), row(0.8, 1.0), row(1.05, 1.0)])
    assert text.startswith("2 of 3 cells within 10%; simulated / measured from 0.800 to 1.050, median 1.000; ")
    assert text.endswith("furthest off: ring all_reduce, 4 MiB, on star:4 at 200mbit")


def test_json() -> None:
    found = json.loads(json.dumps(document(row(0.8, 1.0))))
    assert (found["topology"], found["rate"], found["size"]) == ("star:4", "200mbit", 4 << 20)
    assert (found["simulated"], found["measured"], found["ratio"], found["within"]) == (0.8, 1.0, 0.8, False)


def test_a_fabric_that_is_not_there_is_refused() -> None:
    with pytest.raises(LabError, match=r"^no fabric has dragonfly in its name: star:4 200mbit, "):
        main(["--only", "dragonfly"])


@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all"])
def test_ranks_expect_what_numpy_says(collective: str) -> None:
    ranks, size = 4, 4096
    buffers = [_buffers(Job("", collective, size, 1), rank, ranks) for rank in range(ranks)]
    inputs = np.stack([source for source, _, _ in buffers])
    for rank, (_, output, expected) in enumerate(buffers):
        right = inputs.sum(axis=0) if collective == "all_reduce" else inputs.reshape(ranks, ranks, -1)[:, rank].ravel()
        assert np.array_equal(expected, right)
        assert output.nbytes == size
