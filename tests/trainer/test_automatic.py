"""`--set parallel=auto` fills the ranks, as the trainer can run it, and says the same on every rank."""

from __future__ import annotations

import pytest

from syntony.base.command import UserError
from syntony.trainer.automatic import laid_out
from syntony.trainer.config import load


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_layout_for_these_ranks(ranks: int) -> None:
    config = load("tiny", ["data.microbatches=4"])
    found = laid_out(config, "parallel=auto", ranks)
    assert found.world == ranks
    assert found == laid_out(config, "parallel=auto", ranks)
    assert found.data == config.data
    assert (found.parallel == config.parallel) == (ranks == 1)


def test_slow_wires_are_spared() -> None:
    """At a thousandth of the speed between two hosts, the large sums stay inside each."""
    config = load("tiny", ["data.microbatches=4", "model.width=256"])
    slow = laid_out(config, "parallel=auto:network=1e6,ranks=2,alpha=1e-5", 4).parallel
    assert slow.pp == 2
    assert slow.ranks == 4


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(UserError, match=r"--set parallel=best: it must be parallel=auto, or parallel.key=value"):
        laid_out(load("tiny"), "parallel=best", 2)
    with pytest.raises(UserError, match="67 ranks cannot share the model and 16 sequences evenly"):
        laid_out(load("tiny"), "parallel=auto", 67)
