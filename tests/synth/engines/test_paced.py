"""Engine forest packs in several orders, and takes the trees that stream best."""

from __future__ import annotations

import pytest

from syntony.benchmarks.synthesis.networks.irregular import random_network
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.forest.paced import GOOD
from syntony.synth.engines.forest.search import pack, run
from syntony.synth.engines.forest.streaming import LONG
from syntony.synth.engines.forest.trees import spread
from syntony.synth.engines.workers import seconds_at
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies.parse import parse
from tests.synth.networks import replay


def _over_busy(schedule: Schedule) -> float:
    """Simulated seconds of a long message, as so many times those for which its fullest link is busy."""
    return seconds_at(schedule, LONG) / (LONG * float(seconds_per_byte(schedule)))


@pytest.mark.parametrize("name", ["dgx1", "mesh:3x3", "rail:boxes=2,gpus=4,rails=2"])
def test_any_order_gives_trees_that_are_as_good_in_bytes(name: str) -> None:
    topology = parse(name)
    gather = Collective.make("all_gather", topology.ranks)
    made = [spread(topology, gather, pack(topology, gather, order=order)) for order in range(4)]
    for schedule in made:
        replay(schedule)
    assert len({seconds_per_byte(schedule) for schedule in made}) == 1
    assert len({schedule.transfers.src.tobytes() for schedule in made}) > 1  # other trees


@pytest.mark.parametrize(
    ("seed", "kind", "first", "best"),
    [(9, "all_reduce", 1.2, 1.1), (11, "all_gather", 1.1, GOOD), (17, "reduce_scatter", 1.03, GOOD)],
)
def test_lanes_that_share_links_keep_pace(seed: int, kind: str, first: float, best: float) -> None:
    topology = random_network(seed)
    collective = Collective.make(kind, topology.ranks)
    told: list[Schedule] = []
    schedule = run(topology, collective, LONG, Budget(better=told.append))
    replay(schedule)
    assert _over_busy(told[0]) > first  # in the order of the network
    assert _over_busy(schedule) <= best
    assert told[-1].transfers == schedule.transfers
    times = [seconds_at(one, LONG) for one in told]
    assert times == sorted(times, reverse=True)


def test_what_streams_well_is_packed_once() -> None:
    told: list[Schedule] = []
    run(parse("torus:3x3"), Collective.make("all_gather", 9), LONG, Budget(better=told.append))
    assert not told


def test_time_that_is_over_ends_the_search() -> None:
    topology = random_network(9)
    told: list[Schedule] = []
    run(topology, Collective.make("all_reduce", topology.ranks), LONG, Budget(0.0, better=told.append))
    assert len(told) <= 1
