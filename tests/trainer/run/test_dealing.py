"""Shares of data ranks by what they were seen to take."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch.distributed")

from syntony.overlap.run.plan_runner import Record
from syntony.overlap.step.op_key import OpKey
from syntony.trainer.config import Config, Data
from syntony.trainer.run.measure import dealing


def test_the_slowest_of_a_data_rank_counts_and_meetings_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [Record(OpKey("fwd", 0, 0), 0, 0.0, 1.0, 3.0), Record(OpKey("norm", 0), 0, 0.0, 3.0, 90.0)]
    others = [[0, 0.5], [1, 8.0], [1, 1.0]]  # data rank, seconds

    def gather(mine: bytes) -> list[bytes]:
        return [mine, *(json.dumps(other).encode() for other in others)]

    rank: Any = SimpleNamespace(
        config=Config(data=Data(rows=5)),
        mesh=SimpleNamespace(place={"dp": 0}),
        world=SimpleNamespace(gather=gather),
        recorded=lambda: None,
        measure=lambda *given: SimpleNamespace(computed=spans),
    )
    monkeypatch.setattr(dealing, "plain", lambda step: None)
    assert dealing.by_speed(rank, lambda step: []).data.shares == (8, 2)
