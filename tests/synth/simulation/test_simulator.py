"""The simulator against closed forms, its fair shares against their definition, and bounds against both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.engines.engine import Budget
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.result import StuckError
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.simulation.trace import write_trace
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.reversal import in_owned_chunks, summed, summed_and_spread
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples
from tests.synth.networks import collectives, networks

ALPHA, RATE = 1e-6, 1e9


def ring(ranks: int, topology: Topology | None = None) -> Schedule:
    """all_gather one way round the ring."""
    topology = topology or parse(f"ring:{ranks}")
    collective = Collective.make("all_gather", ranks)
    rows = [
        Transfer((src - step) % ranks, (src - step) % ranks, src, dst, step, (topology.links_between(src, dst)[0].id,))
        for step in range(ranks - 1)
        for src in range(ranks)
        for dst in [(src + 1) % ranks]
    ]
    values = ValueBuilder.of_chunks(collective).build()
    return Schedule(topology, collective, values, Transfers.of(rows), np.ones(ranks - 1, np.int32))


@pytest.mark.parametrize("ranks", [3, 4, 8])
@pytest.mark.parametrize("size", [8, 1 << 20])
def test_ring_all_gather(ranks: int, size: int) -> None:
    found = simulate(ring(ranks), size)
    assert found.seconds == pytest.approx((ranks - 1) * (ALPHA + size / ranks / RATE))
    assert found.busbw == pytest.approx(found.algbw * (ranks - 1) / ranks)


@pytest.mark.parametrize("ranks", [3, 8])
def test_ring_reduce_scatter_and_all_reduce(ranks: int) -> None:
    size, topology = 1 << 20, parse(f"ring:{ranks}")
    one_way = (ranks - 1) * (ALPHA + size / ranks / RATE)
    dual = ring(ranks, topology.reversed())
    assert simulate(summed(dual, topology), size).seconds == pytest.approx(one_way)
    cut, _ = in_owned_chunks(Collective.make("all_reduce", ranks))
    whole = simulate(summed_and_spread(dual, ring(ranks), cut), size)
    assert whole.seconds == pytest.approx(2 * one_way)
    assert whole.busbw == pytest.approx(whole.algbw * 2 * (ranks - 1) / ranks)


def test_full_mesh_is_one_hop() -> None:
    size = 1 << 20
    schedule = greedy(parse("full:5"), Collective.make("all_gather", 5), size, Budget())
    found = simulate(schedule, size)
    assert found.seconds == pytest.approx(ALPHA + size / 5 / RATE)
    assert found.fraction == pytest.approx(found.bound_seconds / found.seconds)
    assert 0.99 < found.fraction <= 1


@pytest.mark.parametrize("ranks", [2, 6])
def test_star_shares_the_cables(ranks: int) -> None:
    """Everyone sends to everyone through one switch at once: n-1 flows share each cable."""
    size, topology = 1 << 20, parse(f"star:{ranks}")
    schedule = greedy(topology, Collective.make("all_to_all", ranks), size, Budget())
    assert set(expand(schedule).transfers.step.tolist()) == {0}
    alpha = 2 * topology.links[0].alpha
    expected = alpha + size * (ranks - 1) / ranks / float(topology.links[0].bandwidth)
    assert simulate(schedule, size).seconds == pytest.approx(expected)


def test_lanes_pipeline_their_messages() -> None:
    """k chunks on one link cost one alpha, and a forwarding rank passes the first on while the second arrives."""
    topology, size, chunks = parse("mesh:3"), 3000, 3
    collective = Collective.make("broadcast", 3, chunks)
    links = [topology.links_between(0, 1)[0].id, topology.links_between(1, 2)[0].id]
    rows = [Transfer(chunk, chunk, hop, hop + 1, hop, (links[hop],)) for hop in range(2) for chunk in range(chunks)]
    schedule = Schedule(topology, collective, ValueBuilder.of_chunks(collective).build(), Transfers.of(rows))
    found = simulate(schedule, size)
    assert found.seconds == pytest.approx(2 * ALPHA + (chunks + 1) * size / chunks / RATE)
    assert found.busy[links].tolist() == pytest.approx([size / RATE] * 2)


def test_nothing_to_do_takes_no_time() -> None:
    schedule = greedy(parse("ring:1"), Collective.make("all_gather", 1), 8, Budget())
    found = simulate(schedule, 8)
    assert (found.seconds, found.fraction, found.algbw) == (0.0, 1.0, 0.0)


def test_a_transfer_that_cannot_start_is_named() -> None:
    schedule = ring(4)
    rows = [row for row in schedule.transfers.rows() if (row.src, row.step) != (1, 1)]
    with pytest.raises(StuckError, match=r"rank 2 -> 3, step 2.* rank 2 never holds value 0"):
        simulate(replace(schedule, transfers=Transfers.of(rows)), 8)


@examples(60)
@given(data=st.data(), size=st.sampled_from([1, 1000]))
def test_no_schedule_beats_the_bound(data: st.DataObject, size: int) -> None:
    topology = data.draw(networks())
    schedule = greedy(topology, data.draw(collectives(topology)), size, Budget())
    found = simulate(schedule, size)
    assert found.seconds >= found.bound_seconds * (1 - 1e-9)
    assert np.isfinite(found.messages.arrival).all()
    assert (found.messages.start <= found.messages.left).all()
    assert (found.busy <= found.seconds * (1 + 1e-9)).all()


def test_trace_has_a_row_per_link_and_a_box_per_hop(tmp_path: Path) -> None:
    found = simulate(ring(3), 3000)
    write_trace(found, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    boxes = [event for event in events if event["ph"] == "X"]
    assert len(boxes) == 6
    assert max(box["ts"] + box["dur"] for box in boxes) == pytest.approx((found.seconds - ALPHA) * 1e6)
    assert {event["tid"] for event in events if event["ph"] == "M"} == set(range(6))


@pytest.mark.parametrize("together", [1, 2, 3, 8])
def test_consecutive_slices_of_a_message_share_a_box_where_there_are_many(together: int, tmp_path: Path) -> None:
    """From the beginning of its first one to the end of its last one."""
    slices, found = 8, simulate(ring(3), 3000, slice_bytes=125)
    most = 6 * slices // together
    assert write_trace(found, tmp_path / "trace.json", most) == together
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    boxes = [event for event in events if event["ph"] == "X"]
    assert len(boxes) == 6 * -(-slices // together)
    assert max(box["ts"] + box["dur"] for box in boxes) == pytest.approx(found.messages.left.max() * 1e6)
    assert sum(box["dur"] for box in boxes) >= sum(found.messages.left - found.messages.start) * 1e6 * (1 - 1e-9)
