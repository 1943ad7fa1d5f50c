"""Repair: what comes out is proven by the checker, is for the ranks that are left, and keeps what stood."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from syntony.base.command import UserError
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker import check_schedule
from syntony.synth.engines import in_network
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.flow import search as flow
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.repair import repair
from syntony.synth.model.collective import KINDS, Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies import parse
from tests.sampled import one_in


def made(name: str, kind: str, members: tuple[int, ...] | None = None, root: int = 0) -> Schedule:
    topology = parse(name)
    engine = flow if kind in flow.KINDS else forest
    collective = Collective.make(kind, members=members or range(topology.ranks), root=root)
    return engine.run(topology, collective, 1 << 20, Budget())


def mended(old: Schedule, *lost: str, slowed: tuple[str, ...] = (), seconds: float = 30.0) -> Schedule:
    new = repair(old, lost, slowed, Budget(seconds))
    verdict = check_schedule(new)
    assert verdict, verdict.fault
    assert new.bounds is not None
    assert new.bounds.throughput == bounds_of(new.topology, new.collective).throughput
    return new


LOSSES = [("torus:3x3", "0-1"), ("torus:3x3", "rank5"), ("dgx1", "2->3"), ("rail:boxes=2,gpus=4,rails=4", "nic0.1")]


@pytest.mark.parametrize(("loss", "kind"), one_in(2, LOSSES, KINDS))
def test_every_kind_survives_a_loss(loss: tuple[str, str], kind: str) -> None:
    name, lost = loss
    old = made(name, kind)
    new = mended(old, lost)
    assert new.collective.kind == kind
    assert new.collective.ranks == old.collective.ranks - (lost == "rank5")


@pytest.mark.parametrize(
    ("name", "lost", "slowed"),
    [
        ("torus:8x8", ("0-1",), ()),
        ("torus:8x8", (), ("0-1@50%",)),
        ("torus:4x4x4", ("rank9", "0-1"), ()),
        ("dgx-h100:2", ("rank0-nvswitch0",), ()),
        ("dgx-h100:6", ("nic0.0",), ()),
        ("rail:boxes=4,gpus=8,rails=8", ("nic0.0-rail0", "rank17"), ("nic3.1-rail1@1/3",)),
    ],
)
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_the_gap_is_at_most_two_percent(kind: str, name: str, lost: tuple[str, ...], slowed: tuple[str, ...]) -> None:
    new = mended(made(name, kind), *lost, slowed=slowed)
    gap = gap_of(new)
    assert gap is not None
    assert gap <= Fraction(2, 100)


def test_trees_that_lost_nothing_stay_as_they_were() -> None:
    old = made("torus:8x8", "all_gather")
    new = mended(old, "0-1")
    wires = {(link.src, link.dst) for link in new.topology.links}
    ways = []
    for schedule in (old, new):
        trees: dict[int, set[tuple[int, int]]] = {}
        for row in schedule.transfers.rows():
            trees.setdefault(row.value, set()).add((row.src, row.dst))
        blocks = schedule.collective.chunks.block.tolist()
        ways.append([{(blocks[chunk], frozenset(tree)) for chunk, tree in trees.items()}])
    unbroken = {tree for tree in ways[0][0] if tree[1] <= wires}
    assert unbroken
    assert len(unbroken & ways[1][0]) > len(unbroken) / 2


def test_a_repaired_schedule_is_repaired_again() -> None:
    once = mended(made("torus:8x8", "all_gather"), "0-1")
    twice = mended(once, "9-10", "rank33")
    assert twice.topology.ranks == 63
    gap = gap_of(twice)
    assert gap is not None
    assert gap <= Fraction(2, 100)


def test_a_large_all_to_all_is_balanced_again() -> None:
    new = mended(made("torus:8x8", "all_to_all"), "0-1")
    gap = gap_of(new)
    assert gap is not None
    assert gap <= Fraction(2, 100)


@pytest.mark.parametrize(("lost", "slowed"), [(("nic0.0",), ()), ((), ("nic3.2-network@50%",))])
def test_paths_that_lost_nothing_stay_as_they_were(lost: tuple[str, ...], slowed: tuple[str, ...]) -> None:
    old = made("dgx-h100:6", "all_to_all")
    new = mended(old, *lost, slowed=slowed)
    gap = gap_of(new)
    assert gap is not None
    assert gap <= Fraction(1, 100)
    ways = [ways_of(schedule) for schedule in (old, new)]
    assert len(ways[0] & ways[1]) > 0.9 * len(ways[0])


def ways_of(schedule: Schedule) -> set[tuple[tuple[str, str], ...]]:
    """The path of every chunk, by names of the links' ends."""
    schedule = expand(schedule)
    nodes = schedule.topology.nodes
    ways: dict[int, list[tuple[int, tuple[str, str]]]] = {}
    for row in schedule.transfers.rows():
        for number, link in enumerate(schedule.topology.links[link] for link in row.route):
            hop = (row.step << 16 | number, (nodes[link.src].name, nodes[link.dst].name))
            ways.setdefault(row.value, []).append(hop)
    return {tuple(ends for _, ends in sorted(way)) for way in ways.values()}


def test_members_stay_members() -> None:
    new = mended(made("mesh:4x4", "all_gather", tuple(range(8))), "0-1", "rank2", "rank12")
    assert [new.topology.nodes[member].name for member in new.collective.members] == [
        f"rank{rank}" for rank in range(8) if rank != 2
    ]


def test_blocks_keep_their_sizes() -> None:
    topology = parse("torus:3x3")
    old = forest.run(topology, Collective.make("all_gather", 9, block_sizes=range(1, 10)), 1 << 20, Budget())
    new = mended(old, "rank4")
    sizes = np.bincount(new.collective.chunks.block, new.collective.chunks.weight)
    assert (sizes / sizes[0]).tolist() == [1, 2, 3, 4, 6, 7, 8, 9]


def test_what_is_not_made_of_trees_is_made_anew() -> None:
    topology = parse("star:4,aggregator=switchml")
    old = in_network.run(topology, Collective.make("all_reduce", 4), 1 << 20, Budget())
    assert old.in_network
    assert mended(old, "rank3", seconds=2.0).collective.ranks == 3


@pytest.mark.parametrize(
    ("kind", "lost", "sentence"),
    [
        ("all_gather", ("0-1", "0-2"), "no path leads from rank 0 to ranks 1..3, so no all_gather exists"),
        ("broadcast", ("rank0",), "rank 0, the root of the broadcast, is lost"),
        ("all_gather", ("0-3",), "no link leads from rank0 to rank3"),
    ],
)
def test_what_cannot_be_repaired_gets_a_sentence(kind: str, lost: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        repair(made("torus:2x2", kind), lost, (), Budget())
