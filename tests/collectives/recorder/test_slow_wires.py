"""Wires that are slow while all ranks are late alike: in made-up samples, and in an emulated cluster."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.collectives.recorder.records import Dump, GroupRecord, Wire, WireSample
from syntony.collectives.recorder.slow_wires import WINDOW, slow_wires
from syntony.collectives.recorder.verdict import slow
from tests.sampled import examples

FULL = 100e6  # bytes/s of a wire


LENGTH = 160  # seconds of samples


def ring(
    wires: np.ndarray,
    since: float,
    clocks: np.ndarray,
    used: float = 0.5,
    held: float = 0.0,
    usual: float | np.ndarray = 1.0,
) -> list[Dump]:
    """A ring whose wires, rank -> rank + 1, have had the rate `wires` (of FULL) for `since` seconds, before `usual`.

    It moves at the speed of its slowest, and a full wire would be busy for the share `used` of the time. Of the time in
    which rank 0's wire is busy of late, its receiver has no room for `held`.
    """
    size = len(wires)
    dumps = []
    for rank in range(size):
        now = 1000.0 + clocks[rank]
        samples = [WireSample(now - LENGTH, 0, 0.0, 0.0, 0, 1e-3, 0)]
        for second in range(LENGTH):
            late = second >= LENGTH - since
            speed = wires if late else np.broadcast_to(usual, size)
            waits = held if rank == 0 and late else 0.0
            step = min(1.0, min(speed) / used)  # of what a healthy job does in a second
            moved = used * step
            busy = moved / speed[rank] / (1.0 - waits)
            last = samples[-1]
            samples.append(
                WireSample(now - LENGTH + 1 + second, last.bytes + int(FULL * moved), last.busy + busy,
                           last.held + busy * waits, int(FULL), 1e-3, 0)
            )  # fmt: skip
        back = [WireSample(one.at, one.bytes // 4000, one.busy / 8, 0.0, 0, 1e-3, 0) for one in samples]  # credits
        sockets = (Wire((rank + 1) % size, 0, tuple(samples)), Wire((rank - 1) % size, 0, tuple(back)))
        group = GroupRecord("g", rank, tuple(range(size)), 1, 0, "", 0.0, sockets)
        dumps.append(Dump(rank, f"host{rank}", 1, now, 1000.0, (group,), ()))
    return dumps


@given(st.integers(3, 7), st.integers(0, 1 << 30), st.data())
@examples(8)
def test_a_slow_wire_is_named_and_no_other(size: int, seed: int, data: st.DataObject) -> None:
    """At half of its rate, among noise, whatever the clocks say; with both of its ends, and what it costs."""
    random = np.random.default_rng(seed)
    wires = random.uniform(0.9, 1.0, size)
    clocks = random.uniform(0, 1e5, size)
    assert slow_wires(ring(wires, 60, clocks)) == []
    design = random.choice([0.3, 0.6, 1.0], size)  # thin uplinks, or wires that share a NIC
    assert slow_wires(ring(design * wires, 60, clocks, usual=design)) == []
    victim = data.draw(st.integers(0, size - 1))
    wires[victim] *= 0.5
    found = slow_wires(ring(wires, data.draw(st.integers(20, 50)), clocks))
    assert [(one.source, one.destination) for one in found] == [(victim, (victim + 1) % size)]
    assert found[0].rate == pytest.approx(FULL * wires[victim], rel=0.01)
    assert 0.3 * WINDOW < found[0].lost < 0.6 * WINDOW
    assert re.fullmatch(
        rf"the wire from rank {victim} \(host{victim}\) to rank \d \(host\d\) is slow: [\d.]+ MB/s while it is busy, "
        r"[\d.]+ MB/s before; that costs up to [\d.]+ s, \d\d% of the last 20 s",
        str(found[0]),
    )


def test_a_host_that_all_slow_wires_share_is_told() -> None:
    wires = np.ones(5)
    wires[1] = wires[2] = 0.5
    told = slow(ring(wires, 60, np.zeros(5)))
    assert list(told) == [("g", 1, 2), ("g", 2, 3), ("host2",)]
    assert told[("host2",)] == "all slow wires lead to or from host2"


def test_what_is_no_slow_wire() -> None:
    clocks = np.zeros(4)
    assert slow_wires(ring(np.full(4, 0.5), 60, clocks)) == [], "what slows all is no wire"
    assert slow_wires(ring(np.array([0.5, 1.0, 1.0, 1.0]), LENGTH, clocks)) == [], "so from the beginning: by design?"
    assert slow_wires(ring(np.array([0.5, 1.0, 1.0, 1.0]), 4, clocks)) == [], "a few seconds are a hiccup"
    assert slow_wires(ring(np.array([0.5, 1.0, 1.0, 1.0]), 60, clocks, used=0.02)) == [], "it costs nobody anything"
    assert slow_wires(ring(np.ones(4), 60, clocks, held=0.4)) == [], "the receiver had no room"
    recovered = np.array([0.5, 0.5, 1.0, 1.0])
    assert slow_wires(ring(np.ones(4), 60, clocks, usual=recovered)) == [], "others are as fast again"
    assert slow_wires(ring(np.array([1e-4, 1, 1, 1]) * 1e-5, 60, clocks)) == [], "nothing moves: no rate is known"


@pytest.mark.soak
@pytest.mark.timeout(1600)
def test_a_wire_that_becomes_slow_is_named_within_a_minute_and_nothing_else_in_twenty(tmp_path: Path) -> None:
    """An emulated cluster, all_reduce after all_reduce; a wire has half of its rate from 60 s to 120 s."""
    from tests.collectives.recorder.wire_script import run_lab

    told = run_lab(tmp_path, seconds=1320, fault="slow rank1-switch to 50mbit at 60s for 60s")
    named = [(when, text) for when, text in told if "is slow" in text and "no rank" not in text]
    assert named, told
    assert all("rank 1" in text and when < 150 for when, text in named), told
    assert 60 < named[0][0] < 120, told
    assert any("all slow wires lead to or from" in text for _, text in told)
