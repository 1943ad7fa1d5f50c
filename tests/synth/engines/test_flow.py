"""The flow engine meets the throughput bound, its schedules are right, and representatives say what the whole says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.synth.checker.schedules.check import check_schedule
from syntony.synth.engines.auto import run as auto
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError
from syntony.synth.engines.flow.paths import paths_of
from syntony.synth.engines.flow.search import KINDS, _paths, _Problem, run
from syntony.synth.engines.flow.steps import steps_of
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.free_group import FreeGroup
from syntony.synth.symmetry.groups import expand
from syntony.synth.symmetry.link_loads import link_loads
from syntony.synth.symmetry.throughput import gap_of, seconds_per_byte
from syntony.topologies.graph.symmetry import group_order
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples, one_in
from tests.synth.engines.test_forest import cabled
from tests.synth.networks import networks, replay

NAMES = [
    "ring:2",
    "ring:4",
    "ring:5",
    "torus:3x3",
    "torus:4x4",
    "torus:2x3x4",
    "hypercube:3",
    "hypercube:4",
    "mesh:3x3",
    "full:6",
    "star:4",
    "dgx1",
    "dgx-a100:2",
    "rail:boxes=3,gpus=4,rails=2",
]


@pytest.mark.parametrize(("name", "kind"), one_in(2, NAMES, KINDS))
def test_the_bound_is_met(name: str, kind: str) -> None:
    topology = parse(name)
    root = 0 if kind == "all_to_all" else topology.ranks // 2
    schedule = run(topology, Collective.make(kind, topology.ranks, root=root), 1 << 20, Budget())
    replay(schedule)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    assert gap_of(schedule) == 0
    assert schedule.proof.startswith("optimal throughput")
    assert np.array_equal(link_loads(schedule), link_loads(expand(schedule)))


@pytest.mark.parametrize(
    ("name", "order"), [("torus:4x4", 16), ("hypercube:4", 16), ("dgx-a100:2", 16), ("mesh:4x4", 4)]
)
def test_symmetric_schedules_list_one_source_per_orbit(name: str, order: int) -> None:
    topology = parse(name)
    schedule = run(topology, Collective.make("all_to_all", topology.ranks), 1, Budget())
    assert len(np.unique(schedule.values.rank)) == topology.ranks // order
    assert len(expand(schedule).transfers) == order * len(schedule.transfers)


def test_without_symmetry_the_same_bound_is_met() -> None:
    topology = replace(parse("torus:4x4"), generators=())
    schedule = run(topology, Collective.make("all_to_all", 16), 1, Budget())
    assert not schedule.symmetry
    replay(schedule)
    assert gap_of(schedule) == 0


def test_five_hundred_ranks_stay_small() -> None:
    """Only rank 0's paths are listed (expanded they are 1.5 million transfers); every link's load certifies them."""
    schedule = run(parse("torus:8x8x8"), Collective.make("all_to_all", 512), 1, Budget())
    assert gap_of(schedule) == 0
    assert len(schedule.transfers) < 10_000
    # 512 ranks, 6 hops to another on average, 6 links each: 512 blocks of size 1/512 per link of 1 GB/s.
    assert seconds_per_byte(schedule) == Fraction(1, 10**9)
    weight = int(schedule.collective.chunks.weight.sum()) // 512**2
    assert set(link_loads(schedule).tolist()) == {512 * weight}


def test_the_order_on_every_way_is_fixed_so_that_representatives_can_be_simulated() -> None:
    schedule = run(parse("torus:4x4"), Collective.make("all_to_all", 16), 1, Budget())
    assert simulate(schedule, 1 << 20).seconds == pytest.approx(simulate(expand(schedule), 1 << 20).seconds)
    whole = expand(schedule).transfers
    used = [(whole.route(row), int(whole.step[row])) for row in range(len(whole))]
    assert len(set(used)) == len(used)


@examples(100)
@given(topology=cabled() | networks(), data=st.data())
def test_random_networks(topology: Topology, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    members = data.draw(st.permutations(range(topology.ranks)))
    root = 0 if kind == "all_to_all" else data.draw(st.integers(0, topology.ranks - 1))
    blocks = topology.ranks ** (2 if kind == "all_to_all" else 1)
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=blocks, max_size=blocks))
    weights = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    collective = Collective.make(kind, members=members, root=root, weights=weights, block_sizes=sizes)
    schedule = run(topology, collective, 1, Budget())
    replay(schedule)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    gap = gap_of(schedule)
    assert gap is None or 0 <= gap < Fraction(1, 1000)


def test_the_shares_of_blocks_are_kept() -> None:
    collective = Collective.make("all_to_all", 4, block_sizes=list(range(1, 17)))
    cut = run(parse("ring:4"), collective, 1, Budget()).collective
    before = np.bincount(collective.chunks.block, collective.chunks.weight)
    after = np.bincount(cut.chunks.block, cut.chunks.weight)
    assert np.array_equal(after, before * (after[0] / before[0]))


def test_members_only_relay_among_themselves() -> None:
    schedule = run(parse("torus:3x3"), Collective.make("all_to_all", members=(5, 0, 1, 2)), 1, Budget())
    replay(schedule)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    assert gap_of(schedule) == 0


def test_one_rank_has_nothing_to_move() -> None:
    for kind in KINDS:
        schedule = run(parse("ring:2"), Collective.make(kind, members=(1,)), 1, Budget())
        assert len(schedule.transfers) == 0
        assert check_schedule(schedule).valid


def test_where_no_flow_meets_the_bound_the_least_time_is_found() -> None:
    problem = _Problem.of(Network(parse("mesh:2x4"), Collective.make("all_to_all", 8)))
    bound = seconds_per_byte(run(problem.network.topology, problem.network.collective, 1, Budget()))
    sound, hurried = (_paths(problem, bound * part, Budget()) for part in (1, Fraction(9, 10)))
    assert sum(path.amount * len(path.arcs) for path in hurried) == pytest.approx(
        sum(path.amount * len(path.arcs) for path in sound)
    )


def test_refusals() -> None:
    ring = parse("ring:4")
    with pytest.raises(
        EngineError, match=r"engine flow is for data from one rank to one other .*, and all_gather copies"
    ):
        run(ring, Collective.make("all_gather", 4), 1, Budget())
    with pytest.raises(EngineError, match="takes no --steps or --rounds; use --engine sccl"):
        run(ring, Collective.make("all_to_all", 4), 1, Budget(steps=2))
    with pytest.raises(OutOfTimeError, match=r"its linear program of \d+ variables within 0 s"):
        run(parse("mesh:8x8"), Collective.make("all_to_all", 64), 1, Budget(timeout=0.0))


def test_auto_takes_flows() -> None:
    torus = parse("torus:8x8x8")
    assert auto(torus, Collective.make("scatter", 512), 1 << 30, Budget()).engine == "flow"
    assert gap_of(auto(parse("torus:4x4"), Collective.make("all_to_all", 16), 1 << 30, Budget())) == 0


@pytest.mark.parametrize(("name", "most"), [("dgx2:4", 4), ("dgx-a100:2", 2)])
@pytest.mark.parametrize("kind", ["scatter", "gather"])
def test_ranks_share_what_must_go_through_one_of_them(name: str, most: int, kind: str) -> None:
    """dgx2:4: each of 8 NICs sends 48 / 8 blocks, of two GPUs, so 3 go through a GPU, which keeps one."""
    topology = parse(name)
    schedule = run(topology, Collective.make(kind, topology.ranks), 1, Budget())
    moved, chunks = schedule.transfers, schedule.collective.chunks
    carried = chunks.weight[schedule.values.chunk[moved.value]]
    through = np.bincount(moved.dst if kind == "scatter" else moved.src, carried, topology.ranks)
    block = int(chunks.weight[chunks.block == 1].sum())
    assert through.max() <= most * block
    assert gap_of(schedule) == 0


@pytest.mark.parametrize("kind", ["scatter", "gather"])
def test_what_lies_behind_every_link_has_work_from_the_first_slice_on(kind: str) -> None:
    """A step is a hop, so the slices of all chunks move together."""
    schedule = run(parse("mi250:8"), Collective.make(kind, 128), 1, Budget())
    size = 1 << 30
    assert schedule.bounds is not None
    assert simulate(schedule, size, 1 << 17).seconds <= 1.03 * schedule.bounds.seconds(size)


# The parts.


def test_a_flow_is_taken_apart() -> None:
    ends = [(0, 1), (1, 2)]
    paths = paths_of(0, 0, {2: 2, 1: 1}, np.asarray([3.0, 2.0]), ends)
    assert [(path.end, path.arcs, path.amount) for path in paths] == [(2, (0, 1), 2.0), (1, (0,), 1.0)]


def test_the_longest_way_goes_first() -> None:
    assert steps_of([["a"], ["a", "b", "c"], ["a", "b"], []]) == [[2], [0, 1, 2], [1, 2], []]


def test_free_groups() -> None:
    turn, mirror = (1, 2, 3, 0), (0, 3, 2, 1)
    assert FreeGroup.of(4, range(4), (turn, mirror)) is None
    group = FreeGroup.within(4, range(4), (mirror, turn))
    assert (group.generators, group.order, group.homes) == ((turn,), 4, (0,))
    swap = (1, 0, 2, 3)  # moves 0 and 1 and leaves 2: free on {0, 1} only
    assert FreeGroup.of(4, (0, 1, 2), (swap,)) is None
    pair = FreeGroup.of(4, (0, 1), (swap,))
    assert pair is not None
    assert pair.order == 2


@pytest.mark.parametrize("name", ["torus:3x4", "hypercube:3", "dgx-a100:2", "rail:boxes=3,gpus=4,rails=2", "dgx1"])
def test_free_groups_of_families_are_groups(name: str) -> None:
    topology = parse(name)
    nodes = len(topology.nodes)
    group = FreeGroup.within(nodes, range(topology.ranks), topology.generators)
    assert group.order == group_order(nodes, group.generators)
    home, element = group.home, group.element
    for rank in range(topology.ranks):
        assert group.elements[element[rank], home[rank]] == rank
