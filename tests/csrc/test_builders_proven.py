"""Promise 1 for the C++ builders: the checker proves what they write, for every rank count up to 64.

A proof covers every size, both placements (in place and out of place) and every interleaving, at fifo_depth 1. The
everyday run samples the rank counts; `make test-all` takes them all.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from syntony.synth.checker import check_program, least_fifo_depth
from syntony.synth.model.program import Program
from tests.sampled import examples

ROOTED = ("broadcast", "reduce", "gather", "scatter")
BUILDERS = [(a.name, collective) for a in _core.algorithms() for collective in a.collectives]
IN_BOXES = ("hierarchical", "two_level")
SAMPLED = (1, 2, 3, 4, 5, 7, 8, 12, 17, 24, 33)


def prove(name: str, collective: str, ranks: int, root: int = 0, boxes: list[list[int]] | None = None) -> None:
    built = _core.build(name, collective, ranks, root, boxes)
    assert built.fifo_depth == 1
    assert built.in_place
    assert built.out_of_place
    verdict = check_program(built)
    assert verdict.valid, f"{name} {collective} on {ranks} ranks, root {root}, boxes {boxes}: {verdict.fault}"


def roots(collective: str, ranks: int) -> set[int]:
    """All of few ranks, else the first, the last and one between."""
    if collective not in ROOTED:
        return {0}
    return set(range(ranks)) if ranks <= 6 else {0, ranks // 3, ranks - 1}


@pytest.mark.parametrize(("name", "collective"), BUILDERS)
def test_builder_is_proven(name: str, collective: str) -> None:
    for ranks in SAMPLED:
        for root in roots(collective, ranks):
            prove(name, collective, ranks, root)


@pytest.mark.parametrize(("name", "collective"), [pair for pair in BUILDERS if pair[1] != "all_to_all"])
def test_builder_is_proven_on_64_ranks(name: str, collective: str) -> None:
    prove(name, collective, 64, 63 if collective in ROOTED else 0)


@pytest.mark.sweep
@pytest.mark.parametrize("ranks", range(1, 65))
@pytest.mark.parametrize(("name", "collective"), BUILDERS)
def test_builder_is_proven_on_every_rank_count(name: str, collective: str, ranks: int) -> None:
    for root in roots(collective, ranks):
        prove(name, collective, ranks, root)


@st.composite
def boxes_of_any_shape(draw: st.DrawFn) -> list[list[int]]:
    """Up to 14 ranks, dealt to boxes in any order."""
    ranks = draw(st.permutations(range(draw(st.integers(1, 14)))))
    cuts = draw(st.sets(st.integers(1, max(1, len(ranks) - 1)), max_size=5)) - {len(ranks)}
    edges = [0, *sorted(cuts), len(ranks)]
    return [list(ranks[a:b]) for a, b in itertools.pairwise(edges)]


@examples(40)
@given(boxes_of_any_shape(), st.sampled_from([pair for pair in BUILDERS if pair[0] in IN_BOXES]), st.data())
def test_two_levels_are_proven_for_any_boxes(boxes: list[list[int]], pair: tuple[str, str], data: Any) -> None:
    name, collective = pair
    ranks = sum(map(len, boxes))
    root = data.draw(st.integers(0, ranks - 1)) if collective in ROOTED else 0
    prove(name, collective, ranks, root, boxes)


@pytest.mark.parametrize(("name", "collective"), BUILDERS)
def test_the_stated_fifo_depth_is_the_least(name: str, collective: str) -> None:
    assert least_fifo_depth(_core.build(name, collective, 6)) == 1


@pytest.mark.parametrize(("name", "collective"), BUILDERS)
def test_a_build_without_its_last_message_is_refused(name: str, collective: str) -> None:
    """The proof has teeth: turn the last recv into a nop and the checker objects."""
    columns = dict(_core.build(name, collective, 4).columns())
    instructions = columns["instructions"].copy()
    last = [row for row in range(len(instructions)) if instructions[row, 2] in (4, 5)][-1]
    instructions[last, 2:12] = [0, 0, 0, 0, 0, 1, -1, -1, 0, 0]
    columns["instructions"] = instructions
    verdict = check_program(Program(**columns))
    assert not verdict.valid
    assert verdict.fault
