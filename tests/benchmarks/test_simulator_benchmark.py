"""The simulator's benchmark in small: every case runs, and those that have a formula meet it."""

from __future__ import annotations

import json

import pytest

from syntony.benchmarks.__main__ import main
from syntony.benchmarks.synthesis.speed import simulator


def test_every_case_meets_its_formula(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(simulator, "RANKS", 16)
    monkeypatch.setattr(simulator, "SIZE", 1 << 24)
    assert main(["synthesis", "simulator", "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)
    assert len(cases) == 9
    assert sum(case["formula"] is not None for case in cases) == 3
    for case in cases:
        assert case["answer"] > 0
        assert case["formula"] is None or case["answer"] == pytest.approx(case["formula"], rel=1e-9), case["name"]
    by_name = {case["name"]: case["answer"] for case in cases}
    equal = {name: answer for name, answer in by_name.items() if "equal sizes" in name and "unequal" not in name}
    # Hashing collides; spraying and the least loaded path do not.
    sprayed, hashed, placed = (
        next(equal[name] for name in equal if policy in name) for policy in ("spray", "fixed", "least")
    )
    assert sprayed == pytest.approx(placed)
    assert hashed > 1.2 * sprayed
