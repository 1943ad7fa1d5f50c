"""Ranks find out together that a wire has become slow, and tune their group again, once."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.collectives import communicator
from syntony.collectives.communicator import Communicator
from syntony.collectives.recorder import agreed
from syntony.collectives.recorder.records import Dump, parse_own
from syntony.collectives.recorder.slow_wires import SlowWire, slow_wires
from tests.collectives.ranks import on_ranks
from tests.collectives.recorder.test_slow_wires import ring

RANKS = 4


def found_in(dumps: list[Dump], monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[SlowWire], ...]]:
    """What each rank hears when asking three times, of which the second time all wires have recovered."""
    healthy = ring(np.ones(RANKS), 60, np.zeros(RANKS))
    asked = [0] * RANKS

    def record(content: bytes) -> Dump:
        rank = parse_own(content).rank
        asked[rank] += 1
        return (healthy if asked[rank] == 3 else dumps)[rank]

    monkeypatch.setattr(agreed, "parse_own", record)
    return on_ranks(RANKS, lambda group: tuple(group.tune_if_slow() for _ in range(4)))


def test_each_slow_wire_leads_to_one_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[int] = []

    def tune(group: Communicator) -> None:
        tuned.append(group.rank)
        group.barrier()

    monkeypatch.setattr(communicator, "tune", tune)
    wires = np.array([1.0, 0.5, 1.0, 1.0])
    dumps = ring(wires, 30, np.zeros(RANKS))
    expected = slow_wires(dumps)
    assert [(wire.source, wire.destination) for wire in expected] == [(1, 2)]
    assert found_in(dumps, monkeypatch) == [(expected, [], [], expected)] * RANKS  # it recovered before the last time
    assert sorted(tuned) == sorted([*range(RANKS)] * 2)


def test_healthy_wires_lead_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator, "tune", lambda group: pytest.fail("tuned"))
    assert on_ranks(RANKS, lambda group: group.tune_if_slow()) == [[]] * RANKS
    assert on_ranks(1, lambda group: group.tune_if_slow()) == [[]]
