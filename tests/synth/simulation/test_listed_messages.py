"""Messages of a schedule that is simulated by representatives take place when they do in the whole schedule."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.synth.engines.engine import Budget
from syntony.synth.engines.registry import engine_named
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.groups import fold
from syntony.topologies.parse import parse


@pytest.mark.parametrize(
    ("wires", "kind", "engine"),
    [("torus:3x3", "all_gather", "bfb"), ("torus:3x4", "reduce_scatter", "bfb"), ("dgx-h100:16", "all_gather", "forest")],
)
def test_listed_messages_are_those_of_the_whole(wires: str, kind: str, engine: str) -> None:
    topology = parse(wires)
    collective = Collective.make(kind, topology.ranks)
    folded = fold(engine_named(engine).run(topology, collective, 1 << 20, Budget(20)))
    assert folded.symmetry
    listed, whole = simulate(folded, 1 << 20, listed=True), simulate(folded, 1 << 20, every_message=True)
    assert isinstance(whole.source, Schedule)
    assert listed.seconds == pytest.approx(whole.seconds)
    every = whole.source.transfers
    place = {row: at for at, row in enumerate(map(tuple, _rows(every)))}
    times = dict(
        zip(whole.messages.row.tolist(), zip(whole.messages.start, whole.messages.arrival, strict=True), strict=True)
    )
    if listed.source is not folded:  # it had to be expanded: then all messages are there
        assert len(listed.messages.row) == len(every)
        return
    assert len(listed.messages.row) == len(folded.transfers)
    for at, row in enumerate(map(tuple, _rows(folded.transfers))):
        assert (listed.messages.start[at], listed.messages.arrival[at]) == pytest.approx(times[place[row]])
        assert listed.routes[int(listed.messages.route[at])] == folded.transfers.route(at)


def _rows(transfers: object) -> np.ndarray:
    columns = [getattr(transfers, name) for name in ("value", "src", "dst", "step")]
    return np.stack(columns, axis=1)
