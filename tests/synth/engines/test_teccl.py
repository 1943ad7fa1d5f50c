"""Engine teccl: every schedule is right, the size decides, and the time-expanded program says what it should."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.benchmarks.synthesis.networks.irregular import dual_homed
from syntony.benchmarks.synthesis.networks.teccl import dgx2_boxes, ndv2_boxes
from syntony.benchmarks.synthesis.systems import teccl as table
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.checker import check_schedule
from syntony.synth.engines import in_network
from syntony.synth.engines.engine import Budget, EngineError, OutOfTimeError
from syntony.synth.engines.forest import search as forest
from syntony.synth.engines.teccl import search
from syntony.synth.engines.teccl.epochs import planned
from syntony.synth.engines.teccl.search import run, sliced
from syntony.synth.engines.teccl.timetable import scheduled
from syntony.synth.engines.teccl.trees import Hop, Manner, Want, grow_all, wants_of
from syntony.synth.engines.teccl.ways import Ways
from syntony.synth.model.collective import KINDS, ChunkTable, Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.model.values import ValueBuilder
from syntony.synth.simulation.program_simulator import executor_slice
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.groups import expand
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples
from tests.synth.networks import able_networks, collectives, networks, replay

NAMES = ["dgx1", "ring:5", "star:4", "mesh:2x3", "torus:3x3", "full:2", "rail:boxes=2,gpus=2,rails=2", "ring:1"]


@pytest.fixture(autouse=True, scope="module")
def few_candidates() -> Iterator[None]:
    """The whole choice takes seconds. Time limits are far away: a busy machine is no fault."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "PATIENCE", (1.0,))
        patch.setattr(search, "PIECES", (2, 1))
        patch.setattr(search, "PATH_PIECES", (2, 1))
        patch.setattr(search, "PROGRAM_SECONDS", 1.0)
        yield


def prove(schedule: Schedule) -> None:
    replay(schedule)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault


def relay(alpha: float = 1e-6) -> Topology:
    """From 0 to 2 a slow wire, and two fast ones by 1."""
    wiring = Wiring("relay")
    for rank in range(3):
        wiring.rank((float(rank), 0.0))
    for src, dst, bandwidth in ((0, 2, 10**8), (0, 1, 10**10), (1, 2, 10**10), (2, 0, 10**10), (1, 0, 10**10)):
        wiring.link(src, dst, Fraction(bandwidth), alpha)
    return wiring.topology()


def halves(topology: Topology, kind: str) -> tuple[Ways, tuple[Want, ...]]:
    ways = Ways.of(Network(topology, Collective.make(kind, topology.ranks)))
    return ways, wants_of(ways)


@pytest.mark.parametrize(("name", "kind"), list(zip(NAMES, KINDS, strict=True)))
def test_named_networks(name: str, kind: str) -> None:
    topology = parse(name)
    collective = Collective.make(kind, topology.ranks)
    schedule = run(topology, collective, 1 << 16, Budget())
    prove(schedule)
    seconds, length = sliced(schedule, 1 << 16)
    assert seconds == simulate(schedule, 1 << 16, slice_bytes=length).seconds
    assert seconds >= bounds_of(topology, collective).seconds(1 << 16) * (1 - 1e-9)


@examples(15)
@given(data=st.data())
def test_random_networks(data: st.DataObject) -> None:
    topology = data.draw(networks(max_ranks=4) | able_networks(max_ranks=4))
    size = data.draw(st.sampled_from([0, 1, 1 << 20]))
    switches = data.draw(st.sampled_from(["", "in_network"]))
    prove(run(topology, data.draw(collectives(topology)), size, Budget(), switches))


def test_sums_that_take_several_steps_or_a_switch_are_replayed() -> None:
    """A rank's sum may get its operands in several steps, and a switch may be at an end of a transfer."""
    wiring = Wiring("two switches")
    for rank in range(4):
        wiring.rank((float(rank), 0.0))
    plain, adder = wiring.switch("plain", (4.0, 0.0)), wiring.switch("adder", (5.0, 0.0), reduces=True)
    ring = ((0, 2, 1), (2, 1, 2), (1, plain, 1), (plain, adder, 1), (adder, 3, 1), (3, 0, 1))
    for src, dst, bandwidth in (*ring, *[(0, 1, 1)] * 8, (0, 3, 1), (1, 2, 1), (3, plain, 1), (plain, 0, 2)):
        wiring.link(src, dst, Fraction(bandwidth), 0.0)
    prove(run(wiring.topology(), Collective.make("reduce_scatter", 4), 1 << 20, Budget(), "in_network"))
    star = parse("star:4,aggregator=switchml")
    through = in_network.run(star, Collective.make("all_reduce", 4), 1 << 20, Budget())
    assert through.in_network
    prove(through)


