"""The benchmark of adding in the network: its table, and a small run in the lab where that is possible."""

from __future__ import annotations

import pytest

from syntony.benchmarks.in_network.rank import FORMATS
from syntony.benchmarks.in_network.table import measured, part
from syntony.benchmarks.tables import show
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


@pytest.mark.wires
def test_a_small_run_in_the_lab() -> None:
    try:  # containers differ in what they allow
        with Lab(spec_of(parse("star:2"))):
            pass
    except LabError as error:
        pytest.skip(f"no lab here: {error}")
    found = measured(3, "400mbit", [1 << 18])
    assert [entry["way"] for entry in found["rows"]] == ["ring", *FORMATS]
    assert all(entry["equal"] and entry["seconds"] > 0 for entry in found["rows"])
    assert found["tenants"]["seconds"] > 0
