"""The grammar of faults, and what they leave of a wire at any time."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from syntony.lab.faults import Change, changes, parse_fault, rate_under
from syntony.lab.lab_spec import LabError, at_rate, spec_of
from syntony.topologies.parse import parse

PLAN = at_rate(spec_of(parse("star:3")), Fraction(25 * 10**6))


def timeline(*texts: str, most: int = 20) -> list[Change]:
    return list(itertools.islice(changes([parse_fault(text, PLAN) for text in texts]), most))


def test_a_cut_begins_and_ends() -> None:
    fault = parse_fault("cut rank0-switch at 5s for 2s", PLAN)
    assert ([wire.name for wire in fault.wires], fault.rate) == (["w0"], None)
    assert timeline("cut rank0-switch at 5s for 2s") == [Change(5.0, 0, True), Change(7.0, 0, False)]
    assert timeline("cut h0-s0 at 500ms") == [Change(0.5, 0, True)]


def test_slow_has_a_rate() -> None:
    fault = parse_fault("slow h1-s0 to 50mbit at 3s", PLAN)
    assert (fault.rate, fault.at, fault.lasts) == (Fraction(6_250_000), 3.0, None)
    assert timeline("slow h1-s0 for 1s at 3s to 50mbit") == [Change(3.0, 0, True), Change(4.0, 0, False)]


def test_flap_comes_again() -> None:
    assert timeline("flap h0-s0 every 2s", most=4) == [
        Change(2.0, 0, True),
        Change(3.0, 0, False),
        Change(4.0, 0, True),
        Change(5.0, 0, False),
    ]
    assert timeline("flap h0-s0 every 2s for 500ms at 0s", most=3) == [
        Change(0.0, 0, True),
        Change(0.5, 0, False),
        Change(2.0, 0, True),
    ]


def test_faults_are_merged_in_time() -> None:
    merged = timeline("flap h0-s0 every 2s", "cut h1-s0 at 3s for 3s", most=5)
    assert [(change.seconds, change.fault, change.begins) for change in merged] == [
        (2.0, 0, True),
        (3.0, 0, False),
        (3.0, 1, True),
        (4.0, 0, True),
        (5.0, 0, False),
    ]


def test_a_cut_wins_and_then_the_slowest() -> None:
    slow, slower, cut = (
        parse_fault(text, PLAN)
        for text in ("slow h0-s0 to 80mbit at 0s", "slow h0-s0 to 8mbit at 0s", "cut h0-s0 at 0s")
    )
    rate = Fraction(25 * 10**6)
    assert rate_under(rate, []) == rate
    assert rate_under(rate, [slow, slower]) == rate_under(rate, [slower, slow]) == 10**6
    assert rate_under(rate, [slower, cut]) is None
    assert rate_under(Fraction(1000), [slow]) == 1000, "a fault makes nothing faster"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the fault '' is empty; one begins with cut, slow, flap"),
        ("snip h0-s0 at 1s", "the fault 'snip h0-s0 at 1s' begins with 'snip'; one begins with cut, slow, flap"),
        ("cut", "the fault 'cut' names no wire; one is written 'cut A-B at 5s for 2s'"),
        ("cut h0-s9 at 1s", "'h0-s9': there is no 's9' in the lab of star:3; a wire is named like rank0-switch"),
        ("cut h0-s0", "the fault 'cut h0-s0' lacks 'at'; it is written 'cut A-B at 5s for 2s'"),
        ("cut h0-s0 at", "the fault 'cut h0-s0 at' ends with 'at'; it is written 'cut A-B at 5s for 2s'"),
        ("cut h0-s0 at 5", "the fault 'cut h0-s0 at 5': at '5' must be a time such as 2s, 1.5ms or 20us"),
        ("cut h0-s0 at 1s at 2s", "the fault 'cut h0-s0 at 1s at 2s' says 'at' twice"),
        ("cut h0-s0 at 1s for 0s", "the fault 'cut h0-s0 at 1s for 0s' says for 0s; that takes no time at all"),
        (
            "cut h0-s0 to 5mbit at 1s",
            "the fault 'cut h0-s0 to 5mbit at 1s': 'to' means nothing there; it is written 'cut A-B at 5s for 2s'",
        ),
        (
            "slow h0-s0 at 1s",
            "the fault 'slow h0-s0 at 1s' lacks 'to'; it is written 'slow A-B to 50mbit at 3s'",
        ),
        (
            "slow h0-s0 to 50 at 1s",
            "the fault 'slow h0-s0 to 50 at 1s': to '50' must be a positive number of kbit, mbit or gbit, "
            "such as 200mbit",
        ),
        (
            "flap h0-s0 every 2s for 2s",
            "the fault 'flap h0-s0 every 2s for 2s': for 2s leaves nothing of every 2s",
        ),
    ],
)
def test_a_mistake_is_named(text: str, sentence: str) -> None:
    with pytest.raises(LabError) as caught:
        parse_fault(text, PLAN)
    assert str(caught.value) == sentence
