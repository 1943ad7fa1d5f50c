"""Collectives: conditions, duals, sizes, and sentences for what cannot be."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.model.collective import KINDS, ChunkTable, Collective, CollectiveError


@pytest.mark.parametrize("kind", KINDS)
@given(ranks=st.integers(1, 9), chunks=st.integers(1, 3))
def test_conditions_are_the_kinds_own(kind: str, ranks: int, chunks: int) -> None:
    root = (ranks - 1) if kind in ("broadcast", "reduce", "gather", "scatter") else 0
    collective = Collective.make(kind, ranks, chunks, root=root)
    everyone = frozenset(range(ranks))
    for chunk, block in enumerate(collective.chunks.block.tolist()):
        owner = {block}
        expected = {
            "all_reduce": (everyone, everyone),
            "all_gather": (owner, everyone),
            "reduce_scatter": (everyone, owner),
            "all_to_all": ({block // ranks}, {block % ranks}),
            "broadcast": ({root}, everyone),
            "reduce": (everyone, {root}),
            "gather": (owner, {root}),
            "scatter": ({root}, owner),
        }[kind]
        assert (collective.pre(chunk), collective.post(chunk)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_dual_swaps_pre_and_post(kind: str) -> None:
    root = 2 if kind in ("broadcast", "reduce", "gather", "scatter") else 0
    collective = Collective.make(kind, 4, 2, root=root)
    if kind in ("all_reduce", "all_to_all"):
        with pytest.raises(CollectiveError, match="no dual"):
            collective.dual()
        return
    dual = collective.dual()
    assert dual.dual() == collective
    for chunk in range(len(collective.chunks)):
        assert (dual.pre(chunk), dual.post(chunk)) == (collective.post(chunk), collective.pre(chunk))


@given(
    kind=st.sampled_from(KINDS),
    ranks=st.integers(1, 5),
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    data=st.data(),
)
def test_shares_add_up_to_the_size(kind: str, ranks: int, weights: list[int], data: st.DataObject) -> None:
    blocks = Collective.make(kind, ranks).blocks
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=blocks, max_size=blocks))
    collective = Collective.make(kind, ranks, weights=weights, block_sizes=sizes)
    total = sum((collective.share(chunk) for chunk in range(len(collective.chunks))), Fraction(0))
    assert total == (ranks if kind == "all_to_all" else 1)


def test_members_are_topology_ranks() -> None:
    collective = Collective.make("all_gather", members=(3, 1))
    assert (collective.ranks, collective.members) == (2, (3, 1))
    assert collective.post(0) == {0, 1}


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Collective.make("all_reduced", 4), "no collective 'all_reduced' .did you mean all_reduce.*there are"),
        (lambda: Collective.make("broadcast", 4, root=4), r"root 4 is not a rank of this collective; ranks are 0\.\.3"),
        (lambda: Collective.make("all_gather", 4, root=1), "all_gather has no root"),
        (lambda: Collective.make("all_gather", 2, members=(1, 1)), "members must be 2 different topology ranks"),
        (lambda: Collective.make("all_gather", 0), "at least 1 rank"),
        (lambda: Collective.make("all_gather", 2, 0), "at least 1 chunk"),
        (lambda: Collective.make("all_gather", 2, weights=(1, 0)), "chunk 1 has weight 0"),
        (lambda: Collective.make("all_gather", 2, block_sizes=(1,)), "2 blocks, not 1 block sizes"),
        (lambda: ChunkTable([0, 2], [1, 1]), "chunk 1 is of block 2"),
        (lambda: Collective("all_gather", 3, ChunkTable([0, 1], [1, 1])), "has 3 blocks, the chunk table has 2"),
    ],
)
def test_mistakes_are_told(build, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CollectiveError, match=sentence):
        build()
