"""Every witness of every family and collective proves its bound again, from the graph alone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker.schedules.claims import check_bounds
from syntony.synth.checker.verdict import FaultError
from syntony.synth.formats.schedule_file import read, write
from syntony.synth.model.bound import Bounds, Cut, Partition, Throughput
from syntony.synth.model.collective import KINDS, Collective, CollectiveError, block_count
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.topologies.families import FAMILIES
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples, one_in
from tests.synth.bounds.witnesses import Recomputed
from tests.synth.networks import able_networks

EXAMPLES = [family.example for family in FAMILIES.values()]
ABLE = ["star:6,multicast=on", "dgx-h100:1", "dgx-h100:3", "star:5,aggregator=sharp"]


def check(topology: Topology, collective: Collective) -> Bounds:
    """The bounds, found again by the tests' own code and by the checker."""
    bounds = bounds_of(topology, collective)
    again = Recomputed(topology, collective)
    if bounds.throughput.witness is None:
        assert bounds.throughput.seconds_per_byte == 0
        assert collective.ranks == 1
    else:
        assert again.rate(bounds.throughput.witness) == bounds.throughput.seconds_per_byte > 0
    assert bounds.latency.steps == again.farthest(by_alpha=False)
    assert bounds.latency.seconds == pytest.approx(again.farthest(by_alpha=True), rel=1e-12, abs=0)
    if len(collective.chunks) > 20_000:
        return bounds  # the checker counts chunk by chunk
    none = Transfers([], [], [], [], [], [0], [])
    check_bounds(Schedule(topology, collective, ValueBuilder().build(), none, np.zeros(0), "none", bounds))
    return bounds


@pytest.mark.parametrize(("name", "kind"), one_in(3, EXAMPLES + ABLE, KINDS))
def test_families(name: str, kind: str) -> None:
    topology = parse(name)
    with_hint = check(topology, Collective.make(kind, topology.ranks))
    bare = bounds_of(replace(topology, generators=()), Collective.make(kind, topology.ranks))
    assert bare.throughput.seconds_per_byte == with_hint.throughput.seconds_per_byte
    assert bare.latency.steps == with_hint.latency.steps
    assert bare.latency.seconds == pytest.approx(with_hint.latency.seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "kind"), one_in(2, ["dgx1", "rail:boxes=3,gpus=4,rails=2", "dgx-h100:2", "torus:3x4", "fat-tree:4"], KINDS)
)
def test_some_members_roots_and_uneven_weights(name: str, kind: str) -> None:
    topology = parse(name)
    for seed in range(4):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        members = rng.permutation(topology.ranks)[: int(rng.integers(2, topology.ranks + 1))].tolist()
        rooted = kind in ("broadcast", "reduce", "gather", "scatter")
        collective = Collective.make(
            kind,
            members=members,
            root=int(rng.integers(len(members))) if rooted else 0,
            weights=rng.integers(1, 4, 2).tolist(),
            block_sizes=rng.integers(1, 9, block_count(kind, len(members))).tolist(),
        )
        try:
            check(topology, collective)
        except CollectiveError as error:
            assert "no path leads" in str(error)  # noqa: PT017


@examples(150)
@given(data=st.data())
def test_random_networks(data: st.DataObject) -> None:
    """Switches of any ability, in directed networks where out is not in."""
    topology = data.draw(able_networks())
    kind = data.draw(st.sampled_from(KINDS))
    rooted = kind in ("broadcast", "reduce", "gather", "scatter")
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=(n := block_count(kind, topology.ranks)), max_size=n))
    root = data.draw(st.integers(0, topology.ranks - 1)) if rooted else 0
    check(topology, Collective.make(kind, topology.ranks, root=root, block_sizes=sizes))


def test_an_adder_in_a_witness_is_written_read_and_not_believed(tmp_path: Path) -> None:
    topology, collective = parse("star:8,aggregator=iswitch"), Collective.make("all_reduce", 8)
    bounds = bounds_of(topology, collective)
    partition = bounds.throughput.witness
    assert isinstance(partition, Partition)
    assert partition.adders == (8,)
    schedule = Schedule(
        topology,
        collective,
        ValueBuilder().build(),
        Transfers([], [], [], [], [], [0], []),
        np.zeros(0),
        "none",
        bounds,
    )
    write(schedule, tmp_path / "f.json")
    assert read(tmp_path / "f.json").bounds == bounds
    for wrong, why in (
        (replace(partition, adders=()), "which switches that copy or add can save"),
        (replace(partition, adders=(8, 0)), "its witness names node 0; an adder is a switch"),
        (replace(partition, adders=(8, 99)), "its witness names node 99; an adder is a switch"),
        (replace(partition, bandwidth=partition.bandwidth / 2), "its witness proves"),
    ):
        false = Bounds(bounds.latency, Throughput.by(wrong))
        with pytest.raises(FaultError, match=why):
            check_bounds(replace(schedule, bounds=false))


def test_a_wrong_witness_does_not_prove_its_number() -> None:
    """The test's own code is no rubber stamp."""
    topology, collective = parse("rail:boxes=2,gpus=2,rails=2"), Collective.make("all_gather", 4)
    cut = bounds_of(topology, collective).throughput.witness
    assert isinstance(cut, Cut)
    again = Recomputed(topology, collective)
    for wrong in (
        replace(cut, share=cut.share * 2),
        replace(cut, bandwidth=cut.bandwidth / 2),
        replace(cut, nodes=cut.nodes[1:]),
        replace(cut, links=cut.links[1:]),
        replace(cut, entering=not cut.entering),
    ):
        with pytest.raises(AssertionError):
            again.rate(wrong)
    assert again.rate(cut) == cut.share / cut.bandwidth == Fraction(1, 2) / Fraction(100 * 10**9)
