"""Who keeps what: every piece is kept often enough, on as many hosts as can be; a version is whole or it is none."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest

pytest.importorskip("torch")

import torch

from syntony.trainer.elastic.held import Bundle, Held, Table, Version, placed
from syntony.trainer.elastic.meeting import newest_whole
from syntony.trainer.state.parts import Block, Cut

CUTS: list[Cut] = [(Block(f"layer_{i}.weight", (1000,), ((0, 1000),), 0, 1000),) for i in range(3)]


def sharded(ranks: int, replicas: int = 1, elements: int = 1024) -> list[list[tuple[Cut, int, int]]]:
    """Every layer over ranks / replicas, as ZeRO has it."""
    n = ranks // replicas
    size = elements // n
    return [[(cut, rank % n * size, (rank % n + 1) * size) for cut in CUTS] for rank in range(ranks)]


def whole(ranks: int, elements: int = 1024) -> list[list[tuple[Cut, int, int]]]:
    return [[(cut, 0, elements) for cut in CUTS] for _ in range(ranks)]


def lost_with(table: Table, gone: Iterable[int]) -> list[Bundle]:
    """What nobody keeps any more when these ranks are gone."""
    return [bundle for bundle in table.bundles if set(bundle.keepers) <= set(gone)]


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("live", [sharded(4), sharded(4, 2), whole(4), whole(2), sharded(8, 2)])
def test_any_losses_up_to_the_copies_are_survived(live: list[list[tuple[Cut, int, int]]], copies: int) -> None:
    ranks = len(live)
    table = placed(live, list(range(ranks)), copies)
    for gone in itertools.combinations(range(ranks), min(copies, ranks - 1)):
        assert lost_with(table, gone) == []
    assert lost_with(table, range(ranks)) != []
    covered = {(cut, at) for b in table.bundles for cut, begin, end in b.pieces for at in range(begin, end)}
    assert len(covered) == 3 * 1024
    assert sum(piece.size for bundle in table.bundles for piece in bundle.pieces) == 3 * 1024
    for bundle in table.bundles:
        assert len(set(bundle.keepers)) == min(copies + 1, ranks)


def test_a_host_may_be_lost() -> None:
    table = placed(sharded(8), [0, 0, 0, 0, 1, 1, 1, 1], 1)
    assert lost_with(table, [0, 1, 2, 3]) == []
    assert lost_with(table, [4, 5, 6, 7]) == []
    counts = [len(table.kept_by(rank)) for rank in range(8)]
    assert max(counts) == min(counts)


def test_replicas_send_nothing() -> None:
    """Where all have all, each puts a part by; where shards have a replica on another host, each its own."""
    assert not any(bundle.wards for bundle in placed(whole(4), [0, 1, 2, 3], 1).bundles)
    assert not any(bundle.wards for bundle in placed(sharded(4, 2), [0, 1, 2, 3], 1).bundles)
    assert all(bundle.wards for bundle in placed(sharded(4), [0, 1, 2, 3], 1).bundles)
    kept = [sum(p.size for b in placed(whole(4), [0] * 4, 1).kept_by(rank) for p in b.pieces) for rank in range(4)]
    assert max(kept) <= 3 * 1024 // 2 + 3 * 64


def fill(held: Held, step: int, only: int = 1 << 30) -> None:
    held.open(step)
    for bundle in held.bundles[:only]:
        held.mark(bundle)


def test_a_version_half_made_never_replaces_a_whole_one() -> None:
    table = placed(sharded(2), [0, 1], 1)
    one, other = Held(table, 0, 1), Held(table, 1, 1)
    for held in (one, other):
        fill(held, 5)
        fill(held, 6)
    fill(one, 7)
    fill(other, 7, only=0)
    found = newest_whole([one.offers(), other.offers()], {1: table})
    assert found is not None
    assert found[0] == Version(7, 1)  # rank 0 keeps rank 1's copies, too
    assert newest_whole([other.offers()], {1: table}) is not None
    assert newest_whole([other.offers()], {1: table})[0] == Version(6, 1)  # type: ignore[index]


def test_what_arrives_of_another_step_is_refused() -> None:
    table = placed(sharded(2), [0, 1], 1)
    held = Held(table, 1, 1)
    held.open(3)
    bundle = next(bundle for bundle in held.bundles if bundle.wards == (1,))
    held.buffer(bundle)[-2:].view(torch.int64).fill_(2)
    with pytest.raises(RuntimeError, match="a copy of step 3 was awaited from rank 0, one of step 2 came"):
        held.arrived(bundle)
    assert held.offers() == {Version(3, 1): []}


@pytest.mark.parametrize("seed", range(5))
def test_the_newest_whole_version_is_the_one_that_all_its_bundles_are_of(seed: int) -> None:
    chance = random.Random(seed)
    ranks = chance.choice([2, 3, 4])
    table = placed(whole(ranks), list(range(ranks)), 1)
    numbers = range(len(table.bundles))
    offers = [
        {Version(step, 1): [n for n in numbers if chance.random() < 0.7] for step in range(4)} for _ in range(ranks)
    ]
    can = [step for step in range(4) if all(any(n in offer[Version(step, 1)] for offer in offers) for n in numbers)]
    found = newest_whole(offers, {1: table})
    assert (found[0].step if found else None) == (max(can) if can else None), seed
    for number, ranks_with in enumerate(found[1] if found else []):
        assert ranks_with == [rank for rank in range(ranks) if number in offers[rank][found[0]]], seed  # type: ignore[index]


def test_versions_of_an_unknown_layout_are_left_out() -> None:
    table: Table = placed(whole(2), [0, 1], 1)
    numbers = range(len(table.bundles))
    assert newest_whole([{Version(9, 1): numbers, Version(8, 2): numbers}], {2: table})[0] == Version(8, 2)  # type: ignore[index]
