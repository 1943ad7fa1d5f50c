"""A host's network card goes down in the midst of an operation: the other one takes over, until it is up again. One
that becomes slow carries less. Needs root (see test_lab)."""

from __future__ import annotations

import random
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from syntony.base.command import UserError
from syntony.benchmarks.sim_vs_lab.rails import measure, mending_of
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import DEFAULT_RATE, at_rate, spec_of
from syntony.lab.wires.network import shape_line
from syntony.topologies.parse import parse

pytestmark = pytest.mark.wires
SIZE = 8_000_000
"""Bytes: 0.16 s with both cards."""


@pytest.fixture(scope="module", autouse=True)
def needs_a_kernel_that_lets_us() -> None:
    try:
        with Lab(spec_of(parse("star:2"))) as lab:
            lab.run(["true"], write=lambda _: None)
    except UserError as error:
        pytest.skip(f"no lab here: {error}")


@pytest.mark.parametrize(("hosts", "card"), [(2, 0), (2, 1), (3, 0)])
def test_the_other_card_takes_over_for_as_long(hosts: int, card: int) -> None:
    """Also from the card over which the control plane is connected."""
    lost, words = measure(f"rail:boxes={hosts},gpus=1,rails=2", card, 0.05, SIZE)
    assert lost.same, words
    assert lost.shares == ([0.5, 0.5] if hosts == 2 else [0.5, 1.0, 1.0]), words
    said = re.findall(r"\[rank 0\] WARN rank \d+ at \S+: the connection over w(\d), \S+, is lost", words)
    assert set(said) == {str(card)}, words
    assert lost.back < 30, words  # it is tried every 8 s at least
    back = re.findall(r"\[rank (\d)\] WARN rank (\d+) at \S+: the connection over w\d+, \S+, is back; 2 of 2", words)
    # The share is everything again with the first peer that is reached in full; others may follow later.
    assert {("0", str(rank)) for rank in range(1, hosts)} & set(back), words


@pytest.mark.parametrize("hosts", [2, 3])
def test_a_slow_card_carries_less_for_as_long(hosts: int) -> None:
    """At half of its rate a third of the bytes; then half of them again. Nobody asks for it."""
    spec = at_rate(spec_of(parse(f"rail:boxes={hosts},gpus=1,rails=2")), DEFAULT_RATE)
    (wire,) = spec.wires_between("nic0.1-rail1")
    lines = [shape_line(wire, DEFAULT_RATE * part) for part in (Fraction(1, 2), Fraction(1))]
    said: list[bytes] = []
    with Lab(spec) as lab:
        code = lab.run([sys.executable, "-m", "tests.lab.unequal_rails", str(SIZE), *lines], write=said.append)
    words = b"".join(said).decode(errors="replace")
    assert code == 0, words
    before, slow, after = map(float, re.findall(r"shares (\S+) (\S+) (\S+)", words)[0])
    assert 0.45 < before < 0.55, words
    assert 0.28 < slow < 0.42, words
    assert 0.45 < after < 0.55, words


def test_all_reduces_are_balanced_by_themselves(tmp_path: Path) -> None:
    """Once a card is lost, and until it is back; all ranks choose the same for each, though callers are ahead."""
    spec = at_rate(spec_of(parse("rail:boxes=3,gpus=1,rails=2")), DEFAULT_RATE)
    (wire,) = spec.wires_between("nic0.1-rail1")
    mending = tmp_path / "mending"
    mending.write_text("\n".join(mending_of(spec, wire.name)))
    said: list[bytes] = []
    with Lab(spec) as lab:
        arguments = [str(4 << 20), wire.name, str(mending), str(seed := random.randrange(1 << 30))]
        code = lab.run([sys.executable, "-m", "tests.lab.balanced_rails", *arguments], write=said.append)
    words = b"".join(said).decode(errors="replace")
    assert code == 0, (seed, words)
    assert re.search(r"balanced \d+ \d+ True", words), (seed, words)
