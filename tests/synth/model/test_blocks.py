"""The blocks of a collective as the core's table says, against the checker's own word."""

from __future__ import annotations

import pytest

from syntony.synth.checker.contract import Contract
from syntony.synth.model.blocks import Blocks
from syntony.synth.model.instructions import COLLECTIVES


@pytest.mark.parametrize("kind", COLLECTIVES)
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_as_the_checker_has_them(kind: str, ranks: int) -> None:
    for root in range(ranks):
        found, wanted = Blocks(kind, ranks, root), Contract(kind, ranks, root)
        assert (found.blocks, found.sums) == (wanted.blocks, wanted.sums)
        for rank in range(ranks):
            assert found.input(rank) == wanted.input(rank)
            assert found.output(rank) == wanted.output(rank)
