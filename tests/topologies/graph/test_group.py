"""A process group's view: the same links, fewer ranks, and a symmetry that keeps the group."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.checker import check_schedule
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.flow import search as flow
from syntony.synth.model.collective import Collective
from syntony.synth.symmetry.throughput import seconds_per_byte
from syntony.topologies import parse
from syntony.topologies.graph.group import group_view
from tests.sampled import examples
from tests.topologies.named import refusal

NAMES = ["torus:3x4", "mesh:2x3", "full:4", "star:4", "dgx1", "dgx-a100:2", "hypercube:3"]


@examples(40)
@given(st.sampled_from(NAMES), st.data())
def test_only_the_kind_of_other_ranks_changes(name: str, data: st.DataObject) -> None:
    whole = parse(name)
    members = data.draw(st.lists(st.integers(0, whole.ranks - 1), min_size=1, unique=True))
    view = group_view(whole, members)
    assert view.ranks == len(members)
    assert [view.nodes[number].name for number in range(view.ranks)] == [f"rank{member}" for member in members]
    assert Counter(node.name for node in view.nodes) == Counter(node.name for node in whole.nodes)
    assert not any(node.able for node in view.nodes)
    for before, now in zip(whole.links, view.links, strict=True):
        assert whole.nodes[before.src].name == view.nodes[now.src].name
        assert whole.nodes[before.dst].name == view.nodes[now.dst].name
        assert (before.bandwidth, before.alpha) == (now.bandwidth, now.alpha)


def test_a_row_of_a_torus_keeps_its_rotation() -> None:
    view = parse("torus:4x4,group=0-3")
    images = {generator[0] for generator in view.generators}
    assert images & {1, 2, 3}
    assert all(image < 4 for image in images)


def test_data_pass_through_the_others() -> None:
    """A corner sends three quarters of its data over two cables, one of them to a rank that forwards."""
    view = parse("mesh:4x4,group=0-3")
    schedule = flow.run(view, Collective.make("all_to_all", 4), 1 << 20, Budget())
    assert check_schedule(schedule)
    assert schedule.bounds is not None
    assert schedule.bounds.throughput.seconds_per_byte == seconds_per_byte(schedule) == Fraction(3, 8 * 10**9)
    through = {view.links[link].src for link in [link for row in schedule.transfers.rows() for link in row.route]}
    assert {view.nodes[node].kind for node in through} == {"rank", "switch"}


def test_names() -> None:
    view = parse("mesh:2x3, without=rank1, slowed=0-3@50%, group=5+0")
    assert view.name == "mesh:2x3, without=rank1, slowed=0-3@50%, group=5+0"
    assert [node.name for node in view.nodes] == ["rank5", "rank0", "rank2", "rank3", "rank4"]
    assert parse("ring:6,group=0-1,group=4").ranks == 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ring:4,group=4", "group=4: ring:4 has no rank 4; its ranks are 0..3"),
        ("ring:4,group=2-1", "group=2-1: '2-1' is not a rank or a range"),
        ("ring:4,group=", "group=: '' is not a rank or a range"),
        ("ring:4,group=0+0-1", "ring:4: a group has at least one rank, and each only once"),
        ("ring:4,without=rank1,group=0-1", "a rank of the group does not exist or is lost"),
    ],
)
def test_refusals(name: str, told: str) -> None:
    assert told in (refusal(lambda: parse(name)) or "")
