"""Congestion: each law stands where its paper's equations say, and pauses block whom they are known to block."""

from __future__ import annotations

import numpy as np
import pytest

from syntony.base.command import UserError
from syntony.synth.congestion.dcqcn import standing_queue
from syntony.synth.congestion.hpcc import ETA, W_AI
from syntony.synth.congestion.incast import Incast
from syntony.synth.congestion.queue_network import PAUSE_AT, QueueNetwork
from syntony.synth.congestion.simulate import LAWS, History, simulate
from syntony.synth.congestion.swift import PACKET, target
from syntony.synth.simulation.flows import Paths
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.paths import PathFinder
from syntony.topologies import parse

GBIT = 1e9 / 8


def star(senders: int, law: str, seconds: float, rate: float = 40 * GBIT, hop: float = 2e-6) -> History:
    """So many on one switch, all to one more."""
    topology = parse(f"star:{senders + 1},bandwidth={rate},alpha={hop}")
    src = np.arange(1, senders + 1)
    paths = Choice("single").place(PathFinder(topology), src, 0 * src, 0 * src, 0 * src)
    return simulate(QueueNetwork.of(topology, paths), LAWS[law], seconds)


def standing(history: History) -> float:
    """Bytes in the longest queue, in the last eighth of the time."""
    return float(history.queue[-len(history.queue) // 8 :].mean(axis=0).max())


@pytest.mark.parametrize("senders", [2, 8])
def test_dcqcn_stands_at_the_fixed_point_of_its_model(senders: int) -> None:
    history = star(senders, "dcqcn", 0.08, hop=16e-6)
    assert standing(history) == pytest.approx(standing_queue(senders, 40 * GBIT), rel=0.1)
    rates = history.arrived[history.settled()].mean(axis=0)
    assert rates == pytest.approx(np.full(senders, 40 * GBIT / senders), rel=0.02)


def test_timely_shortens_the_tail_ninefold_near_line_rate() -> None:
    """Its abstract: against pauses alone, the 99th percentile is 9 times shorter."""
    paused, found = (star(10, law, 0.03, 10 * GBIT, hop=8e-6) for law in ("none", "timely"))
    half = found.settled()
    tails = [float(np.quantile(history.wait[half], 0.99)) for history in (paused, found)]
    assert tails[0] >= 0.9 * 9 * tails[1]
    assert found.arrived[half].sum(axis=1).mean() >= 0.95 * 10 * GBIT
    assert not found.paused[half].any()


@pytest.mark.parametrize("senders", [4, 16])
def test_swift_keeps_its_target(senders: int) -> None:
    history = star(senders, "swift", 0.004)
    half = history.settled()
    rates, waits = history.arrived[half].mean(axis=0), history.wait[half].mean(axis=0)
    delay = history.network.base + waits
    assert delay == pytest.approx(target(rates * delay / PACKET, history.network.hops), rel=0.05)
    assert rates == pytest.approx(np.full(senders, 40 * GBIT / senders), rel=0.02)


def test_hpcc_has_no_queue_and_stands_where_it_should() -> None:
    history = star(8, "hpcc", 0.003)
    trip = history.network.base
    share = history.arrived[history.settled()].sum(axis=1).mean() / (40 * GBIT)
    assert share == pytest.approx(ETA + 8 * W_AI / (40 * GBIT * trip), rel=0.01)
    assert standing(history) <= 0.01 * 40 * GBIT * trip
    assert standing(history) <= 0.05 * standing(star(8, "none", 0.003))  # "up to 95 %"


@pytest.mark.parametrize("lossless", [True, False])
def test_pauses_block_a_flow_that_meets_nobody(lossless: bool) -> None:
    """Zhu et al. (SIGCOMM 2015), section 2.2: four senders at 40 Gb/s, two on each of two cables up; a fifth flow could
    have half of its cable, 20 Gb/s, but pauses leave it 10."""
    topology = parse("clos:leaves=2,hosts=8,spines=2,oversubscription=4,bandwidth=5e9")
    incast = Incast.make(topology, 4, Choice("ecmp"))
    cables = [incast.paths.links(path)[1] for path in range(5)]
    assert sorted(map(cables[:4].count, set(cables))) == [2, 2]
    assert incast.fair() == pytest.approx(20 * GBIT)
    result = incast.under("none", 4e-3, lossless)
    if lossless:
        assert result.victim == pytest.approx(10 * GBIT, rel=0.02)
        assert result.paused > 0.4
        assert result.peak <= 3 * 8 * PAUSE_AT * 40 * GBIT
    else:
        assert result.victim == pytest.approx(40 / 3 * GBIT, rel=0.02)  # three share the cable, and nobody stops it
        assert result.paused == 0


@pytest.mark.parametrize("slow", [1, 2])
def test_sprayed_packets_overtake_where_paths_differ(slow: int) -> None:
    """A flow over two spines, of which one leads to the receiver at a half: its queue is what others overtake."""
    topology = parse("clos:leaves=2,hosts=1,spines=2,bandwidth=5e9")
    paths = PathFinder(topology).every(np.asarray([0]), np.asarray([1]))
    network = QueueNetwork.of(topology, paths, lossless=False)
    capacity = network.capacity.copy()
    capacity[network.path[0, 2]] = network.capacity[network.path[0, 0]] / 2 / slow
    capacity[network.path[1, 2]] = network.capacity[network.path[0, 0]] / 2
    uneven = QueueNetwork(network.path, network.owner, capacity, network.link, network.step, lossless=False)
    history = simulate(uneven, LAWS["none"], 1e-3)
    if slow == 1:
        assert history.early.max() == pytest.approx(0.0, abs=1.0)
    else:
        assert history.early[-1, 0] == pytest.approx(history.arrived[-1, 0] * history.wait[-1, 0])
        assert history.wait[-1, 0] == pytest.approx(1e-3, rel=0.05)  # it gets twice what it passes on


def test_all_bytes_are_somewhere() -> None:
    topology = parse("clos:leaves=2,hosts=8,spines=2,oversubscription=4,bandwidth=5e9")
    paths = Incast.make(topology, 5, Choice("ecmp")).paths
    history = simulate(QueueNetwork.of(topology, paths), LAWS["none"], 1e-3)
    assert history.arrived.sum(axis=1).max() <= 2 * 5e9 * (1 + 1e-9)  # two links lead to who receives
    assert (history.queue >= 0).all()
    assert isinstance(paths, Paths)


def test_an_incast_needs_ranks() -> None:
    with pytest.raises(UserError, match="9 ranks; star:4 has 4"):
        Incast.make(parse("star:4"), 6, Choice("ecmp"))
