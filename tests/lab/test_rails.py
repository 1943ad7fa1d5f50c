"""A host's network card goes down in the midst of an operation: the other one takes over, until it is up again. Needs
root (see test_lab)."""

from __future__ import annotations

import re

import pytest

from syntony.base.command import UserError
from syntony.benchmarks.sim_vs_lab.rails import measure
from syntony.lab.lab import Lab
from syntony.lab.lab_spec import spec_of
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
