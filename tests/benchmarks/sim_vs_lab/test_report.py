"""Verdicts, lines and the command's refusals; and what ranks take for right."""

from __future__ import annotations

import json

import numpy as np
import pytest

from syntony.benchmarks.__main__ import main
from syntony.benchmarks.sim_vs_lab.cells import CASES, FABRICS, Cell
from syntony.benchmarks.sim_vs_lab.prediction import Prediction
from syntony.benchmarks.sim_vs_lab.rank import Job, _buffers
from syntony.benchmarks.sim_vs_lab.report import Line, document, row, summary


def cell(simulated: float, *measured: float) -> Line:
    return Line(cell=Cell(FABRICS[0], CASES[0], 4 << 20), prediction=Prediction(simulated, 0.5), measured=measured)


def test_verdicts() -> None:
    assert cell(0.95, 3.0, 1.0, 1.0).holds  # of the median
    assert cell(0.901, 1.0).holds
    assert not cell(0.899, 1.0).holds
    assert cell(1.099, 1.0).holds
    assert not cell(1.101, 1.0).holds


def test_lines() -> None:
    line = row(cell(0.2527, 0.250, 0.260, 0.255))
    assert line.cells == ("ring", "all_reduce", 4, "500.0", "252.7", "255.0", "3.9%", "0.991")
    assert not line.missed
    assert row(cell(1.2, 1.0)).missed == "off by +20%"


def test_summary_names_the_furthest_off() -> None:
    text = summary([cell(1.0, 1.0), cell(0.8, 1.0), cell(1.05, 1.0)])
    assert text.startswith("2 of 3 cells within 10%; simulated / measured from 0.800 to 1.050, median 1.000; ")
    assert text.endswith("furthest off: ring all_reduce, 4 MiB, on star:4 at 200mbit")


def test_json() -> None:
    found = json.loads(json.dumps(document(cell(0.8, 1.0))))
    assert (found["topology"], found["rate"], found["size"]) == ("star:4", "200mbit", 4 << 20)
    assert (found["simulated"], found["measured"], found["ratio"], found["within"]) == (0.8, 1.0, 0.8, False)


def test_a_fabric_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "sim_vs_lab", "--only", "dragonfly"]) == 2
    refused = capsys.readouterr().err
    assert refused.startswith(
        "syntony.benchmarks lab sim_vs_lab: no fabric has dragonfly in its name: star:4 200mbit, "
    )


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all"])
def test_ranks_expect_what_numpy_says(collective: str) -> None:
    ranks, size = 4, 4096
    buffers = [_buffers(Job("", collective, size, 1), rank, ranks) for rank in range(ranks)]
    inputs = np.stack([source for source, _, _ in buffers])
    for rank, (_, output, expected) in enumerate(buffers):
        right = {
            "all_reduce": lambda: inputs.sum(axis=0),
            "all_gather": lambda: inputs.ravel(),
            "all_to_all": lambda rank=rank: inputs.reshape(ranks, ranks, -1)[:, rank].ravel(),
        }[collective]()
        assert np.array_equal(expected, right)
        assert output.nbytes == size
