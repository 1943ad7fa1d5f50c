"""The benchmark of adding in the network: its table, and a small run in the lab where that is possible."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from syntony.benchmarks.in_network import sharing, training
from syntony.benchmarks.in_network.rank import FORMATS, REPETITIONS, numbers
from syntony.benchmarks.in_network.table import measured, part
from syntony.benchmarks.tables import Part, Row, show
from syntony.lab.aggregator import LAB_SLOT_BYTES
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import LabError, spec_of
from syntony.topologies.parse import parse


def row(way: str, seconds: float, equal: bool = True) -> dict[str, object]:
    return {"size": 10**6, "way": way, "seconds": seconds, "error": 1e-7, "relative": 1e-8, "equal": equal}


def test_the_table_compares_with_the_ring_and_with_the_cable(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        "ranks": 4,
        "rate": "8mbit",
        "ceiling": 1e6,
        "rows": [row("ring", 2.0), row("float32", 1.25), row("bfloat16", 0.5, equal=False)],
        "tenants": {"size": 10**6, "way": "two tenants, float32 each", "seconds": 2.5},
    }
    assert not show([part(found)])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert "raw ceiling of a cable: 8.0 Mbit/s" in lines[0]
    assert lines[3].split() == ["1000000", "ring", "2000.0", "0.5", "1.00", "75%", "1.0e-07", "1.0e-08"]
    assert lines[4].split()[3:7] == ["1250.0", "0.8", "1.60", "80%"]
    assert lines[5].split()[3:7] == ["500.0", "2.0", "4.00", "100%"]  # half the bytes
    assert lines[5].endswith("MISSED: ranks differ")
    assert "1.60" in lines[6]
    assert "80%" in lines[6]


def test_training_is_compared_with_the_ring(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        training.row("1%", "ring", 3.0, 3.0, equal=False),
        training.row("1%", "in_network", 2.0, 3.0, equal=True),
        training.row("1%", "in_network", 2.5, 3.0, equal=True),
        training.row("0%", "in_network", 2.5, 3.0, equal=True),
        training.row("0%", "in_network", 2.0, 3.0, equal=False),
    ]
    assert not show([Part("", training.COLUMNS, lambda: iter(found))])  # not all goals are met
    lines = capsys.readouterr().out.splitlines()[-5:]
    assert lines[0].split()[:4] == ["1%", "ring", "3.000", "1.00"]
    assert lines[1].split() == ["1%", "in_network", "2.000", "1.50", "leaf", "by", "leaf"]
    assert lines[2].endswith("MISSED: less than 1.4 times the ring")
    assert "MISSED" not in lines[3]  # the goal is for wires that lose packets
    assert lines[4].endswith("MISSED: not the bits of the leaves' sums")


def test_gradients_are_added_leaf_by_leaf() -> None:
    means = [numbers(rank, 50, 3) / np.float32(4) for rank in range(4)]
    np.testing.assert_array_equal(training.by_leaves(2, 2, 50, 3), (means[0] + means[1]) + (means[2] + means[3]))


def test_jobs_that_share_are_compared_with_one_alone(capsys: pytest.CaptureFixture[str]) -> None:
    size, packets = 10 * LAB_SLOT_BYTES, 10 * REPETITIONS
    found = {
        "alone": {"seconds": 0.1, "passed_on": 0},
        "both": {"seconds": 0.2, "passed_on": packets},
    }
    late = {**found, "both": {"seconds": 0.25, "passed_on": 0}}

    def rows() -> Iterator[Row]:
        yield from sharing.rows(found, size, 8)
        yield from sharing.rows(late, size, 32)

    assert not show([Part("", sharing.COLUMNS, rows)])
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines[0].split() == ["8", "1", "100.0", "0.82", "1.00", "0.0%"]
    assert lines[1].split() == ["8", "2", "200.0", "0.82", "1.00", "50.0%"]  # of the packets of both
    assert lines[3].split()[:6] == ["32", "2", "250.0", "0.66", "0.80", "0.0%"]
    assert lines[3].endswith("MISSED: less than 0.9 of one alone")


@pytest.fixture
def lab_here() -> None:
    try:  # containers differ in what they allow
        with Lab(spec_of(parse("star:2"))):
            pass
    except LabError as error:
        pytest.skip(f"no lab here: {error}")


@pytest.mark.wires
@pytest.mark.usefixtures("lab_here")
def test_a_small_run_in_the_lab() -> None:
    found = measured(3, "400mbit", [1 << 18])
    assert [entry["way"] for entry in found["rows"]] == ["ring", *FORMATS]
    assert all(entry["equal"] and entry["seconds"] > 0 for entry in found["rows"])
    assert found["tenants"]["seconds"] > 0


@pytest.mark.wires
@pytest.mark.usefixtures("lab_here")
def test_two_jobs_share_slots_in_the_lab() -> None:
    found = sharing.measured(2, "400mbit", 1 << 18, 8)
    assert found["alone"]["seconds"] > 0
    assert found["both"]["seconds"] > 0
