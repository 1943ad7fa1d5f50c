"""The slices in which a schedule is simulated: the executor's, or as many as there may be messages for."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest

from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget
from syntony.synth.model.collective import Collective
from syntony.synth.simulation import usual_slice as module
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.synth.simulation.usual_slice import usual_slice
from syntony.topologies.parse import parse


@pytest.mark.parametrize("kind", ["all_gather", "broadcast", "all_to_all"])
@pytest.mark.parametrize("ranks", [1, 5, 20])
@pytest.mark.parametrize("most", [0, 1, 100, 1000])
def test_slices_are_the_executors_unless_that_makes_too_many_messages(
    kind: str, ranks: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_MESSAGES", most)
    schedule = greedy.run(parse(f"ring:{ranks}"), Collective.make(kind, ranks), 1 << 20, Budget())
    moved = max(1, len(schedule.transfers))
    for size in (1, 1 << 20, 1 << 30, 10**12 + 1):
        chunk = Fraction(size) * schedule.collective.unit * int(schedule.collective.chunks.weight.max())
        found = usual_slice(schedule, size)
        assert found >= executor_slice(ranks)
        assert ceil(chunk / found) * moved <= max(most, moved)
        if found > executor_slice(ranks):  # none is larger than it must be
            assert ceil(chunk / (found - 1)) * moved > most
