"""The checker's own words about the eight collectives, and the core's table: told twice on purpose, and alike."""

from __future__ import annotations

import pytest

from syntony import _core
from syntony.synth.checker.contract import Contract


@pytest.mark.parametrize("kind", _core.COLLECTIVES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_checker_and_the_core_mean_the_same(kind: str, ranks: int) -> None:
    facts = _core.COLLECTIVES[kind]
    sources, destinations = (ranks if facts["by_source"] else 1), (ranks if facts["by_destination"] else 1)
    for root in range(ranks):
        contract = Contract(kind, ranks, root)
        assert contract.sums == facts["reduces"]
        assert contract.blocks == sources * destinations
        for rank in range(ranks):
            gives = rank == root or not facts["root_gives"]
            takes = rank == root or not facts["root_takes"]
            given = [i for i in range(contract.blocks) if gives and facts["by_source"] <= (i // destinations == rank)]
            taken = [i for i in range(contract.blocks) if takes and facts["by_destination"] <= (i % ranks == rank)]
            assert contract.input(rank) == given
            assert contract.output(rank) == taken
