"""All eight kinds, roots, ranges, lanes and instances: what the written Program is."""

from __future__ import annotations

import pytest

from syntony.synth.dsl import Algorithm, Recording, algorithm
from syntony.synth.model.instructions import Opcode, Space
from tests.synth.lowering.passes.outcome import same_outcome


@algorithm("all_reduce", ranks=3)
def all_reduce(a: Recording) -> None:
    total = a.input(0).add(*(a.input(rank) for rank in range(1, a.ranks)))
    for rank in range(1, a.ranks):
        total.copy(to=rank)


@algorithm("reduce", ranks=3, root=1)
def reduce(a: Recording) -> None:
    a.input(a.root).add(*(a.input(rank) for rank in range(a.ranks) if rank != a.root))


@algorithm("reduce_scatter", ranks=3)
def reduce_scatter(a: Recording) -> None:
    for block in range(a.ranks):
        mine, *others = (a.input((block + k) % a.ranks, block=block) for k in range(a.ranks))
        mine.add(*others)


@algorithm("broadcast", ranks=3, root=2)
def broadcast(a: Recording) -> None:
    for rank in range(a.ranks):
        a.input(a.root).copy(to=rank)


@algorithm("all_gather", ranks=3)
def all_gather(a: Recording) -> None:
    for source in range(a.ranks):
        for rank in range(a.ranks):
            a.input(source).copy(to=rank)


@algorithm("gather", ranks=3, root=1)
def gather(a: Recording) -> None:
    for source in range(a.ranks):
        a.input(source).copy(to=a.root)


@algorithm("scatter", ranks=3, root=1)
def scatter(a: Recording) -> None:
    for rank in range(a.ranks):
        a.input(a.root, block=rank).copy(to=rank)


@algorithm("all_to_all", ranks=3)
def all_to_all(a: Recording) -> None:
    for source in range(a.ranks):
        for rank in range(a.ranks):
            a.input(source, block=rank).copy(to=rank)


KINDS = (all_reduce, reduce, reduce_scatter, broadcast, all_gather, gather, scatter, all_to_all)


@pytest.mark.parametrize("made", KINDS, ids=lambda made: made.kind)
@pytest.mark.parametrize("instances", [1, 3])
def test_every_kind(made: Algorithm, instances: int) -> None:
    written = made.as_written(instances=instances)
    assert (written.collective, written.ranks, written.root) == (made.kind, 3, made.root)
    assert written.channels == instances
    assert not written.rounds_per_hop
    same_outcome(written, made.program(instances=instances))


def test_ranges_are_one_message_even_as_written() -> None:
    @algorithm("broadcast", ranks=2, chunks=6)
    def ranged(a: Recording) -> None:
        a.input(0).copy()
        whole = a.input(0).copy(to=1, into=a.scratch(a.input(0), rank=1))
        for part in whole.split(3):
            part.copy()

    written = ranged.as_written()
    assert written.field("count").tolist() == [6, 6, 6, 2, 2, 2]
    assert [Opcode(op).name for op in written.field("opcode").tolist()] == ["copy", "send", "recv"] + ["copy"] * 3


def test_lanes_are_channels_of_their_own() -> None:
    @algorithm("broadcast", ranks=2, chunks=3)
    def spread(a: Recording) -> None:
        a.input(0).copy()
        for chunk in range(a.chunks):
            a.input(0, chunk=chunk).copy(to=1, lane=chunk)

    written = spread.as_written()
    assert written.channels == 3
    assert len(written.lane_start[0]) == 1 + 3 + 3
    assert spread.as_written(instances=2).channels == 6


def test_what_is_not_whole_waits_in_scratch() -> None:
    @algorithm("reduce", ranks=3)
    def chain(a: Recording) -> None:
        a.input(2).reduce(to=1).reduce(to=0)

    written = chain.as_written()
    assert written.slots[written.slots[:, 1] == Space.scratch].tolist() == [[1, 2, 0]]
    assert written.rounds_per_hop


def test_an_algorithm_is_a_program_file(tmp_path: object) -> None:
    from pathlib import Path

    from syntony.synth.formats.loading import load

    path = Path(str(tmp_path)) / "f.json"
    all_reduce.save(path)
    assert load(path) == all_reduce.program()
