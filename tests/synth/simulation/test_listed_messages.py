"""Messages of a schedule that is simulated by representatives take place when they do in the whole schedule."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.synth.engines.engine import Budget
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.result import Simulation
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.groups import fold
from syntony.topologies.parse import parse


@pytest.mark.parametrize(
    ("wires", "kind", "engine"),
    [
        ("torus:3x3", "all_gather", "bfb"),
        ("torus:3x4", "reduce_scatter", "bfb"),
        ("ring:6", "all_gather", "bfb"),
    ],
)
def test_listed_messages_are_those_of_the_whole(wires: str, kind: str, engine: str) -> None:
    topology = parse(wires)
    collective = Collective.make(kind, topology.ranks)
    folded = fold(engine_named(engine).run(topology, collective, 1 << 20, Budget(20)))
    assert folded.symmetry
    size, cut = 1 << 20, 1 << 16
    listed, whole = simulate(folded, size, cut, listed=True), simulate(folded, size, cut, every_message=True)
    assert isinstance(whole.source, Schedule)
    assert listed.seconds == pytest.approx(whole.seconds)
    every = whole.source.transfers
    place = {row: at for at, row in enumerate(map(tuple, _rows(every)))}
    times = _times(whole)
    assert listed.source is folded
    found = _times(listed)
    assert len(found) == len(folded.transfers) * len(times) // len(every)
    rows = list(map(tuple, _rows(folded.transfers)))
    for (row, part), when in found.items():
        assert when == pytest.approx(times[place[rows[row]], part])
    for row, route in zip(listed.messages.row.tolist(), listed.messages.route.tolist(), strict=True):
        assert listed.routes[route] == folded.transfers.route(row)


def _times(found: Simulation) -> dict[tuple[int, int], tuple[float, float]]:
    """Start and arrival of every slice of every transfer."""
    messages = found.messages
    keys = zip(messages.row.tolist(), messages.slice.tolist(), strict=True)
    return dict(zip(keys, zip(messages.start.tolist(), messages.arrival.tolist(), strict=True), strict=True))


def _rows(transfers: object) -> np.ndarray:
    columns = [getattr(transfers, name) for name in ("value", "src", "dst", "step")]
    return np.stack(columns, axis=1)