@examples(40)
@given(data=st.data())
def test_every_manner_reaches_all(data: st.DataObject) -> None:
    topology = data.draw(networks())
    kind = data.draw(st.sampled_from(["all_gather", "broadcast", "gather", "scatter", "all_to_all"]))
    ways, wants = halves(topology, kind)
    manner = data.draw(
        st.builds(
            Manner,
            st.integers(1, 3),
            st.sampled_from([0.0, 0.1, 10.0]),
            st.booleans(),
            st.sampled_from([None, 0.0, 1e-6]),
        )
    )
    hops = grow_all(ways, wants, 1000, manner, Budget())
    prove(scheduled(ways, wants, hops, 1000, manner.pieces))


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all"])
def test_symmetry_changes_nothing(kind: str) -> None:
    """Homes stand for all: a schedule of representatives takes as long as the same one written out."""
    ways, wants = halves(ndv2_boxes(2), kind)
    assert ways.group.order == 2
    schedule = scheduled(ways, wants, grow_all(ways, wants, 64000, Manner(2, 1.0, True), Budget()), 64000, 2)
    assert schedule.symmetry
    prove(schedule)
    assert simulate(schedule, 64000).seconds == pytest.approx(simulate(expand(schedule), 64000).seconds)


def test_the_size_decides() -> None:
    """A byte takes the slow wire, which is one hop; a megabyte goes round it."""
    collective = Collective.make("broadcast", 3)
    for size, ways in ((1, {0}), (10**6, {1, 2})):
        schedule = run(relay(), collective, size, Budget())
        prove(schedule)
        entering = {row.route for row in expand(schedule).transfers.rows() if row.dst == 2}
        assert entering == ({(0,)} if ways == {0} else {(2,)})


@pytest.mark.parametrize("kind", ["broadcast", "scatter"])
@pytest.mark.parametrize(("size", "relayed"), [(3, False), (3 * 10**6, True)])
def test_the_program_weighs_alphas_and_bytes(kind: str, size: int, relayed: bool) -> None:
    """Copies and flows alike: a program that is given the time of the better way finds it."""
    ways, wants = halves(relay(), kind)
    horizon = 2 * 1e-6 + 2 * size / 10**10 if relayed else 1e-6 + size / 10**8
    hops = planned(ways, wants, size, 1, horizon, 10.0)
    prove(scheduled(ways, wants, hops, size, 1))
    taken = [ways.routes[hop.route].links for hop in hops]
    assert ((0,) in taken) != relayed


@pytest.mark.parametrize(("name", "kind"), [("dgx1", "all_gather"), ("dgx1", "all_to_all"), ("mesh:2x3", "gather")])
def test_programs_of_named_networks(name: str, kind: str) -> None:
    """What they find is whole, and not far from what the trees took."""
    ways, wants = halves(parse(name), kind)
    trees = scheduled(ways, wants, grow_all(ways, wants, 64000, Manner(1, 1.0, True), Budget()), 64000, 1)
    horizon = simulate(trees, 64000).seconds
    hops = planned(ways, wants, 64000, 2, horizon, 20.0)
    schedule = scheduled(ways, wants, hops, 64000, 2)
    prove(schedule)
    assert simulate(schedule, 64000).seconds <= 1.25 * horizon


def test_a_horizon_too_short_has_no_program() -> None:
    ways, wants = halves(parse("ring:4"), "all_gather")
    assert planned(ways, wants, 1000, 1, 1e-7, 10.0) == []


def test_the_slowest_branch_goes_first() -> None:
    """Of two pieces for one link, the one that has further to go leaves first, wherever it stands in the list."""
    wiring = Wiring("fork")
    for rank in range(3):
        wiring.rank((float(rank), 0.0))
    wiring.cable(0, 1, Fraction(10**9), 1e-6)
    wiring.cable(1, 2, Fraction(10**9), 1e-6)
    ways, wants = halves(wiring.topology(), "scatter")
    lane = {(route.src, route.dst): number for number, route in enumerate(ways.routes)}
    hops = [Hop(1, 0, lane[0, 1], -1), Hop(2, 0, lane[0, 1], -1), Hop(2, 0, lane[1, 2], 1)]
    first, *_ = scheduled(ways, wants, hops, 3000, 1).transfers.rows()
    assert first.value == 2


def test_limits_are_told() -> None:
    topology, collective = parse("ring:4"), Collective.make("all_gather", 4)
    with pytest.raises(EngineError, match="minimizes time and takes no --steps or --rounds"):
        run(topology, collective, 1000, Budget(steps=2))
    with pytest.raises(EngineError, match="takes the argument in_network or none, not 'milp'"):
        run(topology, collective, 1000, Budget(), "milp")
    with pytest.raises(EngineError, match="144 ranks are too many"):
        run(parse("torus:12x12"), Collective.make("all_gather", 144), 1000, Budget())


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "all_to_all", "scatter"])
def test_without_time_there_is_a_schedule_that_says_so(kind: str) -> None:
    topology = parse("mesh:2x3")
    hurried = run(topology, Collective.make(kind, 6), 1 << 20, Budget(timeout=0))
    prove(hurried)
    assert re.search(r"% above the \S+ s that are proven to be needed; the search ended with its 0 s$", hurried.proof)
    patient = run(topology, Collective.make(kind, 6), 1 << 20, Budget())
    assert "the search ended" not in patient.proof
    assert sliced(patient, 1 << 20)[0] <= sliced(hurried, 1 << 20)[0]


@pytest.mark.parametrize("kind", ["scatter", "all_gather"])
def test_the_same_trees_are_not_tried_twice(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """On a ring, many manners of growing lead to the same."""
    monkeypatch.setattr(search, "PATIENCE", (0.1, 1.0, 10.0))
    monkeypatch.setattr(search, "ENOUGH", 0.0)
    grown: list[tuple[Hop, ...]] = []
    made: list[tuple[object, ...]] = []
    grow, keep = search._Half.grown, search._Half.kept

    def noted(half: search._Half, size: int, manner: Manner, budget: Budget) -> tuple[Hop, ...]:
        grown.append(grow(half, size, manner, budget))
        return grown[-1]

    def kept(half: search._Half, hops: Sequence[Hop], size: int, pieces: int) -> Schedule:
        made.append((half.topology.name, tuple(hops), pieces))
        return keep(half, hops, size, pieces)

    monkeypatch.setattr(search._Half, "grown", noted)
    monkeypatch.setattr(search._Half, "kept", kept)
    monkeypatch.setattr(search, "planned", lambda *_: [])
    prove(run(parse("ring:5"), Collective.make(kind, 5), 1 << 16, Budget()))
    assert len(set(made)) == len(made) < len(grown)


def test_slices_that_nobody_cuts_do_not_count() -> None:
    """One chunk of 400 bytes beside one of 800 KB: cut into equal numbers of slices, the small one's are too short."""
    chain = Wiring("chain")
    for rank in range(3):
        chain.rank((float(rank), 0.0))
    for src, dst in ((0, 1), (1, 2)):
        chain.link(src, dst, Fraction(10**9), 1e-6)
    rows = [Transfer(chunk, chunk, src, src + 1, src, (src,)) for chunk in range(2) for src in range(2)]
    rows.sort(key=lambda row: row.step)

    def moved(light: int) -> Schedule:
        table = ChunkTable(np.zeros(2, np.int64), np.asarray([light, 2000]))
        collective = replace(Collective.make("broadcast", 3), chunks=table)
        return Schedule(chain.topology(), collective, ValueBuilder.of_chunks(collective).build(), Transfers.of(rows))

    long = executor_slice(3)
    assert sliced(moved(2000), 100_000, executed=True)[1] is not None
    assert sliced(moved(1), 100_000)[1] is not None
    assert sliced(moved(1), 100_000, executed=True)[1] is None
    length = sliced(moved(1), 8 * long, executed=True)[1]  # executors cut what is longer than their messages
    assert length is not None
    assert length >= long


def test_a_network_too_large_for_the_first_try_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FIRST_SECONDS", 0.0)
    with pytest.raises(
        OutOfTimeError, match=r"no schedule after 0 s; a proven bound is that none takes less than 2.12e-06 s"
    ):
        run(parse("ring:4"), Collective.make("all_gather", 4), 1000, Budget(timeout=0))


def test_many_small_gains_are_reported_too() -> None:
    """What is found in the end is hardly faster than what was reported last."""
    reported: list[Schedule] = []
    topology = dual_homed(6)
    found = run(topology, Collective.make("all_gather", 6), 16 << 10, Budget(better=reported.append))
    seconds = [sliced(schedule, 16 << 10, executed=True)[0] for schedule in [*reported, found]]
    assert len(seconds) > 3
    assert all(later <= search.GAIN * one for one, later in pairwise(seconds[:-1]))
    assert seconds[-1] > search.GAIN * seconds[-2]


@pytest.mark.parametrize(
    ("machine", "kind", "algbw"),
    [
        (dgx2_boxes(), "all_gather", Fraction(125 * 32, 31)),
        (dgx2_boxes(), "all_to_all", Fraction(25, 2)),
        (ndv2_boxes(2), "all_gather", Fraction(25)),
        (ndv2_boxes(2), "all_to_all", Fraction(25, 8)),
        (ndv2_boxes(4), "all_gather", Fraction(50, 3)),
    ],
)
def test_the_table_s_machines(machine: Topology, kind: str, algbw: Fraction) -> None:
    """The bounds that TE-CCL's and TACCL's numbers meet, or stay below."""
    bound = bounds_of(machine, Collective.make(kind, machine.ranks)).throughput
    assert 1 / bound.seconds_per_byte == algbw * 10**9


def test_the_table_says_what_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engine forest alone reaches the bound at a gigabyte, and not TE-CCL at 64 KB."""
    monkeypatch.setattr(table.search, "run", lambda *given: forest.run(*given[:4]))
    cells = table.all_cells()[-1]
    rows = [
        table.row_of(cells, label, table.SIZES[label], cells.published[at]) for label, at in (("64KB", 1), ("1GB", 4))
    ]
    assert [row.missed for row in rows] == ["slower than published", ""]


def test_what_switches_copy_is_ordered_by_urgency() -> None:
    """In the order of its trees, the exact schedule of engine in_network misses 99 % of this bound."""
    cells, label = table.all_cells()[0], "64MB"
    assert not table.row_of(cells, label, table.SIZES[label], cells.published[3]).missed
